"""Access to memory: tiles with halos, sums of items, working sets, strides, pitches, reuse."""

from __future__ import annotations

from collections.abc import Iterator

from measurement_kernels.arguments import SizeParameter, arrays
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.extended.arithmetic import TABLE
from measurement_kernels.groups import GroupShape
from measurement_kernels.programs import (
    Fetch,
    Formula,
    Program,
    Recurrence,
    Shape,
    Step,
    along,
    program_entry,
)

_PLANE_TILE = ("i_item", "j_item"), ("i_group", "j_group")

# --- stencils, through a tile with its halo in local memory or without it

_POINTS = {
    "row3": ((0, -1), (0, 0), (0, 1)),
    "column3": ((-1, 0), (0, 0), (1, 0)),
    "diagonal5": ((-1, -1), (-1, 1), (0, 0), (1, -1), (1, 1)),
    "box9": tuple((i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)),
}


def halo_tiles() -> Iterator[CatalogEntry]:
    """List ``halo-tile``."""
    tile = Fetch("u", *_PLANE_TILE, (1, 0))
    for name, points in _POINTS.items():
        reads = " + ".join(f"u[i + {1 + row}, j + {1 + column}]" for row, column in points)
        for variant, (columns, rows), fetches in (
            *((name, group, (tile,)) for group in ((32, 8), (24, 8), (8, 24))),
            (f"{name}-direct", (32, 8), ()),
        ):
            program = Program(
                "halo_tile",
                (("i", "n"), ("j", "m")),
                (Formula("r[i, j]", (reads,)),),
                (SizeParameter("n", rows, base=600), SizeParameter("m", columns, base=840)),
                arrays("u[n + 2, m + 2], output r[n, m]"),
            )
            shape = Shape(along("ij", (rows, columns)), fetches=fetches)
            yield program_entry(program, shape, "halo-tile", variant, (0, 1))
    for name, radius in (("line3", 1), ("line5", 2), ("line9", 4)):
        for length in (128, 320):
            reads = " + ".join(f"u[i + {offset}]" for offset in range(2 * radius + 1))
            program = Program(
                "halo_line",
                (("i", "n"),),
                (Formula("r[i]", (reads,)),),
                (SizeParameter("n", length, base=500_000),),
                arrays(f"u[n + {2 * radius}], output r[n]"),
            )
            shape = Shape(
                along("i", (length,)), fetches=(Fetch("u", ("i_item",), ("i_group",), (0,)),)
            )
            yield program_entry(program, shape, "halo-tile", name, (0, 1))


# --- sums that single items compute along rows and columns, with one or several accumulators


def item_loops() -> Iterator[CatalogEntry]:
    """List the family."""
    for direction in ("row", "column"):
        for chains in (1, 2, 4):
            yield _item_sum(direction, f"sum-{chains}", chains, 128)
        for vector in ("direct", "prefetched"):
            yield _item_sum(direction, f"vector-{vector}", 1, 128, vector=vector)
        yield _item_sum(direction, "dot", 1, 64, other="b")
        yield _item_sum(direction, "norm", 1, 96, other="a")


