"""The glossary has an entry for each name that a user can see; the names come from the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

import pytest

import countperf
from countperf.counting.structure import issue
from countperf.counting.structure import site_keys as keys
from countperf.counting.taxonomy import PROPERTY_ROOTS, VIEWS
from countperf.measuring.cases import Purpose
from countperf.mechanistic.predict_all import model_names
from countperf.models.library import list_fits

ROOT = Path(countperf.__file__).parent
GLOSSARY = ROOT.parent / "docs" / "glossary.md"


TEXT = GLOSSARY.read_text(encoding="utf-8")
TERMS = re.findall(r"^(\S.*)\n: ", TEXT, re.MULTILINE)


def _entries() -> set[str]:
    """Return the terms that the glossary explains, and words that it explains with them."""
    explained = re.findall(r"^(?:purpose|view)\n: ((?:.|\n  )*)", TEXT, re.MULTILINE)
    return {
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
    "verdicts": lambda: tuple(sorted(set(_verdicts()))),
}
"""Functions that return the names of a kind; called when its test runs."""


@pytest.mark.parametrize("kind", NAMES)
def test_every_name_has_an_entry(kind: str) -> None:
    names = NAMES[kind]()
    assert names
    assert not set(names) - _entries()


def test_there_are_few_terms() -> None:
    assert len(TERMS) <= 80
