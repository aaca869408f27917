"""Imports inside functions are few and of known kinds; modules imported by name are listed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("countperf", "measurement_kernels")
MOST_INSIDE = 60

OPTIONAL = {
    "fcntl": "Windows has none",
    "kernel_tuner": "extra 'tuners'",
    "matplotlib": "extra 'plot'",
    "optuna": "extra 'tuners'",
    "triton": "not a dependency",
}
"""Packages that need not be there: extras, and parts of some systems only."""

SLOW = {"pandas": 0.18, "scipy": 0.15}
"""Packages that take long to import and that few calls need, with their time, s of processor."""

LIGHT = {
    "countperf": "importing the package is cheap",
    "countperf.caches": "importing the package is cheap",
    "countperf.cli.predict": "plain predictions import no mechanistic model",
    "countperf.cli.parsing": "the help is made without Loopy and NumPy",
    "countperf.features": "weights are loaded without Loopy and isl",
    "countperf.harness.cuda.backend": "devices are listed without Loopy",
    "countperf.harness.nvcc": "devices are listed without Loopy",
    "countperf.harness.devices": "measurements are read without pyopencl and CuPy",
    "countperf.measurements.cases": "measurements are read without Loopy",
    "countperf.measurements.lines": "measurements are read without isl",
    "countperf.measurements.sets": "weights are loaded without readers of tables",
    "countperf.measurements.tables": "measurements are read without Loopy and isl",
    "countperf.properties.transactions": "weights are loaded without Loopy and isl",
    "countperf.sizes": "the help is made without NumPy",
    "countperf.workflow.kernels": "users' kernels need no catalogue",
}
"""Modules that many need for little, so that they import the rest when it is asked for."""

BY_NAME = {
    "countperf.cli": "the module of a command is imported when the command runs",
    "countperf": "public names are imported when they are first used",
    "countperf.harness.cuda.session": "CuPy and its parts, where they are installed",
    "countperf.tuning.preload": "between two imports it looks whether its parent has ended",
    "countperf.user_code": "modules that users name",
}
"""Modules that import others by name, which import-linter cannot see."""


@dataclass(frozen=True)
class Inside:
    """An import inside a function."""

    module: str
    line: int
    imported: str


@cache
def _modules() -> dict[str, ast.Module]:
    found: dict[str, ast.Module] = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def _inside(module: str, tree: ast.Module) -> Iterator[Inside]:
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    found = list(dict.fromkeys(node for each in functions for node in ast.walk(each)))
    for node in found:
        if isinstance(node, ast.Import):
            yield from (Inside(module, node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield Inside(module, node.lineno, str(node.module))


@cache
def _all_inside() -> tuple[Inside, ...]:
    return tuple(each for name, tree in _modules().items() for each in _inside(name, tree))


def test_imports_inside_functions_are_found_at_all() -> None:
    tree = ast.parse("import a\ndef f():\n    import b.c, d\n    def g():\n        from e import h")

    assert {each.imported for each in _inside("m", tree)} == {"b.c", "d", "e"}


def test_there_are_few_imports_inside_functions() -> None:
    assert 0 < len(_all_inside()) <= MOST_INSIDE


def test_imports_inside_functions_are_of_a_known_kind() -> None:
    unknown = [
        f"{each.module}:{each.line}: {each.imported}"
        for each in _all_inside()
        if each.imported.partition(".")[0] not in {*OPTIONAL, *SLOW} and each.module not in LIGHT
    ]

    assert unknown == []


def test_kinds_of_imports_inside_functions_are_in_use() -> None:
    roots = {each.imported.partition(".")[0] for each in _all_inside()}

    assert SLOW.keys() <= roots
    assert LIGHT.keys() <= {each.module for each in _all_inside()}


def test_modules_are_imported_by_name_where_it_is_known() -> None:
    found = {
        name
        for name, tree in _modules().items()
        for node in ast.walk(tree)
        if (isinstance(node, ast.Name) and node.id in ("import_module", "__import__"))
        or (isinstance(node, ast.Attribute) and node.attr == "import_module")
    }

    assert found == set(BY_NAME)


def test_only_the_workflow_imports_the_catalogue_of_kernels() -> None:
    users = {
        name
        for name, tree in _modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        and any(
            each.startswith("measurement_kernels")
            for each in [getattr(node, "module", None) or "", *(a.name for a in node.names)]
        )
    }

    assert {name for name in users if name.startswith("countperf")} <= {
        name for name in _modules() if name.startswith("countperf.workflow.")
    }
