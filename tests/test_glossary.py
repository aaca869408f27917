"""The glossary has an entry for each name that a user can see; the names come from the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

import countperf
from countperf.counting.structure import issue
from countperf.counting.structure import site_keys as keys
from countperf.counting.taxonomy import PROPERTY_ROOTS, VIEWS
from countperf.measuring.cases import Purpose
from countperf.mechanistic.predict_all import model_names
from countperf.mechanistic.profile import Bound
from countperf.models.definition import Resource
from countperf.models.explanation import doubt
from countperf.models.labels import plain_name, read_labels
from countperf.models.library import list_fits, load_weights
from countperf.models.metrics import TOP
from countperf.models.weights import WeightSet
from tests.models.builders import make_weight

ROOT = Path(countperf.__file__).parent
GLOSSARY = ROOT.parent / "docs" / "glossary.md"


TEXT = GLOSSARY.read_text(encoding="utf-8")
TERMS = re.findall(r"^(\S.*)\n: ", TEXT, re.MULTILINE)
CELLS = re.compile(r"^\| (?!---)(.*?) \|", re.MULTILINE)
LABELS = {label.strip("`*") for cell in CELLS.findall(TEXT) for label in cell.split("<br>")}


def _entries() -> set[str]:
    """Return the terms that the glossary explains, and words that it explains with them."""
    explained = re.findall(r"^(?:purpose|view)\n: ((?:.|\n  )*)", TEXT, re.MULTILINE)
    return LABELS | {
        *(word.strip("` ") for term in TERMS for word in term.split(",")),
        *(word for text in explained for word in re.findall(r"[\w-]+", text)),
    }


def _verdicts() -> Iterator[str]:
    """Yield the names of all verdicts that the package makes."""
    for path in ROOT.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "Verdict(" in text else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Verdict":
                for keyword in node.keywords:
                    if keyword.arg == "name" and isinstance(keyword.value, ast.Constant):
                        yield str(keyword.value.value)


def _titles() -> Iterator[str]:
    """Yield the titles of columns that the package states as constants."""
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            function = ast.unparse(node.func).rpartition(".")[2]
            given = [*node.args[:1], *(word.value for word in node.keywords)]
            for value in given if function in ("Column", "columns_of", "Table") else ():
                try:
                    titles = ast.literal_eval(value)
                except ValueError:  # no constant
                    continue
                if function == "columns_of":
                    yield from (n.removesuffix("_s").replace("_", " ") for n in titles.split())
                elif isinstance(titles, str):
                    yield titles
                elif isinstance(titles, tuple):
                    yield from (title for title in titles if isinstance(title, str))


@cache
def _weights() -> tuple[WeightSet, ...]:
    """Return the weights of all shipped models."""
    return tuple(
        load_weights(fit.name, model=model) for fit in list_fits().values() for model in fit.models
    )


def _resources() -> tuple[str, ...]:
    return tuple(resource for some in get_args(Resource) for resource in get_args(some))


def _shipped() -> tuple[str, ...]:
    return tuple(sorted({model for fit in list_fits().values() for model in fit.models}))


NAMES: dict[str, Callable[[], tuple[str, ...]]] = {
    "roots of properties": lambda: tuple(sorted(PROPERTY_ROOTS)),
    "contexts": lambda: get_args(keys.Context),
    "placements": lambda: get_args(keys.Placement),
    "steps": lambda: keys.BESIDE,
    "events": lambda: ("idle", "carried", "iterations", "entries", "passes"),
    "units": lambda: get_args(issue.Unit),
    "issued accesses": lambda: get_args(issue.Serving),
    "issued events": lambda: get_args(issue.IssuedEvents),
    "views": lambda: VIEWS,
    "purposes": lambda: get_args(Purpose),
    "fitted models": _shipped,
    "mechanistic models": model_names,
    "features of shipped weights": lambda: tuple(
        {plain_name(feature) for weights in _weights() for feature in weights.by_feature}
    ),
    "terms": lambda: tuple({term for weights in _weights() for term in weights.definition.terms}),
    "labels without fields": lambda: tuple(
        {*read_labels()[1]["others"].values(), *read_labels()[1]["single"].values()}
    ),
    "resources": _resources,
    "bounds": lambda: get_args(Bound),
    "columns": lambda: tuple({*_titles()} - {""}),
    "figures of rankings": lambda: tuple(f"top {top}" for top in TOP),
    "remarks on weights": lambda: tuple(
        doubt(make_weight("groups", value, standard_error_s=1.0)) for value in (-1.0, 0.0, 1.0)
    ),
    "verdicts": lambda: tuple(sorted(set(_verdicts()))),
}
"""Functions that return the names of a kind; called when its test runs."""


@pytest.mark.parametrize("kind", NAMES)
def test_every_name_has_an_entry(kind: str) -> None:
    names = NAMES[kind]()
    assert names
    assert not set(names) - _entries()


@pytest.mark.parametrize("resource", _resources())
def test_parts_of_a_time_are_explained_under_the_heading_of_their_resource(resource: str) -> None:
    section = TEXT.partition(f"\n### {resource}\n")[2].partition("\n#")[0]
    labels = {label for cell in CELLS.findall(section) for label in cell.split("<br>")}
    parts = {f for weights in _weights() for f, of in weights.resources.items() if of == resource}
    assert f"**{resource}**" in labels
    assert {*map(plain_name, parts & {f for w in _weights() for f in w.by_feature})} <= labels


def test_there_are_few_terms() -> None:
    assert len(TERMS) <= 80
