"""Packages stay within their numbers of lines in `[tool.countperf.lines]`, which only go down."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LONGEST_FILE = 600

BUDGETS: dict[str, int] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "tool"
]["countperf"]["lines"]


def _lines() -> dict[Path, int]:
    return {
        path.relative_to(ROOT): len(path.read_text(encoding="utf-8").splitlines())
        for top in ("countperf", "measurement_kernels", "scripts", "tests")
        for path in (ROOT / top).rglob("*.py")
    }


def _room(path: Path) -> str:
    """Name the budget that a file counts for: its package, or its folder at the top level."""
    if path.parts[0] != "countperf":
        return path.parts[0]
    return "countperf" if len(path.parts) == 2 else f"countperf/{path.parts[1]}"


def _sizes() -> Counter[str]:
    sizes: Counter[str] = Counter()
    for path, lines in _lines().items():
        sizes[_room(path)] += lines
    return sizes


def test_every_package_has_a_budget() -> None:
    assert _sizes().keys() == BUDGETS.keys()


@pytest.mark.parametrize("room", BUDGETS)
def test_package_stays_within_its_lines(room: str) -> None:
    assert _sizes()[room] <= BUDGETS[room]


def test_files_are_short() -> None:
    longer = {
        str(path): lines
        for path, lines in _lines().items()
        if lines > LONGEST_FILE and path.parts[0] in ("countperf", "measurement_kernels")
    }

    assert longer == {}
