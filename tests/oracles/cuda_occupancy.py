"""Groups resident on a multiprocessor by the rules of ``cuda_occupancy.h`` of the CUDA Toolkit 7.0.

The present header has dropped compute capabilities 1.x and 2.x, and the old one is not to be had
from a package registry; these are its rules as read, in its own terms (sub-partitions of the
register file, warps allocated per block), not in those of countperf. On 3.0 and 5.x they are
compared with what the present header computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class _Multiprocessor(NamedTuple):
    threads: int
    threads_per_block: int
    blocks: int
    registers: int
    registers_per_thread: int
    shared: int
    shared_per_block: int


# CUDA C Programming Guide, editions 2.3, 4.2 and 7.0
_MULTIPROCESSORS = {
    "1.0": _Multiprocessor(768, 512, 8, 8192, 128, 16384, 16384),
    "1.1": _Multiprocessor(768, 512, 8, 8192, 128, 16384, 16384),
    "1.3": _Multiprocessor(1024, 512, 8, 16384, 128, 16384, 16384),
    "2.0": _Multiprocessor(1536, 1024, 8, 32768, 63, 49152, 49152),
    "3.0": _Multiprocessor(2048, 1024, 16, 65536, 63, 49152, 49152),
    "5.0": _Multiprocessor(2048, 1024, 32, 65536, 255, 65536, 49152),
    "5.2": _Multiprocessor(2048, 1024, 32, 65536, 255, 98304, 49152),
}


def active_groups_of_cuda_7(capability: str, kernel: Mapping[str, int]) -> int:
    """Return the resident groups; 0 where the kernel cannot run."""
    chip = _MULTIPROCESSORS[capability]
    major, minor = map(int, capability.split("."))
    block = kernel["work_items_per_group"]
    registers = kernel["registers_per_work_item"]
    shared = _up(kernel["local_bytes_per_group"], {1: 512, 2: 128, 3: 256, 5: 256}[major])
    if block > chip.threads_per_block or registers > chip.registers_per_thread:
        return 0
    if shared > chip.shared_per_block:
        return 0
    warps = _up(-(-block // 32), 2 if major == 1 else 1)
    limits = [chip.blocks, chip.threads // 32 // warps]
    if shared:
        limits.append(chip.shared // shared)
    if registers and major == 1:
        limits.append(chip.registers // _up(registers * 32 * warps, 256 if minor <= 1 else 512))
    elif registers:
        partitions = {2: 2, 3: 4, 5: 4}[major]
        unit = 256
        if major == 2:
            unit = 128 if registers in (21, 22, 29, 30, 37, 38, 45, 46) else 64
        per_warp = _up(registers * 32, unit)
        if per_warp * _up(warps, partitions) > chip.registers:
            return 0
        limits.append(chip.registers // partitions // per_warp * partitions // warps)
    return min(limits)


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
