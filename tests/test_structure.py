"""The structure of the package: few rooms, few imports between them, few floors, one name each.

A room of a package is a sub-package or a module in it. A floor stands above all that it imports.
All imports count, also those for types and those inside functions.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import countperf

PACKAGE = Path(countperf.__file__).parent
EVERY = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): (
        ast.parse(path.read_text(encoding="utf-8"))
    )
    for package in ("countperf", "measurement_kernels")
    for path in sorted((PACKAGE.parent / package).rglob("*.py"))
}
MODULES = {name: tree for name, tree in EVERY.items() if name.startswith("countperf")}

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


def _list_imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{name.name}" for name in node.names)


def _rooms(package: str) -> dict[str, set[str]]:
    """Return the rooms of a package, each with those that it imports."""
    start = f"{package}."
    rooms: dict[str, set[str]] = {}
    for module, tree in MODULES.items():
        if module.startswith(start):
            room = module.removeprefix(start).partition(".")[0]
            names = {n.removeprefix(start) for n in _list_imports(tree) if n.startswith(start)}
            rooms.setdefault(room, set()).update(name.partition(".")[0] for name in names)
    return {room: (imported & rooms.keys()) - {room} for room, imported in rooms.items()}


def _floors(rooms: dict[str, set[str]]) -> dict[str, int]:
    floors: dict[str, int] = {}
    for room in TopologicalSorter(rooms).static_order():  # refuses circles
        floors[room] = 1 + max((floors[imported] for imported in rooms[room]), default=0)
    return floors


def test_the_house_has_few_rooms_with_few_imports_between_them() -> None:
    rooms = _rooms("countperf")
    assert 10 < len(rooms) <= 22
    assert sum(map(len, rooms.values())) <= 130


@pytest.mark.parametrize(("package", "most"), [("countperf", 12), ("countperf.counting", 9)])
def test_packages_have_few_floors_and_no_circles(package: str, most: int) -> None:
    assert 5 < max(_floors(_rooms(package)).values()) <= most


def test_a_module_has_a_name_of_its_own_but_for_those_of_commands() -> None:
    others = (p for p in PACKAGE.rglob("*.py") if p.parent != PACKAGE / "cli")
    names = Counter(path.stem for path in others)
    assert {name for name, number in names.items() if number > 1} == {"__init__"}


def test_a_class_has_a_name_of_its_own() -> None:
    names = Counter(
        node.name
        for tree in MODULES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    )
    assert {name for name, number in names.items() if number > 1} == set()


def _find_patches(tree: ast.Module) -> Iterator[str]:
    """Yield attributes of imported modules and classes of other packages that are assigned to."""
    foreign = {
        (name.asname or name.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        and not (getattr(node, "module", "") or "").startswith("countperf")
        for name in node.names
    }
    for node in ast.walk(tree):  # other names of what is imported
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if _root(node.value) in foreign and isinstance(node.value, ast.Attribute):
                foreign |= {target.id for target in targets if isinstance(target, ast.Name)}
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else []
        for target in targets:
            if isinstance(target, ast.Attribute) and _root(target) in foreign:
                yield ast.unparse(target)


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


PATCHES = {
    "countperf.counting.frontend.loopy_patches": [
        *("checks.print", "initialize.__defaults__", "inlining.substitute_into_domain"),
    ],
    # hooks of Python, which are made to be set
    "countperf.cli": ["warnings.showwarning"],
    "countperf.steps": ["sys.unraisablehook"],
}


def test_patches_of_other_packages_stand_in_one_file() -> None:
    found = {module: sorted({*_find_patches(tree)}) for module, tree in MODULES.items()}
    assert {module: patched for module, patched in found.items() if patched} == PATCHES


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
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    return _imported(dict.fromkeys(node for function in functions for node in ast.walk(function)))


def test_imports_inside_functions_are_few_and_of_known_kinds_that_are_in_use() -> None:
    inside = [(name, *imported) for name, tree in EVERY.items() for imported in _inside(tree)]
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


def test_modules_are_imported_by_name_where_it_is_known() -> None:
    users = {
        name
        for name, tree in EVERY.items()
        for node in ast.walk(tree)
        if (isinstance(node, ast.Name) and node.id in ("import_module", "__import__"))
        or (isinstance(node, ast.Attribute) and node.attr == "import_module")
    }
    assert users == set(BY_NAME)


def test_only_the_verbs_import_the_catalogue_of_kernels() -> None:
    users = {
        name
        for name, tree in EVERY.items()
        if any(m.startswith("measurement_kernels") for _, m in _imported(ast.walk(tree)))
    }
    assert not [
        name
        for name in users
        if name.startswith("countperf") and not name.startswith("countperf.api.")
    ]


def test_a_prediction_is_traced() -> None:
    script = PACKAGE.parent / "scripts" / "trace_prediction.py"
    arguments = ["finite-differences/16x16/f32", "n=512", "--weights", "pocl-epyc-zen5"]
    done = subprocess.run(
        [sys.executable, str(script), *arguments], capture_output=True, text=True, check=True
    )
    layers = done.stdout.split("\n\n")
    assert "        1  api.prediction.predict\n" in layers[1]
    assert layers[-1].endswith(" climbs\n")
