"""Execution policy: rules by which a device runs the work items of a group.

A kernel's counts of the structure view say where each operation stands and how addresses change. A
policy turns them into what the device issues: vector or scalar instructions, gathers, partial
vectors. Which policy a device follows is not declared; a fit finds it by leaving out families.

`countperf.execution.issue` says what each count becomes.

What it costs to put an option back to its default: growth, in percent, of the factor by which
left-out families are off (`scripts/ablate_models.py`, with the structural models of version 0.1;
empty where the default was chosen; P: PoCL, I: Intel's runtime, on Zen 3, 4, 5).

==============  =====  =====  =====  =====  =====  =====
option            P3     I3     P4     I4     P5     I5
==============  =====  =====  =====  =====  =====  =====
vectorized       6.75          8.05          7.66
remainder        1.00   1.60   0.38   3.55   0.38   5.22
odd_rows                4.15          5.10          5.25
rows            -0.17   1.31   0.31   2.85   0.35   2.31
arrays                                0.98          1.85
guards           1.54   1.79  -0.11   0.75   0.58   1.14
shifted                 1.38   0.08   1.78   0.01   1.54
loop_innermost                 1.63          0.40   0.43
chains           1.58          1.28  -0.06   1.09   0.00
units                          1.02
==============  =====  =====  =====  =====  =====  =====

`units` was tried on one device, `width` and `along` on none. Options that the weights which ship do
without are removed; `GONE` lists them.
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

GONE: Mapping[str, object] = {
    "unrolled": 0,
    "sync_width": 0,
    "short": "unrolled",
    "local_loads": "by vector",
    "gathers": "alike",
    "packed": "items",
    "alike": "apart",
    "addresses": "computed",
    "kept": "by item",
    "lone_arrays": "memory",
}
"""Options that old documents may state, each with the only value that they can be read with: that
of the rule which stayed."""


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
    shifted : {"together", "apart"}
        Whether items of groups of several rows load neighbors in a local array from anywhere
        outside loops, as others do, or one by one where a constant or another row shifts them.
    chains : {"whole", "overlapped"}
        Whether each item waits for its chains in full, or a core overlaps them with what follows:
        of :math:`L` iterations, if known, :math:`L / (L + 32)` wait. Its reorder buffer of a few
        hundred instructions holds about so many iterations.
    guards : {"free", "masked"}
        Whether accesses in vectors cost as much as elsewhere under a condition that tells items
        apart, or more: such vectors need a mask, and what accesses memory one by one a branch for
        each item.
    arrays : int
        Private arrays of at most so many elements stay in the registers of vectors; larger ones are
        kept in memory, where each item accesses its own. 0: all are treated alike.
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
    shifted: Literal["together", "apart"] = "together"
    chains: Literal["whole", "overlapped"] = "whole"
    guards: Literal["free", "masked"] = "free"
    arrays: int = Field(default=0, ge=0)
    units: int = Field(default=0, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _without_options_that_are_gone(cls, content: Any) -> Any:
        if not isinstance(content, dict):
            return content
        given = cast("dict[str, Any]", content)
        for name, value in GONE.items():
            if given.get(name, value) != value:
                raise ValueError(
                    f"{name} = {given[name]!r}: version 0.2.0 removed this option, and reads it"
                    f" only as {value!r}. Weights that were fitted with it do not apply: fit the"
                    " measurements anew (countperf fit FILE --model structural). In a model of your"
                    f" own, remove {name}"
                )
        return {name: value for name, value in given.items() if name not in GONE}

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
        loops += ", shifted local loads one by one" if self.shifted == "apart" else ""
        loops += ", short chains overlapped" if self.chains == "overlapped" else ""
        loops += ", guarded accesses masked" if self.guards == "masked" else ""
        loops += f", private arrays beyond {self.arrays} in memory" if self.arrays else ""
        return (
            f"vectors of {self.width} {place}, {left}, vectorized: {self.vectorized}{which}"
            f"{loops}{rounds}"
        )
