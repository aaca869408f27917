r"""Execution policy: rules by which a device runs the work items of a group.

A kernel's counts of the structure view say where each operation stands and how addresses change. A
policy turns them into what the device issues: vector or scalar instructions, gathers, partial
vectors. Which policy a device follows is not declared; a fit finds it by leaving out families.

Of a property ``exec.<context>.<placement>.<row>x<rows>.<what>`` with value :math:`v`, and a policy
of width :math:`W` under which it is vectorized, each row of :math:`r` items takes
:math:`\lceil r/W \rceil` vector instructions (or :math:`\lfloor r/W \rfloor` and
:math:`r \bmod W` scalar ones), so that there are :math:`v/r` times as many in all. Lanes whose
addresses are not next to each other, or all the same, access memory one by one: ``walk``, or, if
that leads to other lines, ``far``, and besides ``wide`` if a first-level cache does not keep these
lines, ``vast`` if a second-level one does not, and ``pitch`` as far as lines share sets of one;
where data decides addresses, ``data`` stands for ``far``. Vectors are of 32 bits per lane: one of
wider elements takes as many more accesses. Vectors of neighbors in global memory are ``strided``
where the next iteration of an item's loop is in other lines, and besides ``wide``, ``vast`` and
``pitch`` likewise. Items, or vectors of them, enter loops of their own; where the loop over items
runs inside of these, their group does. Calls that not all items make are ``conditional`` in
vectors, and calls like others one by one. Accesses in vectors are ``guarded`` besides where a
condition tells items apart.

What it costs to put an option back to its default: growth, in percent, of the factor by which
left-out families are off (`scripts/ablate_models.py`, structural models as shipped; empty where the
default was chosen; P: PoCL, I: Intel's runtime, on Zen 3, 4, 5).

=============  =====  =====  =====  =====  =====  =====
option           P3     I3     P4     I4     P5     I5
=============  =====  =====  =====  =====  =====  =====
vectorized      6.75          8.05          7.66
remainder       1.00   1.60   0.38   3.55   0.38   5.22
odd_rows               4.15          5.10          5.25
rows           -0.17   1.31   0.31   2.85   0.35   2.31
arrays                               0.98          1.85
guards          1.54   1.79  -0.11   0.75   0.58   1.14
shifted                1.38   0.08   1.78   0.01   1.54
interchanged                  1.63          0.40   0.43
chains          1.58          1.28  -0.06   1.09   0.00
short          -0.90          0.74          1.03
units                         1.02
local_loads                   0.80          1.01
kept                          0.79          0.86
packed          0.64          0.76          0.71
lone_arrays                          0.31          0.13
alike          -0.37          0.23          0.09
gathers                       0.20   0.04  -0.09
addresses      -0.18                 0.00          0.00
=============  =====  =====  =====  =====  =====  =====

The last four cost less than 0.5 % everywhere; `units` was tried on one device.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal, cast

import numpy as np
from pydantic import Field, model_validator

from countperf.documents import Part
from countperf.execution.memory_hierarchy import ASSUMED, Cache, MemoryHierarchy, load_hierarchy

Rows = Literal[
    "any",
    "multiples",
    "multiples if alone",
    "multiples if several",
    "multiples behind barriers",
    "multiples if few",
    "powers of two",
]
Vectorized = Literal["always", "never", "flat", "flat or sync", "sync"]

_ARITHMETIC = ("add", "mul", "fma")
_LIKE_PRODUCTS = ("mul", "fma", "shift")
"""Links of chains that take about as long; additions are shorter on some processors."""
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
_PASSED = {
    "far": ("far",),
    "wide": ("far", "wide"),
    "vast": ("far", "wide", "vast"),
    "data": ("data",),
    "widedata": ("data", "wide"),
    "vastdata": ("data", "wide", "vast"),
}
"""Accesses that a farther cache serves pass the nearer ones as well, and are charged for that."""
_CONFLICTS = {"1": Fraction(1, 4), "2": Fraction(5, 8), "3": Fraction(1)}
"""Share of the accesses to lines of one cache set that miss, by grade."""
_OTHER_LINES = frozenset(reach + grade for reach in _PASSED for grade in ("", *_CONFLICTS))
_APART = _OTHER_LINES | {"near"}
"""Steps of lanes of which each takes an access of its own, as single items do at such steps."""
_APART_BY_DIRECTION = {"load": "gather", "store": "scatter"}
_LANES = "lanes"
"""Instead of a unit: items of a vector that data leads, until it is known which caches serve."""
_LANE_BITS = 32
_ONE = Fraction(1)
_MINOR_FUNCTIONS = frozenset({"fabs", "abs", "floor", "ceil", "round", "trunc", "copysign"})
_ROWS: Mapping[Rows, str] = {
    "any": "",
    "multiples": "multiples",
    "multiples if alone": "alone",
    "multiples if several": "several",
    "multiples behind barriers": "behind",
    "multiples if few": "few",
    "powers of two": "p2",
}
_ADDRESS_BYTES = 8
_PACKED_VALUES = 16
"""Values of an item from which on LLVM packs them instead of items."""
_GONE: Mapping[str, int] = {"unrolled": 0, "sync_width": 0}
"""Options that documents of before may have, with the only value that they can be read with."""
_KEPT_CONFLICTS = ((2, _ONE), (1, Fraction(1, 4)))
"""Of values that items keep, by how many lines share a set, as multiples of the lines that a set
holds: which share comes back too late."""
_OVERLAPPED = 32
"""Iterations of a chain that overlap with what follows."""
_FEW = 16
"""Items below which LLVM vectorizes a row only if nothing is left over."""
_SHIFTED = frozenset({"offset", "shifted", "masked"})
_KEPT = ("groups", "launches", "barrier.local")


class ExecutionPolicy(Part):
    """Rules by which a device runs the work items of a group.

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
    rows : {"any", "multiples", "multiples if alone", "multiples if several", \
            "multiples behind barriers", "multiples if few", "powers of two"}
        Which rows run in vectors at all: any; only those of a multiple of `width` items,
        everywhere, in groups of one row, in groups of several, in programs with local barriers, or,
        in programs without, where they have fewer than 16; or only powers of two.
    interchanged : bool
        Whether, in programs with local barriers, the loop over items runs inside the items' own
        loops, as PoCL's implicit barriers have it: every iteration passes the rows anew, no chain
        makes an item wait, and what loops carry is kept in memory.
    odd_rows : {"together", "apart"}
        Whether items of groups of one row that is no power of two access global memory in vectors
        outside loops, short ones too, as others do, or one by one.
    short : {"unrolled", "loops"}
        Whether short loops of items are unrolled, so that what is in them is flat, or are loops
        like others; where loops are interchanged, they are.
    shifted : {"together", "apart"}
        Whether items of groups of several rows load neighbors in a local array from anywhere
        outside loops, as others do, or one by one where a constant or another row shifts them.
    local_loads : {"by vector", "by item"}
        Whether vectors load from local memory behind barriers as elsewhere, or each item by itself,
        wherever its neighbors load: PoCL keeps addresses or what they are computed from over
        barriers, in an array with an element for each item, and LLVM no longer sees how those of
        neighbors lie. It makes gathers of them.
    gathers : {"alike", "apart"}
        Whether items of a vector that data leads cost what single ones do, or as much as gathers
        and scatters take: these access memory item by item as well, but nothing hides behind them.
    packed : {"items", "copies"}
        What vectors take where copies of minima or maxima are written out side by side: items, or
        copies, so that items run one by one. LLVM packs copies into vectors before it makes loops
        over items, in which it then vectorizes nothing; it finds them where functions compare.
    chains : {"whole", "overlapped"}
        Whether each item waits for its chains in full, or a core overlaps them with what follows:
        of :math:`L` iterations, if known, :math:`L / (L + 32)` wait. Its reorder buffer of a few
        hundred instructions holds about so many iterations.
    alike : {"apart", "packed"}
        Whether values that an item's loop updates alike take an instruction each, where items run
        one by one, or are packed in vectors, as LLVM does.
    addresses : {"computed", "kept"}
        Whether items compute the addresses that they load from in loops with barriers each time, or
        before, so that they are kept in memory, 8 bytes each; what of that the items of a group
        have beyond the first-level cache does not stay in it, and costs.
    kept : {"by item", "by value"}
        How private values lie that wait at barriers: those of each item together, or in an array
        for each value of the items of a group. Then lines of arrays share sets of a cache that are
        multiples of its set stride apart, and of 16 values or more LLVM packs those of an item, not
        those of neighbors: items run one by one, and what comes back to these lines comes too late.
    guards : {"free", "masked"}
        Whether accesses in vectors cost as much as elsewhere under a condition that tells items
        apart, or more: such vectors need a mask, and what accesses memory one by one a branch for
        each item.
    arrays : int
        Private arrays of at most so many elements stay in the registers of vectors; larger ones are
        kept in memory, where each item accesses its own. 0: all are treated alike.
    lone_arrays : {"memory", "registers"}
        Where the larger ones are kept in groups of one row, in programs with local barriers.
    units : int
        Groups that run at once: those of a launch run in rounds of so many, and the last round,
        though not full, takes as long as the others. 0: as long as its share.
    """

    width: int = Field(default=16, ge=1)
    along: Literal["axis0", "group"] = "axis0"
    remainder: Literal["whole", "scalar"] = "whole"
    vectorized: Vectorized = "always"
    rows: Rows = "any"
    interchanged: bool = False
    odd_rows: Literal["together", "apart"] = "together"
    short: Literal["unrolled", "loops"] = "unrolled"
    shifted: Literal["together", "apart"] = "together"
    local_loads: Literal["by vector", "by item"] = "by vector"
    gathers: Literal["alike", "apart"] = "alike"
    packed: Literal["items", "copies"] = "items"
    chains: Literal["whole", "overlapped"] = "whole"
    alike: Literal["apart", "packed"] = "apart"
    addresses: Literal["computed", "kept"] = "computed"
    kept: Literal["by item", "by value"] = "by item"
    guards: Literal["free", "masked"] = "free"
    arrays: int = Field(default=0, ge=0)
    lone_arrays: Literal["memory", "registers"] = "memory"
    units: int = Field(default=0, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _without_options_that_are_gone(cls, content: Any) -> Any:
        if not isinstance(content, dict):
            return content
        given = cast("dict[str, Any]", content)
        for name, value in _GONE.items():
            if given.get(name, value) != value:
                raise ValueError(
                    f"{name} = {given[name]!r}: there is no such option any more, since no shipped"
                    " fit chose it; fit the measurements anew (countperf fit FILE --model"
                    " structural)"
                )
        return {name: value for name, value in given.items() if name not in _GONE}

    @property
    def text(self) -> str:
        """The policy in a few words."""
        rounds = f", {self.units} groups at once" if self.units else ""
        if self.vectorized == "never" or self.width == 1:
            return f"scalar{rounds}"
        left = "partial vectors whole" if self.remainder == "whole" else "remainders scalar"
        place = "along local axis 0" if self.along == "axis0" else "over the group"
        which = "" if self.rows == "any" else f", rows in vectors: {self.rows}"
        loops = ", items' loops outside" if self.interchanged else ""
        loops += ", odd single rows access memory one by one" if self.odd_rows == "apart" else ""
        loops += ", short loops not unrolled" if self.short == "loops" else ""
        loops += ", shifted local loads one by one" if self.shifted == "apart" else ""
        loops += ", local loads item by item" if self.local_loads == "by item" else ""
        loops += ", gathers by data apart" if self.gathers == "apart" else ""
        loops += ", of copies where there are minima or maxima" if self.packed == "copies" else ""
        loops += ", short chains overlapped" if self.chains == "overlapped" else ""
        loops += ", values updated alike packed" if self.alike == "packed" else ""
        loops += ", addresses kept over barriers" if self.addresses == "kept" else ""
        loops += ", values kept in an array each" if self.kept == "by value" else ""
        loops += ", guarded accesses masked" if self.guards == "masked" else ""
        loops += f", private arrays beyond {self.arrays} in memory" if self.arrays else ""
        if self.arrays and self.lone_arrays == "registers":
            loops += " but for those of single rows behind barriers"
        return (
            f"vectors of {self.width} {place}, {left}, vectorized: {self.vectorized}{which}"
            f"{loops}{rounds}"
        )

    @property
    def slug(self) -> str:
        """The policy in short, for names of models: ``w16-flat-scalar``."""
        rounds = [f"units{self.units}"] if self.units else []
        if self.vectorized == "never" or self.width == 1:
            return "-".join(["scalar", *rounds])
        parts = [f"w{self.width}", self.vectorized.replace(" ", "-")]
        parts += [self.remainder, *([] if self.along == "axis0" else [self.along])]
        parts += [_ROWS[self.rows]]
        parts += ["outside"] if self.interchanged else []
        parts += ["apart"] if self.odd_rows == "apart" else []
        parts += ["loops"] if self.short == "loops" else []
        parts += ["shifted"] if self.shifted == "apart" else []
        parts += ["gathered"] if self.local_loads == "by item" else []
        parts += ["data"] if self.gathers == "apart" else []
        parts += ["copies"] if self.packed == "copies" else []
        parts += ["overlapped"] if self.chains == "overlapped" else []
        parts += ["alike"] if self.alike == "packed" else []
        parts += ["kept"] if self.addresses == "kept" else []
        parts += ["values"] if self.kept == "by value" else []
        parts += ["masked"] if self.guards == "masked" else []
        parts += [f"a{self.arrays}"] if self.arrays else []
        parts += ["lone"] if self.arrays and self.lone_arrays == "registers" else []
        parts += rounds
        return "-".join(part for part in parts if part)

    def apply(
        self, counts: Mapping[str, Any], memory: MemoryHierarchy | None = None
    ) -> dict[str, Any]:
        """Turn counts of the structure view into what the device issues.

        Parameters
        ----------
        counts : Mapping from str to int, Fraction, ndarray, or anything to add and scale
            By property name.
        memory : MemoryHierarchy, optional
            Of the device, whose first-level cache keeps what items need again; by default
            `countperf.execution.memory_hierarchy.ASSUMED`.

        Returns
        -------
        dict
            By name (``run...``, ``bytes...``, ``groups``, ``launches``, ``barrier.local``); what is
            there already is left as it is.
        """
        found: dict[str, Any] = {}
        first = (memory or load_hierarchy(ASSUMED)).first
        known = _issued_by(cast("Hashable", self), cast("Hashable", first))  # frozen
        for name, count in counts.items():
            if name not in known:
                known[name] = _issued(name, self, first)
            for issued, share in known[name]:
                part = (
                    count
                    if share == 1
                    else count * (float(share) if isinstance(count, np.ndarray) else share)
                )
                found[issued] = found[issued] + part if issued in found else part
        return found


_Issued = tuple[tuple[str, Fraction], ...]


@lru_cache(maxsize=2**8)
def _issued_by(policy: Hashable, first: Hashable) -> dict[str, _Issued]:  # noqa: ARG001
    """Remember what units of properties are issued as under a policy, once asked for."""
    return {}


def _issued(name: str, policy: ExecutionPolicy, first_cache: Cache) -> _Issued:
    """Return what a unit of a property is issued as."""
    if name.startswith("run."):  # farther caches are passed already
        return ((name, _ONE),)
    found: list[tuple[str, Fraction]] = []
    for issued, share in _issued_once(name, policy, first_cache):
        before, _, last = issued.rpartition(".")
        reach, grade = (last[:-1], last[-1]) if last[-1] in _CONFLICTS else (last, "")
        if reach not in _PASSED:
            found.append((issued, share))
            continue
        _, unit, *where = before.split(".")
        first, *farther = _PASSED[reach]
        if unit == _LANES:
            nearest = f"{'.'.join(('run', 'vector', *where))}.{_APART_BY_DIRECTION[where[-1]]}"
            before = ".".join(("run", "scalar", *where))
        else:
            nearest = f"{before}.{'strided' if unit == 'vector' else first}"
        found += [(passed, share) for passed in (nearest, *(f"{before}.{far}" for far in farther))]
        if grade:
            found.append((f"{before}.pitch", share * _CONFLICTS[grade]))
    return tuple(found)


def _issued_once(name: str, policy: ExecutionPolicy, first_cache: Cache) -> _Issued:
    """Return what a unit of a property is issued as, farthest cache only."""
    parts = name.split(".")
    if parts[0] in ("bytes", "segments") or name in _KEPT:
        return ((name, Fraction(1)),)
    if parts[0] != "exec":
        return ()
    _, context, placement, shape, *what = parts
    row, rows = (int(n) for n in shape.split("x"))
    kept = _ONE
    if what[0] == "addresses":
        kept = _beyond_cache(int(what[1]) * row * rows * _ADDRESS_BYTES, first_cache)
        if policy.addresses != "kept" or not kept:
            return ()
    packed_values, crowded = 0, Fraction(0)
    if what[0] == "kept" and policy.kept == "by value" and int(what[1]) >= _PACKED_VALUES:
        packed_values = int(what[1])
        crowded = _sharing_sets(packed_values, row * rows * int(what[2]) // 8, first_cache)
    is_guarded = what[0] == "guarded"
    if is_guarded:
        what = what[1:]
        if policy.guards == "free":
            return ()
    if policy.along == "group":
        row, rows = row * rows, 1
    are_packed = policy.packed == "copies" and placement == "packed"
    if placement in ("long", "packed"):
        placement = "flat"
    updated_alike = int(placement.removeprefix("loop") or 1) if placement[:4] == "loop" else 1
    placement = "loop" if updated_alike > 1 else placement
    if what[0] in ("gmem", "lmem"):
        what[3] = what[3].partition("_")[0]  # along local axis 0; the next axis follows
    if what[:2] == ["lmem", "load"] and placement == "flat" and rows > 1:
        is_apart = policy.shifted == "apart" and what[3] in _SHIFTED
        what[3] = "near" if is_apart else what[3]
    if what[:2] == ["lmem", "load"] and context == "sync" and policy.local_loads == "by item":
        what[3] = "near"
    if what[0] == "gmem" and placement == "flat" and rows == 1 and not _is_power_of_two(row):
        is_apart = policy.odd_rows == "apart" and what[3] in ("next", "offset")
        what[3] = "near" if is_apart else what[3]
    is_outside = policy.interchanged and context == "sync" and placement != "flat"
    elements = int(what.pop()) if what[0] == "pmem" else 0
    is_lone = policy.lone_arrays == "registers" and context == "sync" and rows == 1
    is_large = 0 < policy.arrays < elements and not is_lone
    is_written_out = placement == "short" and not (is_outside or policy.short == "loops")
    if placement == "short":
        placement = "flat" if is_written_out else "loop"
    width = policy.width
    is_vector = (
        width > 1
        and not are_packed
        and _is_regular(policy.rows, context, row, rows, width)
        and (context, placement) in _PLACES[policy.vectorized]
    )
    kind = "vector" if is_vector else "scalar"
    if is_written_out and (
        what[0] in ("iterations", "entries") or (what[0] == "pmem" and not (is_large and is_vector))
    ):
        return ()  # in registers
    if is_guarded and not is_vector:
        return ()  # one branch around all of an item's work
    if what[0] == "passes":
        return (
            (f"run.{kind}.passes.{context}", Fraction(1)),
            (f"run.{kind}.rows.{context}", Fraction(rows)),
        )
    if what[0] == "chain" and (is_outside or placement == "flat"):
        return ()
    taken = kept * (_waiting(what) if policy.chains == "overlapped" else 1)
    if what[0] == "entries" and is_outside:
        return (("run.scalar.entries", Fraction(1, row * rows)),)
    if what[0] == "carried" and (context == "free" or (placement == "loop" and not is_outside)):
        return ()
    issued = [("run.scalar.crowded", crowded)] if crowded else []
    if packed_values:
        return (*issued, ("run.scalar.kept", _ONE))
    if what[0] == "iterations" and is_outside:
        issued.append((f"run.{kind}.rows.loop", Fraction(1, row)))
    if not is_vector and updated_alike > 1 and policy.alike == "packed" and what[0] == "flop":
        each, each_takes = _vector_name(what, is_outside=is_outside)
        if each_takes is not None:
            return ((f"run.vector.{each}", each_takes / updated_alike),)
    if not is_vector:
        return (*issued, (f"run.scalar.{_scalar_name(what)}", taken))
    full, left = divmod(row, width)
    if policy.remainder == "whole":
        full, left = full + bool(left), 0
    each, each_takes = _vector_name(what, is_outside=is_outside)
    if is_guarded:
        guarded = ".".join(["guarded", *what[:2]])
        if each_takes is None:
            return ((f"run.scalar.{guarded}", Fraction(1)),)
        return ((f"run.vector.{guarded}", Fraction(full, row) * each_takes),) if full else ()
    if is_large:
        return (*issued, (f"run.vector.pmem.{_APART_BY_DIRECTION[what[1]]}", _ONE))
    if each_takes is None:
        are_led = policy.gathers == "apart" and each.startswith("gmem.") and each.endswith("data")
        return (*issued, (f"run.{_LANES if are_led else 'scalar'}.{each}", Fraction(1)))
    if full:
        issued.append((f"run.vector.{each}", Fraction(full, row) * each_takes * taken))
    if left:
        issued.append((f"run.scalar.{_scalar_name(what)}", Fraction(left, row) * taken))
    return tuple(issued)


def _is_regular(which: Rows, context: str, row: int, rows: int, width: int) -> bool:
    """Return whether a row of items runs in vectors."""
    return (
        which == "any"
        or (which == "multiples if alone" and rows > 1)
        or (which == "multiples if several" and rows == 1)
        or (which == "multiples behind barriers" and context == "free")
        or (which == "multiples if few" and (context == "sync" or row >= _FEW))
        or (which == "powers of two" and _is_power_of_two(row))
        or ("multiples" in which and row % width == 0)
    )


def _is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0


def _beyond_cache(number: int, cache: Cache) -> Fraction:
    """Return which share of some bytes does not fit a cache."""
    return max(Fraction(0), 1 - Fraction(cache.size_bytes, number))


def _sharing_sets(values: int, apart: int, cache: Cache) -> Fraction:
    """Return which share of an item's values comes back too late, an array apart in bytes each."""
    stride = cache.set_stride_bytes
    lines = Fraction(values * math.gcd(apart, stride), stride)
    return next(
        (share for least, share in _KEPT_CONFLICTS if lines >= least * cache.ways), Fraction(0)
    )


