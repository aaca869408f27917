"""Where instructions access memory."""

from __future__ import annotations

from array import array

import pytest

from countperf.harness.compiled.accesses import (
    MOST_ACCESSES,
    Accesses,
    accesses_of,
    notes_of,
    repeat,
)
from countperf.harness.compiled.machine import REGISTERS, Lanes, Machine


def machine() -> Machine:
    found = Machine(trace=array("q"))
    found.registers[REGISTERS["%rax"].number] = 1000
    found.registers[REGISTERS["%rcx"].number] = 3
    lanes: Lanes = (0, 10, 0xFFFF_FFFF, None, *(0,) * 12)
    found.vectors[1] = lanes
    return found


def noted(mnemonic: str, operands: str) -> Accesses:
    found = machine()
    for note in notes_of(mnemonic, operands):
        note(found)
    assert found.trace is not None
    assert len(found.trace) == accesses_of(mnemonic, operands)
    return Accesses.of(found.trace)


@pytest.mark.parametrize(
    ("mnemonic", "operands", "expected"),
    [
        ("mov", "0x8(%rax,%rcx,4),%edx", [(1020, 4, False)]),
        ("mov", "%rdx,(%rax)", [(1000, 8, True)]),
        ("movzbl", "(%rax),%edx", [(1000, 4, False)]),
        ("add", "%edx,(%rax)", [(1000, 4, False), (1000, 4, True)]),
        ("vmovups", "(%rax),%zmm0", [(1000, 64, False)]),
        ("vmovups", "%ymm0,(%rax){%k1}", [(1000, 32, True)]),
        ("vmulss", "0x4(%rax),%xmm0,%xmm1", [(1004, 4, False)]),
        ("vaddpd", "(%rax){1to8},%zmm0,%zmm1", [(1000, 8, False)]),
        ("vmovaps", "%xmm0,-0x10(%rax)", [(984, 16, True)]),
        ("lea", "(%rax,%rcx,4),%rdx", []),
        ("vaddps", "%zmm0,%zmm1,%zmm2", []),
    ],
)
def test_places_sizes_and_directions(
    mnemonic: str, operands: str, expected: list[tuple[int, int, bool]]
) -> None:
    found = noted(mnemonic, operands)
    columns = (found.address.tolist(), found.size.tolist(), found.is_store.tolist())
    assert list(zip(*columns, strict=True)) == expected


def test_lanes_of_gathers_go_to_places_of_their_own() -> None:
    found = noted("vgatherdps", "0x10(%rax,%xmm1,4),%xmm2{%k1}")
    assert found.address.tolist() == [1016, 1056, 1012]
    assert found.unknown == 1
    assert not found.is_store.any()
    scattered = noted("vscatterdpd", "%ymm2,(%rax,%xmm1,8){%k1}")
    assert scattered.address.tolist() == [1000, 1080, 992]
    assert scattered.is_store.all()
    assert set(scattered.size.tolist()) == {8}


def test_unknown_places_are_counted() -> None:
    found = noted("mov", "(%rbx),%edx")
    assert (len(found.address), found.unknown, len(found)) == (0, 1, 1)


def test_repetitions_go_on_at_each_stride() -> None:
    trace = array("q", [10, 500, -1, 14, 490, -1])
    repeat(trace, 0, 3, 2)
    assert trace.tolist() == [10, 500, -1, 14, 490, -1, 18, 480, -1, 22, 470, -1]


def test_repetitions_end_where_enough_is_noted() -> None:
    trace = array("q", [0, 256])
    repeat(trace, 0, 1, 10**9)
    assert MOST_ACCESSES <= len(trace) <= MOST_ACCESSES + 2
