"""Counts that rest on assumptions about compilers and caches, and are no facts of the program.

The structure view (``exec...``) sorts executions by where a compiler is assumed to put them and by
which cache is assumed to serve them. How many there are in all is exact; how they are sorted is
not, and is never called so.
"""

from __future__ import annotations

_CACHES = frozenset(
    {"far1", "far2", "far3", "wide", "wide3", "vast", "vast3", "widedata", "vastdata"}
)
_PLACEMENTS = frozenset({"short", "long", "packed"})
_WAITING = frozenset({"kept", "addresses"})
_LATE = "late."


def assumption_of(name: str) -> str:
    """Return what a property takes for granted; empty for facts of the program.

    Parameters
    ----------
    name : str
        Of a property, in any view.

    Examples
    --------
    >>> assumption_of("exec.free.flat.8x1.gmem.load.32.next.wide")
    'assumes the caches of countperf.execution.memory_hierarchy.COUNTED'
    >>> assumption_of("exec.free.flat.8x1.flop.add.f32")
    ''
    """
    if name.startswith(_LATE):
        return "assumes the first-level cache of countperf.execution.memory_hierarchy.COMPILED"
    parts = name.split(".")
    if parts[0] != "exec" or len(parts) < 5:
        return ""
    placement, what = parts[2], parts[4:]
    said: list[str] = []
    if placement in _PLACEMENTS or (placement.startswith("loop") and placement != "loop"):
        said.append("assumes which loops a compiler unrolls and packs")
    if what[0] in _WAITING:
        said.append("assumes what a compiler keeps over barriers")
    steps = {step for part in what for step in part.split("_")}
    if steps & _CACHES:
        said.append("assumes the caches of countperf.execution.memory_hierarchy.COUNTED")
    return "; ".join(said)
