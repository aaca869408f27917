"""Sums that single items make along rows and columns, with one or several accumulators."""

from __future__ import annotations

from collections.abc import Iterator

from measurement_kernels.arguments import ArrayArgument, Extent, SizeParameter
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.program_entries import program_entry
from measurement_kernels.programs import Divided, Fetch, Formula, Program, Shape, Step

_STEP = 32
_READS = {"row": "a[i, k]", "column": "a[k, i]"}
_SEVERAL = {"row": "a[i, k, {0}]", "column": "a[k, {0}, i]"}
_VECTOR = ("direct", "prefetched")


def entries() -> Iterator[CatalogEntry]:
    """List the family."""
    for along in _READS:
        for chains in (1, 2, 4):
            yield _entry(along, f"{along}-sum-{chains}", chains, 128)
        for vector in _VECTOR:
            yield _entry(along, f"{along}-vector-{vector}", 1, 128, vector=vector)
        yield _entry(along, f"{along}-dot", 1, 64, other="b")
        yield _entry(along, f"{along}-norm", 1, 96, other="a")


def _entry(
    along: str, variant: str, chains: int, items: int, *, vector: str = "", other: str = ""
) -> CatalogEntry:
    reads = _READS if chains == 1 else _SEVERAL
    terms = [reads[along].format(chain) for chain in range(chains)]
    if vector:
        terms = [f"{term} * t[k]" for term in terms]
    if other:
        terms = [f"{term} * {other}{term[1:]}" for term in terms]
    inner = () if chains == 1 else (chains,)
    n, m = Extent("n"), Extent("m")
    extents = (n, m, *inner) if along == "row" else (m, *inner, n)
    program = Program(
        name="item_sum",
        loops=(("i", "n"), ("k", "m")),
        formulas=(
            Formula(
                target="r[i]",
                terms=tuple(terms),
                result=" + ".join(f"{{{chain}}}" for chain in range(chains)),
                summed=("k",),
            ),
        ),
        sizes=(
            SizeParameter(name="n", multiple=items, base=1536),
            SizeParameter(name="m", multiple=_STEP, base=1056 // chains),
        ),
        arguments=(
            ArrayArgument(name="a", shape=extents),
            *((ArrayArgument(name="b", shape=extents),) if other == "b" else ()),
            *((ArrayArgument(name="t", shape=(Extent("m"),)),) if vector else ()),
            ArrayArgument(name="r", shape=(Extent("n"),), role="output"),
        ),
    )
    prefetched = vector == "prefetched"
    table = Fetch(array="t", sweep=("k_in",), within=("i_group", "k_step"), axes=(0,))
    shape = Shape(
        divided=(Divided(loop="i", axis=0, items=items),),
        steps=(Step(loop="k", length=_STEP),) if prefetched else (),
        fetches=(table,) if prefetched else (),
    )
    return program_entry(
        program,
        shape,
        family="item-loops",
        variant=variant,
        collection="extended",
        description=f"sums along each {along} with {chains} accumulators",
        exponent_steps=(0, 1),
    )
