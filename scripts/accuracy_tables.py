"""Markdown tables of the committed fits: their making, accuracy and rankings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import geometric_mean
from typing import TYPE_CHECKING

from countperf.models.metrics import PURPOSES, Evaluation
from countperf.models.shipped import COMPILED, LINEAR, STRUCTURAL
from countperf.models.weights import WeightSet
from countperf.text import format_percent, width_text

if TYPE_CHECKING:
    from countperf.models.metrics import RankedSet, RankingEvaluation

_TOP = (1, 5)
_KINDS = (STRUCTURAL, COMPILED)
_IN_WORDS = {
    LINEAR.name: "the paper's fit (linear)",
    STRUCTURAL: "default model (structural)",
    COMPILED: "machine code (compiled)",
}


def fits_markdown(fits: Mapping[str, Sequence[WeightSet]]) -> str:
    """Write what each device's weights were fitted to, and how far off left-out classes are."""
    numbers = ("weights", "left-out error", "factor")
    titles = ["device", "classes", "cases", "unsettled", *numbers]
    titles += [f"machine code: {title}" for title in numbers]
    rows = [titles, ["---", *["---:"] * (len(titles) - 1)]]
    for device, weights in fits.items():
        source = weights[0].source
        if source is None:
            continue
        counts = (len(source.families), source.cases, source.unstable_cases)
        cells = [device, *map(str, counts)]
        for each in weights:
            cells += _left_out_cells(each)
        rows.append(cells + [""] * (len(titles) - len(cells)))
    return _markdown(rows)


def _left_out_cells(weights: WeightSet) -> list[str]:
    error = getattr(weights.quality, "held_out_error", None)
    factor = getattr(weights.quality, "held_out_factor", None)
    shown = "" if error is None else format_percent(error)
    return [str(len(weights.weights)), shown, "" if factor is None else f"{factor:.2f}"]


def accuracy_markdown(evaluations: Sequence[Evaluation]) -> str:
    """Write the mean errors, in percent, as three Markdown tables.

    The first has a column for each device, and for each model the means of test kernels,
    applications and variants, and how many of all cases lie in their 90 % intervals, and how wide
    these are: the median factor by which their ends lie from the middle. The second has a row for
    each test kernel and application: means over the devices of a runtime, by two models. The third
    is that of the paper's test kernels.
    """
    devices, known = _by_model(evaluations)
    models = list(dict.fromkeys(model for model, _ in known))
    models.sort(key=lambda model: _KINDS.index(model) if model in _KINDS else 2)
    rows = [["mean error, %", *devices], ["---", *["---:"] * len(devices)]]
    for model in models:
        rows += _means([known.get((model, device)) for device in devices], f", {model}")
    runtimes = list(dict.fromkeys(device.partition("-")[0] for device in devices))
    columns = [(runtime, model) for runtime in runtimes for model in _KINDS]
    errors = [_errors(known, *column) for column in columns]
    kernels = [["mean error, %", *map(", ".join, columns)], ["---", *["---:"] * len(columns)]]
    for kernel in errors[0]:
        cells = (_percent(geometric_mean(e[kernel])) if kernel in e else "" for e in errors)
        kernels.append([kernel, *cells])
    return f"{_markdown(rows)}\n\n{_markdown(kernels)}\n\n{paper_markdown(evaluations)}"


def paper_markdown(evaluations: Sequence[Evaluation], *, by_kernel: bool = True) -> str:
    """Write the mean errors, in percent, of the paper's model and ours on the paper's test kernels.

    A column for each device; a row for each model and kernel, or for all kernels together.
    """
    devices, known = _by_model(evaluations)
    devices = [device for device in devices if all((m, device) in known for m in _IN_WORDS)]
    rows = [["mean error, %", *devices], ["---", *["---:"] * len(devices)]]
    for model, words in _IN_WORDS.items():
        tested = [known[model, device].by_purpose()["test"] for device in devices]
        if not by_kernel:
            rows.append([words, *(_percent(each.overall().value) for each in tested)])
            continue
        means = [each.by_kernel() for each in tested]
        for kernel in dict.fromkeys(known for mean in means for known in mean):
            name = f"{kernel.split('/')[0]}, {model}"
            rows.append([name, *(_percent(m[kernel].value) if kernel in m else "–" for m in means)])
    return _markdown(rows)


def _by_model(
    evaluations: Sequence[Evaluation],
) -> tuple[list[str], dict[tuple[str, str], Evaluation]]:
    """Return the devices, and the evaluations by model and device."""
    known = {(_short(each.model), each.device): each for each in evaluations}
    return list(dict.fromkeys(each.device for each in evaluations)), known


def _errors(
    known: Mapping[tuple[str, str], Evaluation], runtime: str, model: str
) -> dict[str, list[float]]:
    """Return the errors of each test kernel and application on the devices of a runtime."""
    errors: dict[str, list[float]] = {}
    for (name, device), evaluation in known.items():
        if name != model or not device.startswith(runtime):
            continue
        for purpose, part in evaluation.by_purpose().items():
            for kernel, mean in part.by_kernel().items() if purpose != "variant" else ():
                errors.setdefault(kernel, []).append(mean.value)
    return errors


def _means(evaluations: Sequence[Evaluation | None], suffix: str) -> list[list[str]]:
    by_purpose = [{} if e is None else e.by_purpose() for e in evaluations]
    rows = [
        [
            f"{plural}{suffix}",
            *(_percent(m[purpose].overall().value) if purpose in m else "" for m in by_purpose),
        ]
        for purpose, plural in PURPOSES.items()
        if any(purpose in means for means in by_purpose)
    ]
    held = ["" if e is None else _held(e) for e in evaluations]
    return [*rows, [f"90 % intervals{suffix}", *held]] if any(held) else rows


def _percent(share: float) -> str:
    return format_percent(share).removesuffix(" %")


def _held(evaluation: Evaluation) -> str:
    inside, of = evaluation.coverage()
    factor = evaluation.interval_factor()
    return "" if factor is None else f"{_percent(inside / of)} of {of}, {width_text(factor)}"


def ranking_markdown(rankings: Sequence[RankingEvaluation], *, by_set: bool = True) -> str:
    """Write how well variants are put in order as a Markdown table: a row for each device and set.

    Kendall's tau, and the time of the best of the 1 and 5 variants that are predicted to be
    fastest, as a multiple of the fastest one's.
    """
    numbers = ["tau", *(f"top {k}" for k in _TOP)]
    rows = [
        ["device, model", *(["set"] if by_set else []), "variants", *numbers],
        ["---", *(["---"] if by_set else []), *["---:"] * (1 + len(numbers))],
    ]
    for each in rankings:
        label = f"{each.device}, {_short(each.model)}"
        for ranked in each.sets if by_set else ():
            size = [f", {name} = {value}" for name, value in ranked.parameters.items()][:1]
            name = "".join([ranked.family.removeprefix("variants-"), *size])
            rows.append([label, name, str(len(ranked.variants)), *_ranking_cells(ranked)])
        number = sum(len(ranked.variants) for ranked in each.sets)
        overall = ["**all**"] if by_set else []
        rows.append([label, *overall, str(number), *_ranking_cells(each)])
    return _markdown(rows)


def _ranking_cells(of: RankedSet | RankingEvaluation) -> list[str]:
    figures = (of.kendall_tau, *map(of.regret, _TOP))
    return ["" if figure is None else f"{figure:.2f}" for figure in figures]


def _short(model: str) -> str:
    return next((kind for kind in _KINDS if model.startswith(f"{kind}-")), model)


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)