def _item_sum(
    direction: str, kind: str, chains: int, items: int, *, vector: str = "", other: str = ""
) -> CatalogEntry:
    inner = "" if chains == 1 else ", {0}"
    where = f"i, k{inner}" if direction == "row" else f"k{inner}, i"
    extents = where.format(chains).replace("i", "n").replace("k", "m")
    terms = [f"a[{where.format(chain)}]" for chain in range(chains)]
    if vector:
        terms = [f"{term} * t[k]" for term in terms]
    if other:
        terms = [f"{term} * {other}{term[1:]}" for term in terms]
    second = f"b[{extents}], " if other == "b" else ""
    table = "t[m], " if vector else ""
    sums = " + ".join(f"{{{chain}}}" for chain in range(chains))
    program = Program(
        "item_sum",
        (("i", "n"), ("k", "m")),
        (Formula("r[i]", tuple(terms), sums, ("k",)),),
        (SizeParameter("n", items, base=1536), SizeParameter("m", 32, base=1056 // chains)),
        arrays(f"a[{extents}], {second}{table}output r[n]"),
    )
    shape = Shape(along("i", (items,)))
    if vector == "prefetched":
        shape = Shape(along("i", (items,)), steps=(Step("k", 32),), fetches=(TABLE,))
    return program_entry(program, shape, "item-loops", f"{direction}-{kind}", (0, 1))


# --- working sets: all groups read the same array repeatedly; its size decides the cache level


def working_sets() -> Iterator[CatalogEntry]:
    """List ``working-set``."""
    items, rows_read = 64, 2**15
    for kibibytes in (8, 32, 128, 512, 2048, 8192, 32768, 65536):
        rows = kibibytes * 1024 // (4 * items)
        passes = max(1, rows_read // rows)
        large = rows > rows_read
        program = Program(
            "working_set",
            (("g", "n"), ("i", items), ("p", "passes"), ("k", "rows")),
            (Formula("r[g, i]", ("a[k, i]",), summed=("p", "k")),),
            (
                SizeParameter("n", base=2 if large else 4),
                SizeParameter("passes", fixed=passes),
                SizeParameter("rows", fixed=rows),
            ),
            arrays(f"a[rows, {items}], output r[n, {items}]"),
        )
        shape = Shape(along("i", (items,)), groups=("g",), priority="p,k")
        steps = (0,) if large else (0, 2)
        yield program_entry(program, shape, "working-set", f"{kibibytes}-kib", steps)


# --- copies and transposes by tiles that end within lines of memory, so that groups share lines
#
# Along the first axis of groups the next group continues a line while a cache still holds it. Along
# the second axis, all groups of the first come between, and as many lines as there are rows.

_TILES: tuple[tuple[GroupShape, GroupShape], ...] = (
    ((4, 4), (1, 1)),
    ((4, 4), (1, 2)),
    ((4, 4), (2, 1)),
    ((4, 4), (2, 2)),
    ((4, 4), (2, 4)),
    ((4, 4), (4, 4)),
    ((8, 4), (1, 1)),
    ((8, 8), (1, 1)),
    ((8, 8), (2, 2)),
    ((16, 2), (1, 1)),
    ((16, 4), (1, 2)),
    ((16, 16), (1, 1)),
    ((32, 4), (1, 1)),
    ((32, 8), (2, 1)),
)
"""Items along the rows and the columns of ``x``, and how many rows and columns each of them has."""


def shared_lines() -> Iterator[CatalogEntry]:
    """List the family."""
    for kind in ("copied", "loaded-apart", "stored-apart"):
        target, extents = ("r[i, j]", "n, m") if kind == "copied" else ("r[j, i]", "m, n")
        for items, each in _TILES:
            for base in (2048, 1952):
                program = Program(
                    "shared_lines",
                    (("i", "n"), ("j", "m")),
                    (Formula(target, ("1.5 * x[i, j]",)),),
                    (
                        SizeParameter("n", items[0] * each[0], base=base),
                        SizeParameter("m", items[1] * each[1], base=base),
                    ),
                    arrays(f"x[n, m], output r[{extents}]"),
                )
                first = 1 if kind == "stored-apart" else 0
                shape = Shape(along("ij", items, each, first_axis=first), block="unr")
                name = f"{kind}-{each[0]}x{each[1]}-{base}"
                yield program_entry(program, shape, "shared-lines", name, (0, 1))


# --- strides, offsets and pitches in global and in local memory, one element per item


def strided_access() -> Iterator[CatalogEntry]:
    """List the family."""
    for stride in (2, 3, 4, 8, 16):
        yield _strided(f"load-{stride}", f"a[{stride} * i]", loads=stride)
    for stride in (2, 8):
        yield _strided(f"store-{stride}", "a[i]", stores=stride)
    for offset in (1, 3):
        yield _strided(f"load-offset-{offset}", f"a[i + {offset}]", margin=offset)
    yield _strided("load-reversed", "a[n - 1 - i]")


def local_access() -> Iterator[CatalogEntry]:
    """List the family."""
    for stride in (1, 2, 3, 4, 8):
        taps = " + ".join(f"a[{stride} * i + {tap}]" for tap in range(max(2, min(stride, 4))))
        yield _strided(f"stride-{stride}", taps, loads=stride, margin=1, local=True)
    for name, width, halo in (
        ("pitch16", 16, 0),
        ("pitch17", 16, 1),
        ("pitch33", 32, 1),
        ("pitch20", 16, 4),
    ):
        yield _shifted_tile(name, width, halo, (1, 0))
        yield _shifted_tile(f"{name}-swapped", width, halo, (0, 1))


def _strided(
    variant: str,
    value: str,
    *,
    loads: int = 1,
    stores: int = 1,
    margin: int = 0,
    local: bool = False,
) -> CatalogEntry:
    target, role = ("r[i]", "output") if stores == 1 else (f"r[{stores} * i]", "updated")
    program = Program(
        "strided",
        (("i", "n"),),
        (Formula(target, (value,)),),
        (SizeParameter("n", 128, base=2**21 // max(loads, stores)),),
        arrays(f"a[{loads}*n + {margin}], {role} r[{stores}*n]"),
    )
    fetches = (Fetch("a", ("i_item",), ("i_group",), (0,)),) if local else ()
    shape = Shape(along("i", (128,)), fetches=fetches)
    family = "local-access" if local else "strided-access"
    return program_entry(program, shape, family, variant, (0, 2))


def _shifted_tile(variant: str, width: int, halo: int, axes: tuple[int, int]) -> CatalogEntry:
    """Return an entry whose tile is read along rows, without a shift and shifted by the halo."""
    height = 128 // width
    reads = " + ".join(f"a[i, j + {shift}]" for shift in range(halo + 1))
    program = Program(
        "local_tile",
        (("i", "n"), ("j", "m")),
        (Formula("r[i, j]", (f"({reads}) * a[i, j]",)),),
        (SizeParameter("n", height, base=520), SizeParameter("m", width, base=1000)),
        arrays(f"a[n, m + {halo}], output r[n, m]"),
    )
    shape = Shape(along("ij", (height, width)), fetches=(Fetch("a", *_PLANE_TILE, axes),))
    return program_entry(program, shape, "local-access", variant, (0, 1))


# --- accesses of each element beside arithmetic, from a tenth to ten times what takes as long
#
# Kernels of the other classes spend nearly all of their time either in the core or in memory, and
# do not show whether the two overlap.

_STEPS = (2, 8, 32, 128)
_MIXED = {
    "stream": ("a[i]", "a[n], output r[n]"),
    "three": ("a[i] + b[i] * c[i]", "a[n], b[n], c[n], output r[n]"),
    "stride-4": ("a[4 * i]", "a[4*n], output r[n]"),
    "structure-of-16": (
        " + ".join(f"{1 + c / 8} * a[i, {c}]" for c in range(16)),
        "a[n, 16], output r[n]",
    ),
}


def mixed() -> Iterator[CatalogEntry]:
    """List ``core-and-memory``: each item loads, computes in a loop, and stores."""
    for kind, (loads, arguments) in _MIXED.items():
        for steps in _STEPS:
            formula = Recurrence("r[i]", ((loads, "0.9375 * s0 + 0.03125"),), "k", "s0")
            sizes = SizeParameter("n", 128, base=2**14), SizeParameter("m", fixed=steps)
            loops = ("i", "n"), ("k", "m")
            yield _mixed_entry(f"{kind}-{steps}", loops, formula, sizes, arguments)
    for steps in _STEPS[:3]:  # in place
        value = "r[i]"
        for _ in range(steps):
            value = f"0.9375 * ({value}) + 0.03125"
        sizes = (SizeParameter("n", 128, base=2**14),)
        formula = Formula("r[i]", (value,))
        yield _mixed_entry(f"update-{steps}", (("i", "n"),), formula, sizes, "updated r[n]")


def _mixed_entry(
    variant: str,
    loops: tuple[tuple[str, str], ...],
    formula: Formula | Recurrence,
    sizes: tuple[SizeParameter, ...],
    arguments: str,
) -> CatalogEntry:
    program = Program("core_and_memory", loops, (formula,), sizes, arrays(arguments))
    shape = Shape(along("i", (128,)))
    return program_entry(program, shape, "core-and-memory", variant, (0, 3, 6))


# --- reuse: accesses that step from row to row, by lanes or in loops
#
# Whether a cache still holds a line when an access returns to it depends on the number of lines in
# between, and on their distance: rows of 1024 or 2048 elements of 4 bytes share a few sets of a
# cache, rows of 960 or 1040 do not. Loads and stores cost differently, and accesses of lanes side
# by side differ from those of each item in a loop.

_OF_LANES = ((16, 1000), (16, 1024), (64, 1040), (64, 2048), (256, 1000), (256, 1024), (256, 1536))
_OF_LOOPS = ((16, 1024), (64, 960), (64, 2048), (512, 960), (512, 1024), (512, 1536), (2048, 1024))
_OF_ROWS = (256, 384, 500, 512, 1000, 1024, 1040, 1536, 2048, 4096)
_ROW_ITEMS = (32, 100, 128, 256)
_ELEMENTS = 1 << 20


def rows() -> Iterator[CatalogEntry]:
    """List ``walks-of-lanes``, ``walks-in-loops`` and ``rows-in-loops``."""
    for direction in ("load", "store"):
        for items, pitch in _OF_LANES:
            yield _between_lanes(direction, items, pitch)
        for number, pitch in _OF_LOOPS:
            yield _down_columns(direction, number, pitch)
    for place, pitch in enumerate(_OF_ROWS):
        for turn, matrices in enumerate(("one", "two")):
            items = _ROW_ITEMS[(place + turn) % len(_ROW_ITEMS)]
            element_type = "f64" if (place + turn) % 3 == 2 else "f32"
            yield _along_rows(items, pitch, matrices, element_type)


def _between_lanes(direction: str, items: int, pitch: int) -> CatalogEntry:
    """Return a permutation whose items read, or write, one row each."""
    far, near = ("q, i, j", "p, n, m"), ("q, j, i", "p, m, n")
    (read, read_shape), (write, write_shape) = (far, near) if direction == "load" else (near, far)
    program = Program(
        f"{direction}_rows",
        (("q", "p"), ("i", "n"), ("j", "m")),
        (Formula(f"r[{write}]", (f"a[{read}]",)),),
        (
            SizeParameter("p", base=max(1, _ELEMENTS // (items * pitch))),
            SizeParameter("n", items, fixed=items),
            SizeParameter("m", fixed=pitch),
        ),
        arrays(f"a[{read_shape}], output r[{write_shape}]"),
    )
    shape = Shape(along("i", (items,)), groups=("j", "q"))
    return program_entry(program, shape, "walks-of-lanes", f"{direction}-of-{pitch}", (0, 2))


def _down_columns(direction: str, number: int, pitch: int) -> CatalogEntry:
    """Return an entry whose items run down a column each, side by side."""
    if direction == "load":
        formula = Formula("r[q, i]", ("a[q, k, i]",), summed=("k",))
        arguments = "a[p, n, m], output r[p, m]"
    else:
        formula = Formula("r[q, k, i]", ("a[q, i] * c[k]",))
        arguments = "a[p, m], c[n], output r[p, n, m]"
    program = Program(
        f"{direction}_columns",
        (("q", "p"), ("i", "m"), ("k", "n")),
        (formula,),
        (
            SizeParameter("p", base=max(1, _ELEMENTS // (number * pitch))),
            SizeParameter("n", fixed=number),
            SizeParameter("m", 64, fixed=pitch),
        ),
        arrays(arguments),
    )
    shape, name = Shape(along("i", (64,)), groups=("q",)), f"{direction}-{number}-of-{pitch}"
    return program_entry(program, shape, "walks-in-loops", name, (0, 2))


def _along_rows(items: int, pitch: int, matrices: str, element_type: str) -> CatalogEntry:
    """Return an entry whose items run along a row each, of one matrix or two, beside a vector."""
    names = "a" if matrices == "one" else "ab"
    sums = " + 0.75 * ".join(f"{{{place}}}" for place in range(len(names)))
    program = Program(
        f"along_rows_of_{matrices}",
        (("i", "n"), ("k", "m")),
        (Formula("r[i]", tuple(f"{name}[i, k] * c[k]" for name in names), sums, ("k",)),),
        (
            SizeParameter("n", items, base=max(1, _ELEMENTS // (8 * pitch * items))),
            SizeParameter("m", fixed=pitch),
        ),
        arrays("".join(f"{name}[n, m], " for name in names) + "c[m], output r[n]"),
        element_type,
    )
    shape, name = Shape(along("i", (items,))), f"{matrices}-of-{pitch}"
    return program_entry(program, shape, "rows-in-loops", name, (0, 2, 4))