def _waiting(what: list[str]) -> Fraction:
    """Return which share of a chain waits if it overlaps with what follows; all of others."""
    match what:
        case ["chain", _, _, iterations]:
            return Fraction(int(iterations), int(iterations) + _OVERLAPPED)
        case _:
            return _ONE


def _operation(what: list[str]) -> str:
    family, kind, type_name, *function = what
    if family == "iop":
        return f"{'divide' if kind in ('div', 'mod') else 'minor'}.{type_name}.{kind}"
    if kind in ("special", "conditional") and function and function[0] in _MINOR_FUNCTIONS:
        return f"minor.{type_name}.{function[0]}"
    if kind in _ARITHMETIC:
        return f"arithmetic.{type_name}.{kind}"
    if kind in _MINOR:
        return f"minor.{type_name}.{kind}"
    return ".".join([kind, type_name, *function])


def _reach(step: str) -> str:
    """Return what accesses of single items are called by their step."""
    return step if step in _OTHER_LINES else "walk"


def _scalar_name(what: list[str]) -> str:
    match what:
        case ["gmem" | "lmem" as space, direction, _, lane, *walk]:
            step = walk[0] if walk else lane
            return f"{space}.{direction}.{_reach(step)}"
        case ["chain", kind, type_name, *_]:
            return f"chain.{type_name}.{'arithmetic' if kind in _LIKE_PRODUCTS else kind}"
        case ["pmem", direction]:
            return f"pmem.{direction}"
        case ["idle" | "iterations" | "entries" | "carried" | "addresses" | "kept" as kind, *_]:
            return kind
        case [_, "conditional", type_name, "pow"]:
            return f"pow.{type_name}"
        case [_, "conditional", type_name, function] if function not in _MINOR_FUNCTIONS:
            return f"special.{type_name}.{function}"
        case _:
            return _operation(what)


def _vector_name(what: list[str], *, is_outside: bool) -> tuple[str, Fraction | None]:
    """Return the name, and how many instructions a vector takes; None for one of each lane."""
    match what:
        case ["gmem" | "lmem" as space, direction, bits, lane, *walk]:
            if direction == "store" and lane == "same":
                lane = "next"
            if space == "gmem" and lane == "next" and not _OTHER_LINES.isdisjoint(walk):
                return f"{space}.{direction}.{_reach(walk[0])}", Fraction(int(bits), _LANE_BITS)
            if lane in _APART:
                return f"{space}.{direction}.{_reach(lane)}", None
            return f"{space}.{direction}.{lane}", Fraction(int(bits), _LANE_BITS)
        case ["pmem", direction]:
            return (f"pmem.{direction}", None if is_outside else _ONE)
        case ["kept", _, bits]:
            return "kept", Fraction(int(bits), _LANE_BITS)
        case [_, "conditional", *_]:
            return _operation(what), _ONE
        case _:
            return _scalar_name(what), _ONE
