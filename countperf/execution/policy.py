"""Execution policy: rules by which a device runs the work items of a group.

A kernel's counts of the structure view say where each operation stands and how addresses change. A
policy turns them into what the device issues: vector or scalar instructions, gathers, partial
vectors. Which policy a device follows is not declared; a fit finds it by leaving out families.

`countperf.execution.issue` says what each count becomes.

What it costs to put an option back to its default: growth, in percent, of the factor by which
left-out families are off, with the structural models that ship and no correction
(`scripts/ablate_models.py`; empty where the default was chosen, which counts as zero in the mean;
P: PoCL, I: Intel's runtime, on Zen 3, 4, 5 and the Xeon).

==============  =====  =====  =====  =====  =====  =====  =====  =====  =====
option             P3     I3     P4     I4     P5     I5     PX     IX   mean
==============  =====  =====  =====  =====  =====  =====  =====  =====  =====
vectorized       5.92          6.47          6.38          3.04          2.73
remainder        2.34   1.51   0.14   4.17   0.48   5.26   1.84   3.62   2.42
odd_rows                3.88          5.13          5.20          0.91   1.89
rows            -0.08   1.26   0.09   2.64   0.15   2.38  -0.12   2.56   1.11
units            1.13   0.19   1.98   0.66   0.85   0.46   0.63   0.26   0.77
guards           1.92   1.86  -0.26   0.69   0.46   1.08          0.30   0.76
shifted                 0.98   0.23   1.77   0.00   1.55   0.05   0.94   0.69
width                   4.54  -0.38         -0.18                        0.50
chains           1.46          0.84  -0.03   0.51   0.00   0.22  -0.05   0.37
arrays                                0.60          1.69          0.65   0.37
loop_innermost                -0.03         -0.25   0.16   0.13          0.00
==============  =====  =====  =====  =====  =====  =====  =====  =====  =====

`along` is for sub-groups of GPUs, and at its default on all of these. The last three cost less than
0.5 % in the mean. Options that the weights which ship do without are removed; `GONE` lists them.
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
