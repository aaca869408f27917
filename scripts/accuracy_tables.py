"""Markdown tables of the committed fits: their making, accuracy, rankings and searches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from countperf.metrics import Evaluation
from countperf.models.shipped import COMPILED, STRUCTURAL
from countperf.models.weights import WeightSet
from countperf.report.rows import PURPOSES, cell, format_percent, width_text

if TYPE_CHECKING:
    from countperf.fitting.judging import RankedSet, RankingEvaluation

_TOP = (1, 5)


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
    quality = weights.quality
    error = None if quality is None else quality.held_out_error
    factor = None if quality is None else quality.held_out_factor
    return [
        str(len(weights.weights)),
        "" if error is None else cell("error", error),
        "" if factor is None else f"{factor:.2f}",
    ]


def accuracy_markdown(evaluations: Sequence[Evaluation]) -> str:
    """Write the mean errors of devices and models as a Markdown table.

    Kernels go down, by purpose, with their geometric mean (of variants only that), and devices
    across: by the `structural` models, or by the first model, if none is of that name. At last how
    many of all cases lie in their 90 % intervals, and how wide these are: the median factor by
    which their ends lie from the middle. Of other models means alone follow below.
    """
    devices = list(dict.fromkeys(each.device for each in evaluations))
    models = list(dict.fromkeys(_short(each.model) for each in evaluations))
    first = (STRUCTURAL, COMPILED)
    models.sort(key=lambda model: first.index(model) if model in first else len(first))
    known = {(each.device, _short(each.model)): each for each in evaluations}
    rows = [["kernel", *devices], ["---", *["---:"] * len(devices)]]
    for number, model in enumerate(models):
        found = [known.get((device, model)) for device in devices]
        rows += _accuracy_rows(found, "" if number == 0 else f", {model}")
    return _markdown(rows)


def _accuracy_rows(evaluations: Sequence[Evaluation | None], suffix: str) -> list[list[str]]:
    """Return the rows of a model; those of single kernels if it has no suffix."""
    rows: list[list[str]] = []
    by_purpose = [{} if each is None else each.by_purpose() for each in evaluations]
    for purpose, plural in PURPOSES.items():
        parts = [found.get(purpose) for found in by_purpose]
        means = [{} if part is None else part.by_kernel() for part in parts]
        kernels = dict.fromkeys(kernel for found in means for kernel in found)
        if not kernels:
            continue
        if purpose != "variant" and not suffix:
            rows += [
                [kernel, *(format_percent(m[kernel].value) if kernel in m else "" for m in means)]
                for kernel in kernels
            ]
        overall = ["" if part is None else format_percent(part.overall().value) for part in parts]
        rows.append([f"**{plural}**{suffix}", *overall])
    held = ["" if each is None else _held(each) for each in evaluations]
    rows.append([f"cases in their 90 % intervals, half-width{suffix}", *held])
    return rows


def _held(evaluation: Evaluation) -> str:
    inside, of = evaluation.coverage()
    factor = evaluation.interval_factor()
    return "" if factor is None else f"{format_percent(inside / of)} of {of}, {width_text(factor)}"


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
        if by_set:
            rows += [
                [
                    label,
                    found.family.removeprefix("variants-") + _size(found),
                    str(len(found.variants)),
                    *_ranking_cells(found),
                ]
                for found in each.sets
            ]
        number = sum(len(found.variants) for found in each.sets)
        overall = ["**all**"] if by_set else []
        rows.append([label, *overall, str(number), *_ranking_cells(each)])
    return _markdown(rows)


def _ranking_cells(of: RankedSet | RankingEvaluation) -> list[str]:
    taus = [cell("kendall_tau", of.kendall_tau)]
    return [*taus, *(cell("regret_top_", of.regret(top)) for top in _TOP)]


def _size(found: RankedSet) -> str:
    return "".join(f", {name} = {value}" for name, value in list(found.parameters.items())[:1])


def _short(model: str) -> str:
    kinds = (STRUCTURAL, COMPILED)
    return next((kind for kind in kinds if model.startswith(f"{kind}-")), model)


def tuning_markdown(benchmarks: Sequence[Mapping[str, Any]]) -> str:
    """Write what searches found as a Markdown table: a row for each device and search."""
    families = list(dict.fromkeys(name for each in benchmarks for name in each["families"]))
    rows = [
        ["device", "search", *families, "geometric mean"],
        ["---", "---", *["---:"] * (len(families) + 1)],
    ]
    for each in benchmarks:
        for search, mean in each["geometric_mean"].items():
            found = [
                format_percent(each["families"][name]["quality"][search])
                if name in each["families"]
                else ""
                for name in families
            ]
            rows.append([each["device"]["slug"], search, *found, format_percent(mean)])
    return _markdown(rows)


def tuning_means_markdown(benchmarks: Sequence[Mapping[str, Any]]) -> str:
    """Write geometric means over the families as a Markdown table: a row for each search.

    Devices go across; otherwise as `tuning_markdown`.
    """
    means: dict[str, dict[str, float]] = {}
    for each in benchmarks:
        for search, mean in each["geometric_mean"].items():
            means.setdefault(search, {})[each["device"]["slug"]] = mean
    devices = sorted({device for found in means.values() for device in found})
    rows = [["search", *devices], ["---", *["---:"] * len(devices)]]
    for search, found in means.items():
        cells = (format_percent(found[device]) if device in found else "" for device in devices)
        rows.append([search, *cells])
    return _markdown(rows)


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)
