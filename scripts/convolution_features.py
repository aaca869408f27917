"""Counts of one work group of the published convolution.

All groups do the same, but for the tiles that reach beyond the image: these compute whole tiles,
and load and store less. Counts are of one whole tile.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Any

from countperf.counting.access_analysis import AccessAnalysis
from countperf.counting.analysis import analyze_kernel
from countperf.counting.transactions import bank_conflicts, transactions
from measurement_kernels.published.convolution import build_convolution
from merged_loads import merged_share

IMAGE = 4096
"""Rows and columns of the published image."""

UNROLLED = ("i", "j", "ey", "ex")
LANES, BANKS, SECTOR, LINE = 32, 32, 32, 128
_SAVED_EVERY = 20

Choice = tuple[int, int, int, int, int]
"""Items along x and y, pixels of an item along x and y, whether rows are padded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCounts:
    """Counts of a work group.

    Attributes
    ----------
    items, pixels : int
        Work items, and pixels that they compute.
    tile_elements : int
        Elements that are copied into local memory.
    fused : int
        Fused multiply-adds of work items.
    fused_instructions : int
        Of sub-groups of 32.
    loads, load_sectors, load_lines : int
        Loads of sub-groups from global memory, and the sectors and lines of 128 bytes that they
        touch.
    local_stores, local_store_passes : int
        Stores of sub-groups to local memory, and their passes over the banks.
    local_loads, local_load_passes : int
        The same of loads, each element of an item once.
    local_load_elements : int
        Elements that items load from local memory, each once.
    local_bytes : int
        Local memory of the group, byte.
    """

    items: int
    pixels: int
    tile_elements: int
    fused: int
    fused_instructions: int
    loads: int
    load_sectors: int
    load_lines: int
    local_stores: int
    local_store_passes: int
    local_loads: int
    local_load_passes: int
    local_load_elements: int
    local_bytes: int

    @property
    def sub_groups(self) -> int:
        """Sub-groups of 32."""
        return -(-self.items // LANES)


def count_group(choice: Choice) -> GroupCounts:
    """Count a whole tile of a variant."""
    wide, high, columns, rows, padding = choice
    unit = build_convolution(wide, high, columns, rows, use_padding=padding)
    sizes = {"h": high * rows, "w": wide * columns}
    accesses = analyze_kernel(unit).accesses

    def one(space: str, direction: str) -> AccessAnalysis:
        (found,) = (
            each
            for each in accesses
            if (each.access.address_space, each.access.direction) == (space, direction)
            and each.access.array != "taps"
        )
        return found

    def local(access: AccessAnalysis) -> tuple[int, int]:
        found = bank_conflicts(access, sizes, banks=BANKS, bank_width_bytes=4, sub_group_size=LANES)
        return found.instructions, sum(d * number for d, number in found.distribution)

    image, read = one("global", "load"), one("local", "load")
    touched = transactions(image, sizes, line_bytes=SECTOR, sub_group_size=LANES)
    share = merged_share(read, UNROLLED)
    reads, read_passes = local(read)
    stores, store_passes = local(one("local", "store"))
    elements = int(read.executions.evaluate(sizes))
    tile: Any = unit.default_entrypoint.temporary_variables["tile"].shape
    return GroupCounts(
        items=wide * high,
        pixels=wide * high * columns * rows,
        tile_elements=int(image.executions.evaluate(sizes)),
        fused=elements,
        fused_instructions=reads,
        loads=sum(number for _, number in touched.distribution),
        load_sectors=touched.transactions,
        load_lines=transactions(image, sizes, line_bytes=LINE, sub_group_size=LANES).transactions,
        local_stores=stores,
        local_store_passes=store_passes,
        local_loads=int(reads * share),
        local_load_passes=int(read_passes * share),
        local_load_elements=int(elements * share),
        local_bytes=4 * prod(int(extent) for extent in tile),
    )


def is_whole(choice: Choice) -> bool:
    """Tell whether the tiles of a variant divide the image."""
    wide, high, columns, rows, _ = choice
    return IMAGE % (wide * columns) == 0 and IMAGE % (high * rows) == 0


def groups(choice: Choice) -> int:
    """Return the work groups of a variant."""
    wide, high, columns, rows, _ = choice
    return -(-IMAGE // (wide * columns)) * -(-IMAGE // (high * rows))


def count_groups(
    choices: Iterable[Choice], path: Path | None = None
) -> Mapping[Choice, GroupCounts]:
    """Count variants; those that a file has already are taken from there, and others added to it.

    Parameters
    ----------
    choices : iterable of Choice
        Variants.
    path : Path, optional
        The file (JSON).
    """
    known: dict[str, GroupCounts] = {}
    if path is not None and path.exists():
        known = {name: GroupCounts(**one) for name, one in json.loads(path.read_text()).items()}

    def save() -> None:
        if path is not None:
            path.write_text(json.dumps({name: asdict(one) for name, one in known.items()}))

    found: dict[Choice, GroupCounts] = {}
    for choice in dict.fromkeys(choices):
        name = ",".join(map(str, choice))
        if name not in known:
            known[name] = count_group(choice)
            if len(known) % _SAVED_EVERY == 0:
                save()
        found[choice] = known[name]
    save()
    return found
