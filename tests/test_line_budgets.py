"""Packages stay within their numbers of lines in `[tool.countperf.lines]`, which only go down."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
LONGEST_FILE = 600

BUDGETS: dict[str, int] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "tool"
]["countperf"]["lines"]


LINES = {
    path.relative_to(ROOT): len(path.read_text(encoding="utf-8").splitlines())
    for top in ("countperf", "measurement_kernels", "scripts", "tests")
    for path in (ROOT / top).rglob("*.py")
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
