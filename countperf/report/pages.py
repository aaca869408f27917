"""Contents of the pages of a fit, a kernel and a search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from countperf.errors import ParameterError
from countperf.hardware.parameters import UNITS
from countperf.models.library import short_name
from countperf.report.accuracy import RANKING_NOTE, means_table, ranking_evaluation
from countperf.report.breakdown import bound_text, breakdown_rows
from countperf.report.curves import roofline_figure
from countperf.report.figures import evaluations_figure, prediction_figure, variants_figure
from countperf.report.names import GROUPS
from countperf.report.numbers import (
    PURPOSES,
    format_percent,
    format_quantity,
    interval_text,
    point_text,
)
from countperf.report.page import Block, Page, Section
from countperf.report.predictions import explanation, part_rows, prediction_head
from countperf.report.rows import Table, table_of
from countperf.report.weights import NO_RATES, weight_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from countperf.counting.access_analysis import AccessAnalysis
    from countperf.fitting.ranking import RankingEvaluation
    from countperf.hardware.identity import DeviceIdentity
    from countperf.hardware.parameters import DeviceParameters
    from countperf.metrics import Evaluation
    from countperf.models.explanation import Explanation
    from countperf.models.weights import WeightSet
    from countperf.tuning.ranking import Ranking
    from countperf.tuning.result import Trial

_MOST_VARIANTS = 30
_FIGURE_INCHES = 5.2


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedKernel:
    """A kernel of a page."""

    explanation: Explanation  # where its time goes, at one size
    measured_s: float | None = None  # measured time, s, if it is known


def fit_page(
    weights: WeightSet,
    *,
    device: DeviceParameters | None = None,
    evaluation: Evaluation | None = None,
    ranking: RankingEvaluation | None = None,
    kernels: Sequence[ExplainedKernel] = (),
) -> Page:
    """Show a fit: device, accuracy, weights as rates, kernels, variants."""
    lead = [f"{short_name(weights.model)} model, fitted for {weights.device.name}"]
    if evaluation is not None:
        error = format_percent(evaluation.overall().value)
        lead.append(f"error {error} on kernels that the fit has not seen")
    return Page(
        title=f"Fit of {weights.device.slug}",
        lead=tuple(lead),
        sections=(
            _device_section(weights.device, device),
            _accuracy_section(weights, evaluation),
            _weights_section(weights, device),
            Section(
                title="Kernels",
                blocks=tuple(
                    block for kernel in kernels for block in _kernel_blocks(kernel, device)
                ),
            ),
            _ranking_section(ranking),
        ),
    )


def kernel_page(
    kernel: ExplainedKernel,
    weights: WeightSet,
    device: DeviceParameters | None = None,
    accesses: Iterable[AccessAnalysis] = (),
) -> Page:
    """Show a kernel: time, what bounds it, breakdown, roofline, all parts, device."""
    prediction = kernel.explanation.prediction
    sizes = point_text(prediction.parameters)
    notes = explanation(kernel.explanation, weights, device).notes
    closing = [line for line in notes if line.startswith(("the kernel then", "correction:", "!!"))]
    return Page(
        title=f"{prediction.kernel}{', ' if sizes else ''}{sizes}",
        lead=tuple(prediction_head(prediction, accesses)),
        sections=(
            Section(
                title="Where the time goes",
                blocks=(*_kernel_blocks(kernel, device), Block(lines=tuple(closing))),
            ),
            Section(title="All parts", blocks=(_parts_block(kernel.explanation, weights, device),)),
            _device_section(weights.device, device),
            _accuracy_section(weights, None),
        ),
    )


def search_page(
    space: str,
    device: DeviceIdentity,
    sizes: Mapping[str, int],
    tried: Sequence[Trial],
    ranking: Ranking | None = None,
) -> Page:
    """Show a search: the winner, what ran, how the best time fell, what else was predicted."""
    if not tried:
        message = f"no variant of {space} has run: there is nothing to report yet"
        raise ParameterError(message, parameter="search")
    winner = min(tried, key=lambda each: each.time_s)
    given = point_text(sizes)
    figure = variants_figure(
        tried, f"{space} on {device.slug}", ranking and ranking.seconds, is_stacked=True
    )
    by_time = sorted(tried, key=lambda each: each.time_s)
    predicted = [] if ranking is None else [f"{ranking.predicted} variants were predicted"]
    return Page(
        title=f"Search for the fastest {space}, {given}",
        lead=(
            f"{format_quantity(winner.time_s, 's')}: {point_text(winner.choice)}",
            "; ".join([f"{len(tried)} variants ran on {device.slug}", *predicted]),
        ),
        sections=(
            Section(
                title="Progress", blocks=(Block(figures=(("measured over predicted", figure),)),)
            ),
            Section(
                title="Variants that ran",
                blocks=(Block(table=_variants_table(by_time[:_MOST_VARIANTS])),),
            ),
            _device_section(device, None),
        ),
    )


def _variants_table(tried: Sequence[Trial]) -> Table:
    columns = {"time_s": "measured", "predicted_s": "predicted"}
    columns |= {f"choice {name}": name for name in tried[0].choice}
    return table_of(
        [
            {
                "time_s": each.time_s,
                "predicted_s": each.predicted_s,
                **{f"choice {name}": value for name, value in each.choice.items()},
                "": "stopped early" if each.cut_short else None,
            }
            for each in tried
        ],
        columns | {"": ""},
    )


def _device_section(identity: DeviceIdentity, device: DeviceParameters | None) -> Section:
    facts = [
        ("device", identity.name),
        *([("processor", identity.processor)] if identity.processor else []),
        ("platform", f"{identity.platform}, driver {identity.driver_version}"),
        ("kind", identity.device_type),
        ("compute units", str(identity.compute_units)),
    ]
    if device is not None:
        for field, unit in UNITS.items():
            value = getattr(device, field, None)
            if value is None or field == "num_compute_units":
                continue
            name = field.removesuffix("_byte_per_s").removesuffix("_hz").removesuffix("_s")
            shown = f"{value} {unit}" if isinstance(value, int) else format_quantity(value, unit)
            facts.append((name.replace("_", " "), shown))
    lines = () if device is not None else (NO_RATES,)
    return Section(title="Device", blocks=(Block(facts=tuple(facts), lines=lines),))


def _accuracy_section(weights: WeightSet, evaluation: Evaluation | None) -> Section:
    facts: list[tuple[str, str]] = []
    quality = weights.quality
    if quality is not None:
        facts.append(("error on the fit's own cases", format_percent(quality.in_sample_error)))
        if quality.held_out_error is not None:
            facts.append(("error on left-out families", format_percent(quality.held_out_error)))
    if weights.source is not None:
        facts.append(("measured cases", str(weights.source.cases)))
        facts.append(("measured", weights.source.recorded_at[:10]))
    blocks = [Block(facts=tuple(facts))] if facts else []
    if evaluation is not None:
        covered, intervals = evaluation.coverage()
        lines = [
            f"{PURPOSES.get(title, title)}: error {format_percent(part.overall().value)} over"
            f" {len(part.cases)} cases"
            for title, part in evaluation.by_purpose().items()
        ]
        if intervals:
            lines.append(f"90 % intervals hold {covered} of {intervals} measured times")
        judges = [case for case in evaluation.cases if case.purpose != "variant"]
        table = means_table(evaluation.model_copy(update={"cases": tuple(judges)}))
        figure = evaluations_figure([evaluation])
        blocks.append(
            Block(lines=tuple(lines), figures=(("predicted over measured times", _narrow(figure)),))
        )
        if judges:
            blocks.append(Block(table=table))
    return Section(title="Accuracy", blocks=tuple(blocks))


_WEIGHT_COLUMNS = {
    **{"group": "group", "name": "what", "weight": "weight", "rate": "implied rate"},
    "remark": "against the device's limits",
}


def _weights_section(weights: WeightSet, device: DeviceParameters | None) -> Section:
    rows = [row for row in weight_rows(weights, device) if row["weight_s"] != 0]
    rows.sort(key=lambda row: GROUPS.index(row["group"]))
    zero = len(weights.by_feature) - len(rows)
    said = "1 weight is zero: its cost" if zero == 1 else f"{zero} weights are zero: their cost"
    shown = [
        {
            **{name: row[name] for name in ("group", "name", "remark")},
            "weight": f"{row['shown']['weight']} {row['shown']['per']}",
            "rate": row["shown"]["rate"],
        }
        for row in rows
    ]
    block = Block(
        lines=(f"{said} is in others",) if zero else (), table=table_of(shown, _WEIGHT_COLUMNS)
    )
    return Section(title="Weights as rates", blocks=(block,))


def _ranking_section(ranking: RankingEvaluation | None) -> Section:
    if ranking is None or not ranking.sets:
        return Section(title="Variants", blocks=())
    block = Block(lines=(RANKING_NOTE,), table=ranking_evaluation(ranking).table)
    return Section(title="Variants", blocks=(block,))


def _narrow(figure: Figure) -> Figure:
    """Make a figure so narrow that its words can be read on a phone."""
    figure.set_size_inches(_FIGURE_INCHES, figure.get_size_inches()[1])
    return figure


def _kernel_blocks(kernel: ExplainedKernel, device: DeviceParameters | None) -> Iterable[Block]:
    prediction = kernel.explanation.prediction
    sizes = point_text(prediction.parameters)
    facts = [("predicted", format_quantity(float(prediction.time_s), "s"))]
    if prediction.interval_s is not None:
        level = f"{100 * prediction.interval_level:.0f} % interval"
        facts.append((level, interval_text(prediction.interval_s)))
    if kernel.measured_s is not None:
        facts.append(("measured", format_quantity(kernel.measured_s, "s")))
    figures = []
    if breakdown_rows(prediction):
        figures.append(("where the time goes", _narrow(prediction_figure(prediction))))
    if kernel.explanation.flops > 0 and kernel.explanation.global_bytes > 0:
        figures.append(("roofline", _narrow(roofline_figure(kernel.explanation, device))))
    yield Block(
        title=f"{prediction.kernel}{', ' if sizes else ''}{sizes}",
        lines=tuple(filter(None, [bound_text(prediction)])),
        facts=tuple(facts),
        figures=tuple(figures),
    )


_PART_COLUMNS = {
    **{"part": "part", "name": "what", "time_s": "time", "count": "count", "rate": "implied rate"},
    "remark": "against the device's limits",
}


def _parts_block(of: Explanation, weights: WeightSet, device: DeviceParameters | None) -> Block:
    rows = [
        {**row, "rate": (row.get("shown") or {}).get("rate")}
        for row in part_rows(of, weights, device)
        if row["time_s"]
    ]
    for row in rows:
        row.pop("shown", None)
    return Block(lines=(f"time_s = {of.expression}",), table=table_of(rows, _PART_COLUMNS))
