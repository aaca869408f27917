"""Accesses of compiled code that come back too late for a cache."""

from __future__ import annotations

from typing import Any

import pytest

from countperf.counting.structure.memory_hierarchy import load_hierarchy
from countperf.machine_code.classify_x86 import missed, set_conflicts
from countperf.machine_code.machine_state import REGISTERS, Machine
from tests.machine_code.machines import program

LINE_BYTES, SETS, WAYS = 64, 64, 8
WAY_BYTES = LINE_BYTES * SETS
ZEN_5 = load_hierarchy("amd-zen5").counted  # 48 KiB of 12 ways


@pytest.mark.parametrize("lines", [WAYS, WAYS + 1])
@pytest.mark.parametrize("apart", [WAY_BYTES, 3 * WAY_BYTES, WAY_BYTES // 2, LINE_BYTES])
def test_as_many_lines_of_a_set_as_a_cache_has_are_kept(lines: int, apart: int) -> None:
    shared = WAY_BYTES // apart if apart < WAY_BYTES else 1  # sets that they are spread over
    accessed = {number: 64 + apart * number for number in range(lines * shared)}
    conflicts = set_conflicts([range(lines * shared)], accessed)
    assert conflicts == (dict.fromkeys(accessed, 1 / WAYS) if lines > WAYS else {})


def test_accesses_to_the_same_line_are_one_of_it() -> None:
    accessed = {number: WAY_BYTES * (number // 2) + 8 * (number % 2) for number in range(2 * WAYS)}
    assert not set_conflicts([range(2 * WAYS)], accessed)
    accessed[2 * WAYS] = WAY_BYTES * WAYS
    assert len(set_conflicts([range(2 * WAYS + 1)], accessed)) == 2 * WAYS + 1


def test_blocks_are_taken_one_by_one() -> None:
    accessed = {number: WAY_BYTES * number for number in range(2 * WAYS)}
    assert not set_conflicts([range(WAYS), range(WAYS, 2 * WAYS)], accessed)
    assert set_conflicts([range(2 * WAYS)], accessed)
    some = {number: at for number, at in accessed.items() if number % 2}
    assert not set_conflicts([range(2 * WAYS)], some)  # the others have unknown addresses


def items_of(arrays: int, items: int, array_bytes: int) -> str:
    """A loop over items that loads one element from each of some arrays on the stack."""
    lines = [
        f"vmovss {array * array_bytes}(%rax,%rcx,4),%xmm{array % 16}" for array in range(arrays)
    ]
    top = f"lea -{arrays * array_bytes}(%rsp),%rax"
    return "\n".join(
        ("f:", top, "xor %ecx,%ecx", *lines, "inc %rcx", f"cmp ${items:#x},%rcx", "jne 2", "ret")
    )


@pytest.mark.parametrize(
    ("cache", "arrays", "array_bytes", "share_conflicting"),
    [
        (None, 8, 4096, 0),
        (None, 9, 4096, 1 / 8),
        (None, 33, 4096, 25 / 32),
        (None, 16, 1024, 0),
        (None, 36, 1024, 1 / 8),
        (None, 12, 4096 + 64, 0),
        (ZEN_5.code, 9, 4096, 0),
        (ZEN_5.code, 12, 4096, 0),
        (ZEN_5.code, 13, 4096, 1 / 12),
        (ZEN_5.code, 33, 4096, 21 / 32),
    ],
)
def test_what_items_keep_on_the_stack(
    cache: Any, arrays: int, array_bytes: int, share_conflicting: float
) -> None:
    items = array_bytes // 4
    code = program(items_of(arrays, items, array_bytes))
    machine = Machine()
    counts = code.executed("f", machine)
    misses = missed(code, counts, machine.accessed, *([cache] if cache else []))
    assert misses["miss.conflict.load"] == round(share_conflicting * items) * arrays
    assert not misses["miss.conflict.store"]


def test_addresses_are_those_of_the_first_time() -> None:
    machine = Machine()
    machine.registers[REGISTERS["%rdi"].number] = 1 << 20
    code = program(
        "f:\nmov $0x0,%eax\nmov (%rdi,%rax,8),%rdx\ninc %rax\ncmp $0x64,%rax\njne 1\nret"
    )
    assert code.executed("f", machine)[1] == 100
    assert machine.accessed == {1: 1 << 20}


def test_a_cache_of_more_ways_keeps_more_lines_of_a_set() -> None:
    apart = {number: 4096 * number for number in range(15)}

    conflicts = set_conflicts([range(15)], apart, ZEN_5.first)

    assert conflicts[0] == (15 - 12) / (15 - 1)
