"""Execution policy: rules by which a device runs the work items of a group.

A kernel's counts of the structure view say where each operation stands and how addresses change. A
policy turns them into what the device issues: vector or scalar instructions, gathers, partial
vectors. Which policy a device follows is not declared; a fit finds it by leaving out families.

`countperf.execution.issue` says what each count becomes.

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
loop_innermost                1.63          0.40   0.43
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

from collections.abc import Mapping
from typing import Any, Literal, cast

from pydantic import Field, model_validator

from countperf.documents import Part

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

_ROWS: Mapping[Rows, str] = {
    "any": "",
    "multiples": "multiples",
    "multiples if alone": "alone",
    "multiples if several": "several",
    "multiples behind barriers": "behind",
    "multiples if few": "few",
    "powers of two": "p2",
}
_GONE: Mapping[str, int] = {"unrolled": 0, "sync_width": 0}
"""Options that documents of before may have, with the only value that they can be read with."""


RETIRED = (
    *("lone_arrays", "alike", "gathers", "addresses"),
    *("packed", "kept", "local_loads", "short"),
)
"""Options that weights of before may have, and that no fit chooses any more: each costs next to
nothing where classes are left out."""


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
    work_item_loop_innermost : bool
        Whether, in programs with local barriers, the loop over items runs inside the items' own
        loops, as PoCL's implicit barriers have it: every iteration passes the rows anew, no chain
        makes an item wait, and what loops carry is kept in memory.
    odd_rows : {"together", "apart"}
        Whether items of groups of one row that is no power of two access global memory in vectors
        outside loops, short ones too, as others do, or one by one.
    short : {"unrolled", "loops"}
        Whether short loops of items are unrolled, so that what is in them is flat, or are loops
        like others; where work_item_loop_innermost, they are.
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
    work_item_loop_innermost: bool = False
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

    def without_retired_options(self) -> ExecutionPolicy:
        """Return the policy as a fit may choose it: without what only old weights have."""
        return self.model_copy(
            update={name: type(self).model_fields[name].default for name in RETIRED}
        )

    @property
    def text(self) -> str:
        """The policy in a few words."""
        rounds = f", {self.units} groups at once" if self.units else ""
        if self.vectorized == "never" or self.width == 1:
            return f"scalar{rounds}"
        left = "partial vectors whole" if self.remainder == "whole" else "remainders scalar"
        place = "along local axis 0" if self.along == "axis0" else "over the group"
        which = "" if self.rows == "any" else f", rows in vectors: {self.rows}"
        loops = ", items' loops outside" if self.work_item_loop_innermost else ""
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
        parts += ["outside"] if self.work_item_loop_innermost else []
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
