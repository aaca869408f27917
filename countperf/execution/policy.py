"""Execution policy: rules by which a device runs the work items of a group.

A kernel's counts of the structure view say where each operation stands and how addresses change. A
policy turns them into what the device issues: vector or scalar instructions, gathers, partial
vectors. Which policy a device follows, its runtime says (`countperf.models.structural.POLICIES`).

`countperf.execution.issue` says what each count becomes.

`docs/models-priced.md` has the price of each option. `along` is for sub-groups of GPUs.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from countperf.documents import Part

Rows = Literal["any", "multiples", "multiples behind barriers"]
Vectorized = Literal["always", "never", "flat", "flat or sync", "sync"]


class ExecutionPolicy(Part):
    """Rules by which a device runs the work items of a group."""

    width: int = Field(default=16, ge=1)  # work items that one vector instruction runs
    # whether vectors take neighbors along local axis 0, row by row (compilers for CPUs), or items
    # in order of their number in the group (sub-groups of GPUs)
    along: Literal["axis0", "group"] = "axis0"
    # whether what is left of a row takes a whole vector instruction, or scalar ones
    remainder: Literal["whole", "scalar"] = "whole"
    # what runs in vectors: everything, nothing, what is not in an item's own loop, that and
    # whatever is in programs with local barriers, or only the latter
    vectorized: Vectorized = "always"
    # which rows run in vectors at all: any; only those of a multiple of `width` items, everywhere,
    # or in programs with local barriers
    rows: Rows = "any"
    # whether items of groups of one row that is no power of two access global memory in vectors
    # outside loops, short ones too, as others do, or one by one
    odd_rows: Literal["together", "apart"] = "together"
    # whether items of groups of several rows load neighbors in a local array from anywhere outside
    # loops, as others do, or one by one where a constant or another row shifts them
    shifted: Literal["together", "apart"] = "together"
    # whether accesses in vectors cost as much as elsewhere under a condition that tells items
    # apart, or more: such vectors need a mask, and what accesses memory one by one a branch for
    # each item
    guards: Literal["free", "masked"] = "free"
    # private arrays of at most so many elements stay in the registers of vectors; larger ones are
    # kept in memory, where each item accesses its own
    arrays: int = Field(default=0, ge=0)
    # groups that run at once: those of a launch run in rounds of so many, and the last round,
    # though not full, takes as long as the others
    units: int = Field(default=0, ge=0)

    @property
    def text(self) -> str:
        """The policy in a few words: its options but those that are as usual."""
        stated = self.model_dump(exclude_defaults=True)
        options = (f"{name.replace('_', ' ')} {value}" for name, value in stated.items())
        return ", ".join(options) or f"width {self.width}"
