"""``countperf report``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from countperf.cli.common import as_dict, print_json
from countperf.cli.predict import accesses_of
from countperf.documents import check_writable, read_file_text, write_atomically
from countperf.errors import CountperfError, ParameterError
from countperf.fitting.ranking import RankingEvaluation
from countperf.measurements import MeasurementSet, measurements_in
from countperf.metrics import Evaluation
from countperf.models.explanation import explain
from countperf.models.library import find_fit, load_weights, short_name
from countperf.report.pages import (
    ExplainedKernel,
    fit_page,
    kernel_page,
    search_page,
)
from countperf.tuning.journal import read_journal
from countperf.tuning.lines import RankingLine, TriedLine
from countperf.tuning.result import as_key
from countperf.workflow.devices import known_device
from countperf.workflow.evaluating import evaluate, evaluate_ranking
from countperf.workflow.prediction import Target, predict_in_detail

if TYPE_CHECKING:
    from countperf.measurements import MeasurementSet
    from countperf.metrics import Evaluation
    from countperf.models.library import NamedFit
    from countperf.models.weights import WeightSet
    from countperf.report.page import Page
    from countperf.report.pages import ExplainedKernel


_SHOWN_KERNELS = 4


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
        stored = fit.folder / f"{kind}ranking.json"
        evaluation = _stored_evaluation(fit.folder / f"{kind}evaluation.json")
        ranking = RankingEvaluation.read_file(stored) if stored.is_file() else None
        campaign = measurements_in(fit.folder)
        measured = MeasurementSet.read_file(campaign) if campaign.is_file() else None
    return fit_page(
        weights,
        device=known_device(weights.device.slug, options.what),
        evaluation=evaluation,
        ranking=ranking,
        kernels=() if measured is None else _test_kernels(weights, measured),
    )


def _stored_evaluation(path: Path) -> Evaluation | None:
    return Evaluation.read_file(path) if path.is_file() else None


def _test_kernels(weights: WeightSet, measured: MeasurementSet) -> tuple[ExplainedKernel, ...]:
    """Explain the test kernels of a campaign, each at the size that took longest."""
    longest = {
        each.kernel: each
        for each in sorted(measured, key=lambda m: m.time_s)
        if each.purpose == "test"
    }
    found: list[ExplainedKernel] = []
    for each in longest.values():
        vector = each.property_vector()
        if vector is None or len(found) == _SHOWN_KERNELS:
            continue
        try:
            prediction = weights.predict_counts(vector, each.parameters)
            explanation = explain(weights, vector, prediction)
        except CountperfError:  # no weight for what it does: the page shows others
            continue
        found.append(ExplainedKernel(explanation=explanation, measured_s=each.time_s))
    return tuple(found)


def _kernel_page(options: argparse.Namespace) -> Page:
    sizes = as_dict(options.parameters)
    statistics = as_dict(options.statistics) or None
    made = predict_in_detail(
        options.what,
        sizes,
        Target(weights=options.weights, model=options.model, device=options.device),
        statistics=statistics,
    )
    explanation = explain(made.weights, made.vector, made.prediction)
    device = known_device(made.weights.device.slug, options.weights)
    accesses = accesses_of(options.what, sizes, statistics, made.prediction)
    return kernel_page(ExplainedKernel(explanation=explanation), made.weights, device, accesses)


def _search_page(path: Path) -> Page:
    header, entries = read_journal(path)
    tried = {as_key(e.choice): e.trial() for e in entries if isinstance(e, TriedLine)}
    rankings = [entry for entry in entries if isinstance(entry, RankingLine)]
    ranking = None
    if rankings:
        ranking = rankings[-1].ranking(header.space, header.sizes, header.device.slug)
    return search_page(header.space, header.device, header.sizes, tuple(tried.values()), ranking)
