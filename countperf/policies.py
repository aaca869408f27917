r"""How a device runs the work items of a group: its execution policy.

A kernel's counts of the structure view say where each operation stands and how addresses change. A
policy turns them into what the device issues: vector or scalar instructions, gathers, partial
vectors. Which policy a device follows is not declared; a fit finds it by leaving out families.

Of a property ``exec.<context>.<placement>.<row>x<rows>.<what>`` with value :math:`v`, and a policy
of width :math:`W` under which it is vectorized, each row of :math:`r` items takes
:math:`\lceil r/W \rceil` vector instructions (or :math:`\lfloor r/W \rfloor` and
:math:`r \bmod W` scalar ones), so that there are :math:`v/r` times as many in all. Lanes whose
addresses are not next to each other, or all the same, access memory one by one. Vectors are of 32
bits per lane: one of wider elements takes as many more accesses.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from pydantic import Field

from countperf.documents import Part

Vectorized = Literal["always", "never", "flat", "flat or sync", "sync"]

_ARITHMETIC = ("add", "mul", "fma")
_MINOR = ("neg", "select", "compare", "convert", "minmax")
_SITES = frozenset({("free", "flat"), ("free", "loop"), ("sync", "flat"), ("sync", "loop")})
_PLACES: Mapping[Vectorized, frozenset[tuple[str, str]]] = {
    "always": _SITES,
    "never": frozenset(),
    "flat": frozenset({("free", "flat"), ("sync", "flat")}),
    "flat or sync": _SITES - {("free", "loop")},
    "sync": frozenset({("sync", "flat"), ("sync", "loop")}),
}
"""Contexts and placements that run in vectors."""
_APART = {"near": "spread", "far": "gather", "data": "gather", "pitch": "conflict"}
"""What accesses are called of which each lane takes an instruction of its own, by their step."""
_LANE_BITS = 32
_KEPT = ("groups", "launches", "barrier.local")


class ExecutionPolicy(Part):
    """How a device runs the work items of a group.

    Attributes
    ----------
    width : int
        Work items that one vector instruction runs.
    along : {"axis0", "group"}
        Whether vectors take neighbors along local axis 0, row by row (compilers for CPUs), or items
        in order of their number in the group (sub-groups of GPUs).
    remainder : {"whole", "scalar"}
        Whether what is left of a row takes a whole vector instruction, or scalar ones.
    vectorized : {"always", "never", "flat", "flat or sync", "sync"}
        What runs in vectors: everything, nothing, what is not in an item's own loop, that and
        whatever is in programs with local barriers, or only the latter.
    unrolled : int
        Rows of at most so many items are unrolled, and vectors run along local axis 1; at most 8.
    rows : {"any", "powers of two", "powers of two if alone"}
        Which rows run in vectors at all: any, only those of a power of two items, or any in groups
        of several rows and those of a power of two in groups of one.
    """

    width: int = Field(default=16, ge=1)
    along: Literal["axis0", "group"] = "axis0"
    remainder: Literal["whole", "scalar"] = "whole"
    vectorized: Vectorized = "always"
    unrolled: int = Field(default=0, ge=0, le=8)
    rows: Literal["any", "powers of two", "powers of two if alone"] = "any"

    @property
    def text(self) -> str:
        """The policy in a few words."""
        if self.vectorized == "never" or self.width == 1:
            return "scalar"
        left = "partial vectors whole" if self.remainder == "whole" else "remainders scalar"
        place = "along local axis 0" if self.along == "axis0" else "over the group"
        rows = f", rows up to {self.unrolled} unrolled" if self.unrolled else ""
        which = "" if self.rows == "any" else f", rows in vectors: {self.rows}"
        return (
            f"vectors of {self.width} {place}, {left}, vectorized: {self.vectorized}{rows}{which}"
        )

    def apply(self, counts: Mapping[str, Any]) -> dict[str, Any]:
        """Turn counts of the structure view into what the device issues.

        Parameters
        ----------
        counts : Mapping from str to int, Fraction, ndarray, or anything to add and scale
            By property name.

        Returns
        -------
        dict
            By name (``run...``, ``bytes...``, ``groups``, ``launches``, ``barrier.local``); what is
            there already is left as it is.
        """
        found: dict[str, Any] = {}
        for name, count in counts.items():
            for issued, share in _issued(
                name,
                self.width,
                self.along,
                self.remainder,
                self.vectorized,
                self.unrolled,
                self.rows,
            ):
                part = (
                    count
                    if share == 1
                    else count * (float(share) if isinstance(count, np.ndarray) else share)
                )
                found[issued] = found[issued] + part if issued in found else part
        return found


@lru_cache(maxsize=2**16)
def _issued(
    name: str,
    width: int,
    along: str,
    remainder: str,
    vectorized: Vectorized,
    unrolled: int,
    regular: str,
) -> tuple[tuple[str, Fraction], ...]:
    """Return what a unit of a property is issued as."""
    parts = name.split(".")
    if parts[0] in ("run", "bytes", "segments") or name in _KEPT:
        return ((name, Fraction(1)),)
    if parts[0] != "exec":
        return ()
    _, context, placement, shape, *what = parts
    row, rows = (int(n) for n in shape.split("x"))
    if along == "group":
        row, rows = row * rows, 1
    if what[0] in ("gmem", "lmem"):
        lane, _, second = what[3].partition("_")
        what[3] = second if second and row <= unrolled else lane
    if row <= unrolled and rows > 1:
        row, rows = rows, row
    is_power = row & (row - 1) == 0
    is_regular = is_power or regular == "any" or (regular != "powers of two" and rows > 1)
    is_vector = width > 1 and is_regular and (context, placement) in _PLACES[vectorized]
    if what[0] == "passes":
        kind = "vector" if is_vector else "scalar"
        return (
            (f"run.{kind}.passes.{context}", Fraction(1)),
            (f"run.{kind}.rows.{context}", Fraction(rows)),
        )
    if not is_vector:
        return tuple((f"run.scalar.{n}", Fraction(1)) for n in _scalar_names(placement, what))
    full, left = divmod(row, width)
    if remainder == "whole":
        full, left = full + bool(left), 0
    issued: list[tuple[str, Fraction]] = []
    for each, each_takes in _vector_names(placement, what):
        if each_takes is None:
            issued.append((f"run.scalar.{each}", Fraction(1)))
            continue
        if full:
            issued.append((f"run.vector.{each}", Fraction(full, row) * each_takes))
        if left:
            issued += [
                (f"run.scalar.{n}", Fraction(left, row)) for n in _scalar_names(placement, what)
            ]
    return tuple(issued)


def _operation(what: list[str]) -> str:
    family, kind, type_name, *function = what
    if family == "iop":
        return f"{'divide' if kind in ('div', 'mod') else 'index'}.{type_name}.{kind}"
    if kind in _ARITHMETIC:
        return f"arithmetic.{type_name}.{kind}"
    if kind in _MINOR:
        return f"minor.{type_name}.{kind}"
    return ".".join([kind, type_name, *function])


def _scalar_names(placement: str, what: list[str]) -> list[str]:
    match what:
        case ["gmem" | "lmem" as space, direction, _, lane, *walk]:
            step = walk[0] if walk else lane
            reach = {"far": "far", "data": "far", "pitch": "pitch"}.get(step, "walk")
            return [f"{space}.{direction}.{reach}"]
        case ["chain", kind, type_name]:
            return [f"chain.{type_name}.{kind}"] if placement == "loop" else []
        case ["idle" | "iterations" as kind]:
            return [kind]
        case _:
            return [_operation(what)]


def _vector_names(placement: str, what: list[str]) -> list[tuple[str, Fraction | None]]:
    """Return names, and how many instructions a vector takes; None for one of each lane."""
    one = Fraction(1)
    match what:
        case ["gmem" | "lmem" as space, direction, bits, lane, *_]:
            if lane in _APART:
                return [(f"{space}.{direction}.{_APART[lane]}", None)]
            return [(f"{space}.{direction}.{lane}", Fraction(int(bits), _LANE_BITS))]
        case ["chain", kind, type_name]:
            return [(f"chain.{type_name}.{kind}", one)] if placement == "loop" else []
        case ["idle" | "iterations" as kind]:
            return [(kind, one)]
        case _:
            return [(_operation(what), one)]
