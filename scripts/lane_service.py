"""In which parts and order a device serves the lanes of a sub-group.

`countperf.counting.access_analysis` lets all lanes of a sub-group share lines. Some devices serve
the lanes in parts, and lanes of different parts share less:

- *Maxwell, global memory*: lanes 0-3 and 8-11, then 4-7 and 12-15, then the same of the upper half
  (`MAXWELL_LANES`). Each part asks its first-level (texture) cache for every sector that it
  touches. A store's part goes on in the line in which the part before it ended, so that sectors of
  that line are written once (`joined_bytes`).
- *Wide loads from local memory*: compilers read four neighboring 32-bit elements of an item's own
  loop at once. Kepler serves them by halves of a sub-group; Maxwell by quarters, or by halves where
  each two neighboring lanes read the same (`WideService`). A part that has no active lane takes a
  pass like the others.

NVIDIA documents none of this in full; the rules are those that reproduce the hardware counters
that Amaris et al. published of four Maxwell and six Kepler GPUs (`scripts/compare_gpu_counters`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd, lcm
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from countperf.counting.access_analysis import access_patterns, in_sub_groups
from countperf.symbolic.quasipolynomial import QuasiPolynomial

if TYPE_CHECKING:
    from countperf.counting.access_analysis import AccessAnalysis

_LANES = 32
_SECTOR_BYTES = 32

MAXWELL_LANES: tuple[tuple[int, ...], ...] = tuple(
    (*range(start, start + 4), *range(start + 8, start + 12)) for start in (0, 4, 16, 20)
)
"""Lanes of each part of a sub-group of 32, in the order in which Maxwell serves them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WideService:
    """Rule by which a device serves loads of four 32-bit elements from local memory."""

    bank_width_bytes: int  # bytes of a word of one of the 32 banks
    lanes: int  # lanes of a part
    paired_lanes: int  # lanes of a part where each two neighboring lanes read the same


_ONE = QuasiPolynomial.constant(1)

KEPLER_WIDE = WideService(bank_width_bytes=8, lanes=16, paired_lanes=16)
"""Compute capability 3."""

MAXWELL_WIDE = WideService(bank_width_bytes=4, lanes=8, paired_lanes=16)
"""Compute capability 5."""


def served_sectors(
    access: AccessAnalysis,
    parameters: Mapping[str, Any],
    *,
    joined_bytes: int = 0,
) -> int:
    """Count the sectors of 32 bytes that the parts of all sub-groups ask for."""
    size = access.access.bits // 8
    span = lcm(_SECTOR_BYTES, joined_bytes or _SECTOR_BYTES)
    total = 0
    for pattern in access_patterns(access, parameters, span // gcd(span, size)):
        offsets, active = in_sub_groups(pattern, _LANES)
        for shift, number in pattern.shifts.items():
            addresses = (offsets + shift) * size
            for row, lanes in zip(addresses, active, strict=True):
                total += number * _served(row, lanes, size, joined_bytes)
    return total * access.repeats


def _served(
    addresses: NDArray[np.int64],
    active: NDArray[np.bool_],
    size: int,
    joined_bytes: int,
) -> int:
    """Count the sectors that the parts of one sub-group ask for."""
    total = 0
    line, written = -1, frozenset[int]()
    for part in MAXWELL_LANES:
        sectors = [
            sector
            for lane in part
            if active[lane]
            for sector in range(
                int(addresses[lane]) // _SECTOR_BYTES,
                (int(addresses[lane]) + size - 1) // _SECTOR_BYTES + 1,
            )
        ]
        if not joined_bytes:
            total += len(set(sectors))
            continue
        by_line: dict[int, set[int]] = {}
        for sector in sectors:
            by_line.setdefault(sector * _SECTOR_BYTES // joined_bytes, set()).add(sector)
        for this, touched in by_line.items():
            known = written if this == line else frozenset[int]()
            total += len(touched - known)
            line, written = this, known | touched
    return total


def wide_load_passes(
    access: AccessAnalysis,
    parameters: Mapping[str, Any],
    service: WideService,
) -> tuple[int, int]:
    """Count loads of four elements at once from local memory, and their passes over the banks."""
    if access.access.bits != 32 or not any(
        each.kind in ("loop", "unrolled") and each.stride == _ONE for each in access.strides
    ):
        return 0, 0
    instructions = passes = elements = 0
    for pattern in access_patterns(access, parameters, 8 * service.bank_width_bytes):
        offsets, active = in_sub_groups(pattern, _LANES)
        for shift, number in pattern.shifts.items():
            starts = offsets + shift
            for row, lanes in zip(starts, active, strict=True):
                if not lanes.any():
                    continue
                elements += number
                if (row[lanes] % 4).any():
                    continue
                instructions += number
                passes += number * _wide_passes(row, lanes, service)
    if 4 * instructions != elements:
        return 0, 0
    return instructions * access.repeats, passes * access.repeats


def _wide_passes(starts: NDArray[np.int64], active: NDArray[np.bool_], service: WideService) -> int:
    """Count the passes of one sub-group's loads of four elements."""
    pairs = starts.reshape(-1, 2)
    both = active.reshape(-1, 2).all(axis=1)
    is_paired = bool((pairs[both, 0] == pairs[both, 1]).all())
    lanes = service.paired_lanes if is_paired else service.lanes
    total = 0
    for first in range(0, len(starts), lanes):
        part = slice(first, first + lanes)
        begins = starts[part][active[part]] * 4
        reached = np.unique(begins[:, None] + np.arange(0, 16, 4))
        words = np.unique(reached // service.bank_width_bytes)
        degrees = np.bincount(words % 32) if len(words) else np.zeros(1, np.int64)
        total += max(1, int(degrees.max()))
    return total
