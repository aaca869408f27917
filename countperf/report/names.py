"""Plain names of the parts of a time, and the group that each belongs to.

Models name parts by features, such as ``issue.scalar.gmem.load.set_conflict``. People read "scalar
global loads that miss L1 by set conflicts", in the group "memory: L2".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

OTHER = "other"

_PATTERNS: Mapping[str, str] = {
    "memory: pages": r"out_of_reach",
    "memory: L2": r"set_conflict|l2_reuse|lines_l2|lines_conflict|^miss\.|^spill\.",
    "memory: beyond L2": r"beyond",
    "memory: local": r"lmem|^subgroups.*\.(local|passes)",
    "latency chains": r"chain|^waiting|in_a_row|^latency",
    "launch": r"^launch|^barrier\.global|^transfer",
    "memory: global": r"^(gmem|transactions|distinct|memory)|^subgroups.*\.(load|store)",
    "overhead": r"^(groups|items|rows|barrier)|\.(passes|rows|carried|pmem|live_|launched|barrier)",
    "memory: L1": r"gmem|gather|scatter|load|store|^(bytes|segments)",
    "compute": r"^(issue|code|flop|iop|compute|busy|divisions|square_roots|cycles|subgroups)",
}
"""What the names of a group's parts have in them; the first that is found tells the group."""

GROUPS = (*_PATTERNS, OTHER)
"""Groups of the parts of a time."""

_WORDS: Mapping[str, str] = {
    **{"issue": "", "code": "machine code:", "gmem": "global", "lmem": "local", "pmem": "private"},
    **{"load": "loads", "store": "stores", "launches": "launching", "chain": "dependent"},
    **{
        "groups": "starting work groups",
        "items": "starting work items",
        "iop": "integer",
        "flop": "",
    },
    **{"free": "without barriers", "sync": "between barriers", "loop": "in loops"},
    **{"passes": "loops over the items of groups", "carried": "loop-carried values in memory"},
    **{"arithmetic": "add, multiply, fma", "minor": "comparisons, selections, conversions"},
    **{"add": "additions", "mul": "multiplications", "div": "divisions", "mod": "remainders"},
    **{
        "pow": "powers",
        "special": "special functions",
        "conditional": "under conditions:",
        "fma": "fma",
    },
    **{"minmax": "minima and maxima", "guarded": "masked", "idle": "slots without work"},
    **{"divide": "integer divisions", "divisions": "machine code: divisions", "l2": "L2"},
    "waiting_cycles": "stall cycles of dependent instructions",
    "same": "of one address by all items",
    "next": "of consecutive addresses",
    "offset": "of consecutive unaligned addresses",
    "shifted": "of consecutive addresses at any offset",
    "near": "of several addresses in a cache line",
    "walk": "item by item within a cache line",
    "l1_reuse": "of another cache line per item",
    "data": "at addresses read from data",
    "strided": "of consecutive addresses in another cache line per iteration",
    "l2_reuse": "that miss L1",
    "set_conflict": "that miss L1 by set conflicts",
    "lines_l2": "in lines that miss L1",
    "lines_conflict": "in lines that miss L1 by set conflicts",
    "beyond_l2": "that miss L2",
    "beyond_llc": "beyond the last-level cache",
    "out_of_reach": "(address translation)",
}
_WORD = re.compile(
    rf"(?<![a-z0-9])(?:{'|'.join(sorted(_WORDS, key=len, reverse=True))})(?![a-z0-9])"
)


class PlainName(NamedTuple):
    """A part of a time for people."""

    text: str  # what takes the time, a few words
    group: str  # one of `GROUPS`


def plain_name(part: str) -> PlainName:
    """Return the plain name of a part of a breakdown; the part itself where no group has it."""
    for group, pattern in _PATTERNS.items():
        if re.search(pattern, part):
            text = re.sub(r"[._]", " ", _WORD.sub(lambda found: _WORDS[found[0]], part))
            return PlainName(" ".join(text.split()), group)
    return PlainName(part, OTHER)


_FEW = 3


def uncharged_lines(names: Sequence[str], *, every: bool = False) -> list[str]:
    """Write which properties a model leaves out: few by name, of more how many, or all of them."""
    said = [plain_name(name).text for name in names] if len(names) <= _FEW else names
    if len(names) > _FEW and not every:
        said = [f"{len(names)} properties (--explain lists them)"]
    return [f"not charged by this model: {', '.join(said)}"]
