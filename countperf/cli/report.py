"""``countperf report``: pages of fits, kernels and searches."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from countperf.cli.common import as_dict, print_json
from countperf.documents import check_writable, read_file_text, write_atomically
from countperf.errors import CountperfError, ParameterError
from countperf.fitting.ranking import RankingEvaluation
from countperf.hardware.parameters import UNITS
from countperf.measurements import MeasurementSet, measurements_in
from countperf.metrics import Evaluation
from countperf.models.explanation import explain
from countperf.models.library import find_fit, load_weights, short_name
from countperf.report.accuracy import means_table, ranking_evaluation
from countperf.report.breakdown import breakdown_rows
from countperf.report.curves import roofline_figure
from countperf.report.figures import evaluations_figure, prediction_figure, variants_figure
from countperf.report.numbers import PURPOSES, format_percent, format_quantity, point_text
from countperf.report.page import Page, Part
from countperf.report.plausibility import NO_RATES
from countperf.report.predictions import explanation, prediction, prediction_head
from countperf.report.rows import Printed
from countperf.report.weights import weights_table
from countperf.tuning.journal import End, read_journal
from countperf.tuning.result import Trial, as_key
from countperf.workflow.devices import known_device
from countperf.workflow.evaluating import evaluate, evaluate_ranking
from countperf.workflow.prediction import Target, predict_in_detail

if TYPE_CHECKING:
    from countperf.hardware.identity import DeviceIdentity
    from countperf.hardware.parameters import DeviceParameters
    from countperf.models.explanation import Explanation
    from countperf.models.library import NamedFit
    from countperf.models.weights import WeightSet

_SHOWN_KERNELS = 4
_MOST_VARIANTS = 30


def run(options: argparse.Namespace) -> None:
    """Write the page."""
    check_writable(options.output)  # before the work, not after it
    what = str(options.what)
    fit = find_fit(what)
    if fit is not None or _is_document(what, "countperf-weights"):
        page = _fit_page(options, fit)
    elif _is_document(what, "countperf-timing"):
        raise ParameterError(
            f"{what} is a timing, of which there is no page: countperf report KERNEL SIZES makes"
            f" one of the kernel, countperf predict KERNEL SIZES --anchor {what} takes its times",
            parameter="what",
        )
    elif what.endswith(".jsonl"):
        page = _search_page(Path(what))
    else:
        page = _kernel_page(options)
    text = page.to_html()
    write_atomically(options.output, text)
    if options.json:
        print_json({"written": options.output, "title": page.title, "bytes": len(text.encode())})
    else:
        print(f"{page.title}: written to {options.output}")


def _is_document(what: str, format_name: str) -> bool:
    """Return whether a file says that it is of a format; a kernel's counts are in a file, too."""
    return what.endswith(".json") and f'"{format_name}"' in read_file_text(Path(what))[:4096]


def _fit_page(options: argparse.Namespace, fit: NamedFit | None) -> Page:
    weights = load_weights(options.what, model=options.model)
    evaluation, ranking, measured = None, None, None
    if options.measurements is not None:
        measured = MeasurementSet.read_file(options.measurements)
        evaluation = evaluate(measured, weights=weights)
        ranking = evaluate_ranking(measured, weights=weights)
    elif fit is not None:
        kind = "" if options.model is None else f"{short_name(weights.model)}-"
        evaluated, ranked = (
            fit.folder / f"{kind}{name}.json" for name in ("evaluation", "ranking")
        )
        evaluation = Evaluation.read_file(evaluated) if evaluated.is_file() else None
        ranking = RankingEvaluation.read_file(ranked) if ranked.is_file() else None
        campaign = measurements_in(fit.folder)
        measured = MeasurementSet.read_file(campaign) if campaign.is_file() else None
    device = known_device(weights.device.slug, options.what)
    return Page(
        title=f"Fit of {weights.device.slug}",
        lead=(f"{short_name(weights.model)} model, fitted for {weights.device.name}",),
        sections={
            "Device": [_device(weights.device, device)],
            "Accuracy": _accuracy(weights, evaluation),
            "Weights as rates": [Printed(shown=weights_table(weights, device))],
            "Kernels": [] if measured is None else _test_kernels(weights, measured, device),
            "Variants": [ranking_evaluation(ranking)] if ranking and ranking.sets else [],
        },
    )


def _test_kernels(
    weights: WeightSet, measured: MeasurementSet, device: DeviceParameters | None
) -> list[Part]:
    """Explain the test kernels of a campaign, each at the size that took longest."""
    tests = sorted((m for m in measured if m.purpose == "test"), key=lambda m: m.time_s)
    parts: list[Part] = []
    shown = 0
    for test in {test.kernel: test for test in tests}.values():
        vector = test.property_vector()
        if vector is None or shown == _SHOWN_KERNELS:
            continue
        try:
            made = weights.predict_counts(vector, test.parameters)
            explained = explain(weights, vector, made)
        except CountperfError:  # no weight for what it does: the page shows others
            continue
        shown += 1
        parts.append(prediction(made))
        parts.append(Printed(head=[f"measured: {format_quantity(test.time_s, 's')}"]))
        parts += _figures(explained, device)
    return parts


