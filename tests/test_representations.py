"""Representations of every class that a public function leads to: at most 25 short lines."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import pkgutil
import sys
import types
import typing
from collections import ChainMap
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

import countperf
from countperf.display import MOST_LINES, ShortRepr
from countperf.errors import MissingExtraError
from tests.test_display import RESULTS

PLAIN = (bool, int, float, complex, str, type(None), Path, np.dtype)
WIDEST = 200


@cache
def _every_class() -> Mapping[str, type]:
    """Return the classes of the package by name: those that annotations may name."""
    found: dict[str, type] = {}
    for module in pkgutil.walk_packages(countperf.__path__, "countperf."):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except (MissingExtraError, ModuleNotFoundError) as error:
                if str(getattr(error, "name", "")).startswith("countperf"):
                    raise
    for name, module in list(sys.modules.items()):
        if name.startswith("countperf"):
            found |= {k: v for k, v in vars(module).items() if inspect.isclass(v)}
    return found


def _hints(value: Any) -> dict[str, Any]:
    """Return what a function returns and takes, or the fields of a class, by name."""
    every: dict[str, Any] = {**typing.__dict__, **_every_class()}
    kinds = value.__mro__ if inspect.isclass(value) else (value,)
    found: dict[str, Any] = {}
    for kind in reversed(kinds):
        own = vars(sys.modules[kind.__module__])
        for name, text in inspect.get_annotations(kind).items():
            try:
                found[name] = (
                    eval(text, None, ChainMap(own, every)) if isinstance(text, str) else text
                )
            except (NameError, TypeError):
                found[name] = None  # a type alias that is there for type checkers alone
    return found


def _classes_in(hint: Any) -> Iterator[type]:
    if inspect.isclass(hint) and not typing.get_args(hint):
        yield hint
    for part in (typing.get_origin(hint), *typing.get_args(hint), getattr(hint, "__bound__", None)):
        if part is not None:
            yield from _classes_in(part)


def _public_functions() -> Iterator[Any]:
    for name in countperf.__all__:
        yield getattr(countperf, name)
    for module in pkgutil.iter_modules(importlib.import_module("countperf.workflow").__path__):
        home = importlib.import_module(f"countperf.workflow.{module.name}")
        for name, value in vars(home).items():
            if not name.startswith("_") and getattr(value, "__module__", "") == home.__name__:
                yield value


def _led_to(kind: type) -> Iterator[type]:
    """Yield the classes of a class's fields, and of what its methods return."""
    for name, hint in _hints(kind).items():
        if not name.startswith("_"):
            yield from _classes_in(hint)
    for name, value in vars(kind).items():
        function = getattr(value, "fget", None) or getattr(value, "__func__", value)
        if not name.startswith("_") and inspect.isfunction(function):
            yield from _classes_in(_hints(function).get("return"))


@cache
def _reachable() -> dict[str, type]:
    """Return the classes of the package that public functions return, lead to, or are."""
    waiting: list[type] = []
    for value in _public_functions():
        if inspect.isclass(value):
            waiting.append(value)
        elif inspect.isfunction(value):
            waiting += _classes_in(_hints(value).get("return"))
    found: dict[str, type] = {}
    while waiting:
        kind = waiting.pop()
        name = f"{kind.__module__}.{kind.__name__}"
        if kind.__module__.startswith("countperf.") and name not in found:
            found[name] = kind
            waiting += _led_to(kind)
    return found


def _is_small(hint: Any, depth: int = 0) -> bool:
    """Whether what is annotated so is written in few characters: no collection, no large object."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal or hint in PLAIN:
        return True
    if origin in (typing.Union, types.UnionType):
        return all(_is_small(part, depth) for part in parts)
    if origin is tuple:
        return Ellipsis not in parts and all(_is_small(part, depth) for part in parts)
    if inspect.isclass(hint) and issubclass(hint, enum.Enum):
        return True
    return dataclasses.is_dataclass(hint) and depth < 1 and _has_few_fields(hint, depth + 1)


def _has_few_fields(kind: Any, depth: int = 0) -> bool:
    hints = _hints(kind)
    shown = [field.name for field in dataclasses.fields(kind) if field.repr]
    return all(_is_small(hints[name], depth) for name in shown)


def _is_generated(kind: Any) -> bool:
    """Whether ``repr`` is the one that dataclasses or pydantic write, which has all there is."""
    return hasattr(kind.__repr__, "__wrapped__") or kind.__repr__ is BaseModel.__repr__


def test_the_classes_of_results_are_found() -> None:
    found = {name.rpartition(".")[2] for name in _reachable()}
    known = {name.partition(" ")[0] for name in RESULTS}
    assert known - {"RankingEvaluation", "Comparison"} <= found
    assert {"CalibrationResult", "TransferFit", "TuningResult", "Trial", "Timing"} <= found
    assert len(found) > 100


@pytest.mark.parametrize("name", sorted(_reachable()))
def test_no_class_writes_all_that_it_has(name: str) -> None:
    kind: Any = _reachable()[name]
    if not dataclasses.is_dataclass(kind) and not issubclass(kind, BaseModel):
        return
    if _is_generated(kind):
        assert dataclasses.is_dataclass(kind)
        assert _has_few_fields(kind), (
            f"the repr of {name} has all of its fields, some of which may be large:"
            " derive it from countperf.display.ShortRepr"
        )


HTML = "_repr_html_"
LARGE: tuple[Any, ...] = (
    *("x" * 10**5, "a\n" * 1000, tuple(range(10**5)), dict.fromkeys(range(10**4), "b\n")),
    *(np.zeros((100, 100)), {"a": {"b": {"c": ["d"] * 100}}}, frozenset(range(1000))),
)


@pytest.mark.parametrize(
    "name", sorted(name for name, kind in _reachable().items() if issubclass(kind, ShortRepr))
)
def test_fields_of_any_size_are_shown_in_few_short_lines(name: str) -> None:
    kind: Any = _reachable()[name]
    for value in LARGE:
        shown = object.__new__(kind)
        for field in dataclasses.fields(kind):
            object.__setattr__(shown, field.name, value)
        lines = repr(shown).splitlines()
        assert len(lines) <= MOST_LINES
        assert max(map(len, lines)) <= WIDEST
        assert lines[0].startswith(kind.__name__)
        if getattr(kind, HTML) is getattr(ShortRepr, HTML):
            table = getattr(shown, HTML)()
            assert table.count("<tr>") == sum(field.repr for field in dataclasses.fields(kind))
            assert len(table) <= WIDEST * (table.count("<tr>") + 1)


def test_documents_of_any_size_are_shown_in_few_short_lines() -> None:
    kinds = [kind for kind in _reachable().values() if issubclass(kind, BaseModel)]
    assert len(kinds) > 10
    for kind in kinds:
        for value in LARGE:
            shown = kind.model_construct(**dict.fromkeys(kind.model_fields, value))
            if "_text" in str(kind.__repr__.__code__.co_names):
                continue  # written from its values, by a function that is tested with real ones
            lines = repr(shown).splitlines()
            assert len(lines) <= MOST_LINES
            assert max(map(len, lines)) <= WIDEST
