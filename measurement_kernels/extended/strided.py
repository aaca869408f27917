"""Access to global and to local memory with strides, offsets and pitches, one element per item."""

from __future__ import annotations

from collections.abc import Iterator

from measurement_kernels.arguments import ArrayArgument, Extent, SizeParameter
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.program_entries import program_entry
from measurement_kernels.programs import Divided, Fetch, Formula, Program, Shape

_ITEMS = 128
_GLOBAL_STRIDES = (2, 3, 4, 8, 16)
_OFFSETS = (1, 3)
_LOCAL_STRIDES = (1, 2, 3, 4, 8)
_TILES = {"pitch16": (16, 0), "pitch17": (16, 1), "pitch33": (32, 1), "pitch20": (16, 4)}


def entries() -> Iterator[CatalogEntry]:
    """List both families."""
    for stride in _GLOBAL_STRIDES:
        yield _line(f"load-{stride}", f"a[{stride} * i]", loads=stride)
    for stride in (2, 8):
        yield _line(f"store-{stride}", "a[i]", stores=stride)
    for offset in _OFFSETS:
        yield _line(f"load-offset-{offset}", f"a[i + {offset}]", margin=offset)
    yield _line("load-reversed", "a[n - 1 - i]")
    for stride in _LOCAL_STRIDES:
        taps = " + ".join(f"a[{stride} * i + {tap}]" for tap in range(max(2, min(stride, 4))))
        yield _line(f"stride-{stride}", taps, loads=stride, margin=1, local=True)
    for name, (width, halo) in _TILES.items():
        yield _tile(name, width, halo, swapped=False)
        yield _tile(f"{name}-swapped", width, halo, swapped=True)


def _line(
    variant: str,
    value: str,
    *,
    loads: int = 1,
    stores: int = 1,
    margin: int = 0,
    local: bool = False,
) -> CatalogEntry:
    target = ArrayArgument(
        name="r",
        shape=(Extent("n", factor=stores),),
        role="output" if stores == 1 else "updated",
    )
    program = Program(
        name="strided",
        loops=(("i", "n"),),
        formulas=(Formula(target=f"r[{stores} * i]" if stores > 1 else "r[i]", terms=(value,)),),
        sizes=(SizeParameter(name="n", multiple=_ITEMS, base=2**21 // max(loads, stores)),),
        arguments=(
            ArrayArgument(name="a", shape=(Extent("n", offset=margin, factor=loads),)),
            target,
        ),
    )
    fetch = Fetch(array="a", sweep=("i_item",), within=("i_group",), axes=(0,))
    shape = Shape(
        divided=(Divided(loop="i", axis=0, items=_ITEMS),), fetches=(fetch,) if local else ()
    )
    return program_entry(
        program,
        shape,
        family="local-access" if local else "strided-access",
        variant=variant,
        collection="extended",
        description="strided or misaligned access of each item",
        exponent_steps=(0, 2),
    )


def _tile(variant: str, width: int, halo: int, *, swapped: bool) -> CatalogEntry:
    """Make a tile that is read along rows, from its first column on and shifted by the halo."""
    height = 128 // width
    reads = " + ".join(f"a[i, j + {shift}]" for shift in range(halo + 1))
    program = Program(
        name="local_tile",
        loops=(("i", "n"), ("j", "m")),
        formulas=(Formula(target="r[i, j]", terms=(f"({reads}) * a[i, j]",)),),
        sizes=(
            SizeParameter(name="n", multiple=height, base=520),
            SizeParameter(name="m", multiple=width, base=1000),
        ),
        arguments=(
            ArrayArgument(name="a", shape=(Extent("n"), Extent("m", offset=halo))),
            ArrayArgument(name="r", shape=(Extent("n"), Extent("m")), role="output"),
        ),
    )
    shape = Shape(
        divided=(
            Divided(loop="i", axis=1, items=height),
            Divided(loop="j", axis=0, items=width),
        ),
        fetches=(
            Fetch(
                array="a",
                sweep=("i_item", "j_item"),
                within=("i_group", "j_group"),
                axes=(0, 1) if swapped else (1, 0),
            ),
        ),
    )
    return program_entry(
        program,
        shape,
        family="local-access",
        variant=variant,
        collection="extended",
        description="tile in local memory, fetched along rows or columns, read with shifts",
        exponent_steps=(0, 1),
    )