def _kernel_page(options: argparse.Namespace) -> Page:
    made = predict_in_detail(
        options.what,
        as_dict(options.parameters),
        Target(weights=options.weights, model=options.model, device=options.device),
        statistics=as_dict(options.statistics) or None,
    )
    explained = explain(made.weights, made.vector, made.prediction)
    device = known_device(made.weights.device.slug, options.weights)
    sizes = point_text(made.prediction.parameters)
    return Page(
        title=f"{made.prediction.kernel}{', ' if sizes else ''}{sizes}",
        lead=prediction_head(made.prediction),
        sections={
            "Where the time goes": _figures(explained, device),
            "All parts": [explanation(explained, made.weights, device)],
            "Device": [_device(made.weights.device, device)],
            "Accuracy": _accuracy(made.weights, None),
        },
    )


def _figures(explained: Explanation, device: DeviceParameters | None) -> list[Part]:
    parts: list[Part] = []
    if breakdown_rows(explained.prediction):
        parts.append(("where the time goes", prediction_figure(explained.prediction)))
    if explained.flops > 0 and explained.global_bytes > 0:
        parts.append(("roofline", roofline_figure(explained, device)))
    return parts


def _search_page(path: Path) -> Page:
    header, entries = read_journal(path)
    found = [entry.content for entry in entries]
    of_choice = {as_key(outcome.choice): outcome for outcome in found if isinstance(outcome, Trial)}
    if not of_choice:
        message = f"no variant of {header.space} has run: there is nothing to report yet"
        raise ParameterError(message, parameter="search")
    tried = [*of_choice.values()]
    ends = [outcome for outcome in found if isinstance(outcome, End)][-1:]
    by_time = sorted(tried, key=lambda outcome: outcome.time_s)
    slug = header.device.slug
    figure = variants_figure(
        tried, f"{header.space} on {slug}", ends[0].ranking_s if ends else None
    )
    columns = {"time_s": "measured", "predicted_s": "predicted"}
    columns |= {f"choice {name}": name for name in tried[0].choice} | {"": ""}
    rows: list[dict[str, Any]] = [
        {
            "time_s": outcome.time_s,
            "predicted_s": outcome.predicted_s,
            **{f"choice {name}": value for name, value in outcome.choice.items()},
            "": "stopped early" if outcome.cut_short else None,
        }
        for outcome in by_time[:_MOST_VARIANTS]
    ]
    predicted = [f"{outcome.predicted} variants were predicted" for outcome in ends]
    return Page(
        title=f"Search for the fastest {header.space}, {point_text(header.sizes)}",
        lead=(
            f"{format_quantity(by_time[0].time_s, 's')}: {point_text(by_time[0].choice)}",
            "; ".join([f"{len(tried)} variants ran on {slug}", *predicted]),
        ),
        sections={
            "Progress": [("measured over predicted", figure)],
            "Variants that ran": [Printed(rows=rows, columns=columns)],
            "Device": [_device(header.device, None)],
        },
    )


def _device(identity: DeviceIdentity, device: DeviceParameters | None) -> Printed:
    facts: dict[str, Any] = {
        "device": identity.name,
        "processor": identity.processor,
        "platform": f"{identity.platform}, driver {identity.driver_version}",
        "kind": identity.device_type,
        "compute units": identity.compute_units,
    }
    for field, unit in UNITS.items() if device is not None else ():
        value = getattr(device, field, None)
        if value is not None and field != "num_compute_units":
            name = field.removesuffix("_byte_per_s").removesuffix("_hz").removesuffix("_s")
            shown = f"{value} {unit}" if isinstance(value, int) else format_quantity(value, unit)
            facts[name.replace("_", " ")] = shown
    return _facts(facts, [] if device is not None else [NO_RATES])


def _facts(facts: dict[str, Any], notes: list[str]) -> Printed:
    rows = [{"": name, " ": str(value)} for name, value in facts.items() if value]
    return Printed(rows=rows, notes=notes)


def _accuracy(weights: WeightSet, evaluation: Evaluation | None) -> list[Part]:
    facts: dict[str, Any] = {}
    if (quality := weights.quality) is not None:
        facts["error on the fit's own cases"] = format_percent(quality.in_sample_error)
        if quality.held_out_error is not None:
            facts["error on left-out families"] = format_percent(quality.held_out_error)
    if weights.source is not None:
        facts["measured cases"] = weights.source.cases
        facts["measured"] = weights.source.recorded_at[:10]
    parts: list[Part] = [_facts(facts, [])] if facts else []
    if evaluation is not None:
        covered, intervals = evaluation.coverage()
        lines = [
            f"{PURPOSES.get(title, title)}: error {format_percent(part.overall().value)} over"
            f" {len(part.cases)} cases"
            for title, part in evaluation.by_purpose().items()
        ]
        if intervals:
            lines.append(f"90 % intervals hold {covered} of {intervals} measured times")
        judges = tuple(case for case in evaluation.cases if case.purpose != "variant")
        table = means_table(evaluation.model_copy(update={"cases": judges}))
        parts.append(("predicted over measured times", evaluations_figure([evaluation])))
        parts.append(Printed(head=lines, shown=table))
    return parts
