"""Functions have at most 60 lines; the longer ones are listed, each with its reason."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST = 60

LONGER = {
    "countperf.mechanistic.mwp_cwp:mwp_cwp_cycles": "the formulas of the paper, one after another",
    "countperf.mechanistic.simulation_core:in_order": "Numba compiles it as one function",
}


def _lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count the lines of a function's body, its docstring left out."""
    first = function.body[0]
    begins = first.lineno
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        begins = int(first.end_lineno or first.lineno) + 1
    return int(function.end_lineno or begins) - begins + 1


@cache
def _longer() -> dict[str, int]:
    found: dict[str, int] = {}
    for package in ("countperf", "measurement_kernels"):
        for path in (ROOT / package).rglob("*.py"):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    found[f"{module}:{node.name}"] = _lines(node)
    return {name: lines for name, lines in found.items() if lines > MOST}


def test_lines_are_counted_without_the_docstring() -> None:
    text = 'def f():\n    """One.\n\n    Two.\n    """\n    a = 1\n    return a'
    (function,) = ast.parse(text).body
    assert isinstance(function, ast.FunctionDef)

    assert _lines(function) == 2


def test_functions_are_short() -> None:
    assert _longer().keys() <= LONGER.keys()


def test_no_exception_is_listed_that_is_none() -> None:
    assert LONGER.keys() <= _longer().keys()
