"""Sums that the items of a group make together: each its own part, then a tree in local memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import TYPE_CHECKING

from measurement_kernels.arguments import ArrayArgument, Extent, SizeParameter
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.program_entries import program_entry
from measurement_kernels.programs import Formula, Program

if TYPE_CHECKING:
    from loopy import TranslationUnit

_TERMS = {"row": "a[i, k]", "column": "a[k, i]"}
_ITEMS = (32, 64, 128, 256)


def entries() -> Iterator[CatalogEntry]:
    """List the family."""
    for variant, term in _TERMS.items():
        for items in _ITEMS:
            program = _program(variant, term, items)
            yield program_entry(
                program,
                (items, 1),
                family="group-reduction",
                variant=variant,
                collection="extended",
                description=f"sums of a group along each {variant}",
                exponent_steps=(0, 1),
                builder=partial(_build, program, items),
            )


def _program(variant: str, term: str, items: int) -> Program:
    extents = Extent("n"), Extent("m")
    return Program(
        name="group_sum",
        loops=(("i", "n"), ("k", "m")),
        formulas=(Formula(target="r[i]", terms=(term,), summed=("k",)),),
        sizes=(
            SizeParameter(name="n", base=480),
            SizeParameter(name="m", multiple=items, base=900),
        ),
        arguments=(
            ArrayArgument(name="a", shape=extents[::-1] if variant == "column" else extents),
            ArrayArgument(name="r", shape=extents[:1], role="output"),
        ),
    )


@cache
def _build(program: Program, items: int) -> TranslationUnit:
    import loopy as lp

    unit = lp.tag_inames(program.unit(), {"i": "g.0"})
    unit = lp.split_iname(unit, "k", items, outer_iname="k_each", inner_iname="k_item")
    unit = lp.split_reduction_outward(unit, "k_item")
    # every item writes the group's sum, which Loopy warns of
    kernel = unit.default_entrypoint.copy(silenced_warnings=frozenset({"write_race(insn)"}))
    return lp.tag_inames(unit.with_kernel(kernel), {"k_item": "l.0"})
