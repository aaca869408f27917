"""The package: its public names, lazy imports, and sizes within `[tool.countperf.lines]`."""

from __future__ import annotations

import ast
import pkgutil
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

import countperf

MODULES = {module.name for module in pkgutil.iter_modules(countperf.__path__)}


def test_no_public_name_is_the_name_of_a_module() -> None:
    assert "measuring" in MODULES  # the modules are found at all
    assert not MODULES & set(countperf.__all__)


def test_each_line_of_the_stub_states_a_public_name() -> None:
    stub = ast.parse(Path(countperf.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    stated = {"__version__", *(name.asname for node in imports for name in node.names)}
    assert len(stated) > 30
    assert stated == {*countperf.__all__}
    assert all(hasattr(countperf, name) for name in countperf.__all__)


# in processes of their own: other tests have imported every module already
@pytest.mark.parametrize(
    "code",
    [
        "import countperf\n"
        "for name in ('available_weights', 'doctor'):\n"
        "    first, second = (getattr(countperf, name)() for _ in range(2))\n"
        "    assert type(first) is type(second)\n",
        "import importlib, pkgutil, countperf\n"
        "before = {name: getattr(countperf, name) for name in countperf.__all__}\n"
        "for module in pkgutil.iter_modules(countperf.__path__):\n"
        "    if module.name != '__main__':\n"
        "        importlib.import_module(f'countperf.{module.name}')\n"
        "assert before == {name: getattr(countperf, name) for name in countperf.__all__}\n",
        "import sys, countperf\nfrom countperf.cli import parser\nparser()\n"
        "slow = {'numpy', 'pydantic', 'loopy', 'islpy', 'pymbolic', 'scipy', 'pandas', 'pyopencl',"
        " 'matplotlib'} & set(sys.modules)\n"
        "assert not slow, slow\n",
    ],
    ids=["functions are called twice", "names are kept", "imports are lazy"],
)
def test_the_package_in_a_new_process(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


ROOT = Path(__file__).parents[1]
LONGEST_FILE = 600

BUDGETS: dict[str, int] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "tool"
]["countperf"]["lines"]

COUNTED = (
    *(f"{top}/**/*.py" for top in ("countperf", "measurement_kernels", "scripts", "tests")),
    "tests/advice/*.txt",
)
LINES = {
    path.relative_to(ROOT): len(path.read_text(encoding="utf-8").splitlines())
    for pattern in COUNTED
    for path in ROOT.glob(pattern)
}


def _room(path: Path) -> str:
    """Name the budget that a file counts for: its package, or its folder at the top level."""
    if path.parts[0] != "countperf":
        return path.parts[0]
    return "countperf" if len(path.parts) == 2 else f"countperf/{path.parts[1]}"


def test_packages_stay_within_their_lines() -> None:
    sizes: Counter[str] = Counter()
    for path, lines in LINES.items():
        sizes[_room(path)] += lines
    assert sizes.keys() == BUDGETS.keys()
    assert {room: size for room, size in sizes.items() if size > BUDGETS[room]} == {}


def test_files_are_short() -> None:
    kept_short = ("countperf", "measurement_kernels")
    longer = {path for path, lines in LINES.items() if lines > LONGEST_FILE}
    assert {path for path in longer if path.parts[0] in kept_short} == set()
