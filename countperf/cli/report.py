"""``countperf report``: pages of fits, kernels and searches."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from countperf import __version__, figures
from countperf.api.evaluation import evaluate, evaluate_ranking
from countperf.api.fits import look_up_device
from countperf.api.prediction import choose_weights, explain
from countperf.cli.common import as_dict, pick_options, show
from countperf.errors import ParameterError
from countperf.measuring import MeasurementSet
from countperf.models.explanation import weight_rows, weights_table
from countperf.models.labels import read_meanings
from countperf.models.library import NamedFit, find_fit, load_weights, short_name
from countperf.models.metrics import Evaluation, RankingEvaluation
from countperf.models.predictions import prediction_head
from countperf.store import check_writable, read_file_text, write_atomically
from countperf.text import Printed, Row, format_quantity, point_text
from countperf.tuning.result import fastest_of, read_journal

Part = Printed | tuple[str, Any]  # a result, or a picture with its description


class Page(NamedTuple):
    """A page."""

    title: str
    lead: Sequence[str]  # the most important lines
    sections: Mapping[str, Sequence[Part]]  # by heading; empty ones are left out

    def to_html(self) -> str:
        """Return the page as an HTML document that needs no other file."""
        links: list[str] = []
        sections: list[str] = []
        for number, (title, parts) in enumerate(self.sections.items()):
            if parts:
                anchor, text = re.sub(r"[^a-z0-9]+", "-", title.lower()), escape(title)
                links.append(f'<a href="#{anchor}">{text}</a>')
                sections += [
                    f'<section id="{anchor}">\n<h2>{text}</h2>',
                    *(_html(part, f"s{number}p{index}-") for index, part in enumerate(parts)),
                    "</section>",
                ]
        template = files("countperf.cli").joinpath("templates/page.html").read_text("utf-8")
        return Template(template).substitute(
            title=escape(self.title),
            lead="\n".join(f'<p class="lead">{escape(line)}</p>' for line in self.lead),
            links="".join(links),
            sections="\n".join(sections),
            version=__version__,
        )


def _html(part: Part, prefix: str) -> str:
    """Return a part; the names in a drawing differ from those of all others of the page."""
    if isinstance(part, Printed):
        first = replace(part, rows=(), parts=()) if part.parts else part
        shown = "\n".join(each.html(10_000) for each in (first, *part.parts))
        return f'<div class="wide">{shown}</div>'
    text, figure = part
    figure.set_size_inches(5.2, figure.get_size_inches()[1])  # its words can be read on a phone
    svg = re.sub(r'\bid="', f'id="{prefix}', figures.svg_text(figure))
    svg = re.sub(r'(xlink:href|href)="#', rf'\1="#{prefix}', svg)
    svg = svg.replace("url(#", f"url(#{prefix}")
    return f'<figure role="img" aria-label="{escape(text)}">{svg}</figure>'


def run_report(options: argparse.Namespace) -> None:
    """Write the page."""
    figures.check_figure_path("page.svg")  # before the work: matplotlib may be missing
    check_writable(options.output)
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
    size = len(text.encode(errors="backslashreplace"))
    facts = {"written": options.output, "title": page.title, "bytes": size}
    show(options, Printed(head=[f"{page.title}: written to {options.output}"], facts=facts))


def _is_document(what: str, format_name: str) -> bool:
    """Return whether a file says that it is of a format; a kernel's counts are in a file, too."""
    return what.endswith(".json") and f'"{format_name}"' in read_file_text(Path(what))[:4096]


def _fit_page(options: argparse.Namespace, fit: NamedFit | None) -> Page:
    chosen = choose_weights(options.what, model=options.model)
    weights, choice = chosen.weights, chosen.why
    parts: list[Part] = []
    judgements: list[Evaluation | RankingEvaluation] = []
    if options.measurements is not None:
        measured = MeasurementSet.read_file(options.measurements)
        evaluation = evaluate(measured, weights=options.what, model=options.model)
        ranking = evaluate_ranking(measured, weights=options.what, model=options.model)
        judgements, choice = [evaluation, ranking], ""
        if evaluation.model != weights.model:
            weights = load_weights(options.what, model=short_name(evaluation.model))
    elif fit is not None:
        model = short_name(weights.model)
        kind = "" if fit.path_of(model) == fit.default else f"{model}-"
        for name, read in (("evaluation", Evaluation), ("ranking", RankingEvaluation)):
            path = fit.folder / f"{kind}{name}.json"
            judgements += [read.read_file(path)] if path.is_file() else []
    for judgement in judgements:
        if isinstance(judgement, Evaluation):
            parts.append(("predicted over measured times", figures.evaluation_figure(judgement)))
        parts.append(judgement.lay_out())
    lead = [f"{short_name(weights.model)} model, fitted for {weights.device.name}"]
    rates = [Printed(shown=weights_table(weights))]
    words = [_explain_words(weight_rows(weights))]
    return Page(
        f"Fit of {weights.device.slug}",
        [*lead, choice] if choice else lead,
        {"Accuracy": parts, "Weights as rates": rates, "Words": words},
    )


def _kernel_page(options: argparse.Namespace) -> Page:
    explained = explain(
        options.what,
        as_dict(options.parameters),
        statistics=as_dict(options.statistics) or None,
        **pick_options(options, "weights", "model", "device"),
    )
    made = explained.prediction
    device = look_up_device(made.device, options.weights)
    drawn: list[Part] = [("where the time goes", figures.prediction_figure(made))]
    if explained.flops > 0 and explained.global_bytes > 0:
        drawn.append(("roofline", figures.roofline_figure(explained, device)))
    title = ", ".join(filter(None, [made.kernel, point_text(made.parameters)]))
    shown, head = explained.lay_out(device), prediction_head(made)
    shown = replace(shown, head=shown.head[len(head) :])
    sections = {"Where the time goes": [*drawn, shown], "Words": [_explain_words(shown.rows)]}
    return Page(title, head, sections)


def _explain_words(rows: Sequence[Row]) -> Printed:
    """Give what the glossary says of labels of parts of a time, by resource."""
    said = read_meanings()
    words = {row[kind]: row["group"] for row in rows for kind in ("group", "name")}
    ordered = sorted((of, name != of, name) for name, of in words.items() if name in said)
    made = [{"resource": of, "part": name, "meaning": said[name]} for of, _, name in ordered]
    return Printed(rows=made)


def _search_page(path: Path) -> Page:
    header, tried = read_journal(path)
    if not tried:
        message = f"no variant of {header.space} has run: there is nothing to report yet"
        raise ParameterError(message, parameter="search")
    slug, winner = header.device.slug, fastest_of(tried)
    said = f", with statistics {point_text(header.statistics)}" if header.statistics else ""
    rows = [
        {
            "variant": point_text(trial.choice),
            "time": format_quantity(trial.time_s, "s"),
            "predicted": format_quantity(trial.predicted_s, "s"),
            "cut short": trial.cut_short,
        }
        for trial in sorted(tried, key=lambda trial: trial.time_s)
    ]
    drawn = figures.variants_figure(tried, f"{header.space} on {slug}")
    return Page(
        f"Search for the fastest {header.space}, {point_text(header.sizes)}",
        [
            f"{format_quantity(winner.time_s, 's')}: {point_text(winner.choice)}",
            f"{len(tried)} variants ran on {slug}{said}",
        ],
        {
            "Progress": [("measured over predicted", drawn)],
            "Variants that ran": [Printed(rows=rows)],
        },
    )
