"""Imports inside functions are few and of known kinds; modules imported by name are listed."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

import pytest

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
    "countperf.caches": "importing the package is cheap",
    "countperf.cli.predict": "plain predictions import no mechanistic model",
    "countperf.cli.options": "the help is made without Loopy and NumPy",
    "countperf.counting.frontend.loopy_patches": "kernels are counted without Loopy's executors",
    "countperf.models.weights": "weights are loaded without Loopy and isl",
    "countperf.devices.nvcc": "devices are listed without Loopy",
    "countperf.devices.discovery": "measurements are read without pyopencl and CuPy",
    "countperf.measuring.cases": "measurements are read without Loopy",
    "countperf.measuring.measurement_sets": "weights are loaded without readers of tables",
    "countperf.measuring.tables": "measurements are read without Loopy and isl",
    "countperf.models.correction": "weights are loaded without measurements",
    "countperf.sizes": "the help is made without NumPy",
    "countperf.api.fits": "weights are listed without Loopy",
    "measurement_kernels.catalog": "the paper's kernels are looked up without the others",
    "countperf.api.kernels": "users' kernels need no catalogue, counts no machine code",
}
"""Modules that many need for little, so that they import the rest when it is asked for."""

BY_NAME = {
    "countperf.cli": "the module of a command is imported when the command runs",
    "countperf": "public names are imported when they are first used",
    "countperf.devices.cuda": "CuPy and its parts, where they are installed",
    "countperf.user_code": "modules that users name",
}
"""Modules that import others by name, which import-linter cannot see."""


@pytest.fixture(scope="module")
def modules() -> dict[str, ast.Module]:
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): ast.parse(
            path.read_text(encoding="utf-8")
        )
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
    }


def _imported(nodes: Iterable[ast.AST]) -> list[tuple[int, str]]:
    """Return the lines of import statements, and what they import."""
    imports: list[tuple[int, str]] = []
    for node in nodes:
        if isinstance(node, ast.Import):
            imports += [(node.lineno, name.name) for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            imports.append((node.lineno, str(node.module)))
    return imports


def _inside(tree: ast.Module) -> list[tuple[int, str]]:
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    return _imported(dict.fromkeys(node for function in functions for node in ast.walk(function)))


def test_imports_inside_functions_are_found_at_all() -> None:
    tree = ast.parse("import a\ndef f():\n    import b.c, d\n    def g():\n        from e import h")
    assert {imported for _, imported in _inside(tree)} == {"b.c", "d", "e"}


def test_imports_inside_functions_are_few_and_of_known_kinds_that_are_in_use(
    modules: dict[str, ast.Module],
) -> None:
    inside = [(name, *imported) for name, tree in modules.items() for imported in _inside(tree)]
    roots = {imported.partition(".")[0] for _, _, imported in inside}
    unknown = [
        f"{module}:{line}: {imported}"
        for module, line, imported in inside
        if imported.partition(".")[0] not in {*OPTIONAL, *SLOW} and module not in LIGHT
    ]
    assert unknown == []
    assert 0 < len(inside) <= MOST_INSIDE
    assert SLOW.keys() <= roots
    assert LIGHT.keys() <= {module for module, _, _ in inside}


def test_modules_are_imported_by_name_where_it_is_known(modules: dict[str, ast.Module]) -> None:
    users = {
        name
        for name, tree in modules.items()
        for node in ast.walk(tree)
        if (isinstance(node, ast.Name) and node.id in ("import_module", "__import__"))
        or (isinstance(node, ast.Attribute) and node.attr == "import_module")
    }
    assert users == set(BY_NAME)


def test_only_the_verbs_import_the_catalogue_of_kernels(
    modules: dict[str, ast.Module],
) -> None:
    users = {
        name
        for name, tree in modules.items()
        if any(m.startswith("measurement_kernels") for _, m in _imported(ast.walk(tree)))
    }
    assert not [
        name
        for name in users
        if name.startswith("countperf") and not name.startswith("countperf.api.")
    ]
