"""Integers in vectors, and masks."""

from __future__ import annotations

import pytest

from countperf.machine_code.machine_state import Machine, condition_of
from countperf.machine_code.vector_unit import lane_addresses, leads_to_integers, vector_action
from tests.machine_code.machines import (
    Words,
    mask_of,
    put_mask,
    run,
    value,
    with_vectors,
    words_of,
)

A, B = (1, 2, 3, 4, 5, 6, 7, 8), (10, 20, 30, 40, 50, 60, 70, 80)
ALL = 0xFFFFFFFF


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("vpxor %xmm5,%xmm5,%xmm2", (0, 0, 0, 0)),
        ("vpcmpeqd %xmm5,%xmm5,%xmm2", (ALL,) * 4),
        ("vpternlogd $0xff,%xmm5,%xmm5,%xmm2", (ALL,) * 4),
        ("vpmovqd %ymm0,%xmm2", (1, 3, 5, 7)),
        ("vpbroadcastd %eax,%xmm2", (9,) * 4),
        ("vmovd %eax,%xmm2", (9, 0, 0, 0)),
        ("vmovd %eax,%xmm2\nvpinsrd $0x2,%eax,%xmm2,%xmm2", (9, 0, 9, 0)),
        ("vmovdqu %ymm0,0x10(%rsp)\nvmovdqu 0x20(%rsp),%xmm2", (5, 6, 7, 8)),
        ("vmovdqu %ymm0,0x10(%rsp)\nvpaddd 0x14(%rsp){1to4},%xmm1,%xmm2", (12, 22, 32, 42)),
        ("vaddps %xmm1,%xmm0,%xmm2", (None,) * 4),
    ],
)
def test_results(code: str, expected: Words) -> None:
    machine = run(code, with_vectors(A, B), rax=9, rsp=1 << 20)
    assert words_of(machine, 2) == expected


def test_permutations_by_index() -> None:
    machine = with_vectors(A, B, (9, 1, 8, 0))
    assert words_of(run("vpermt2d %ymm1,%ymm2,%ymm0", machine), 0) == (20, 2, 10, 1)
    machine = with_vectors(A, B, (3, None, 1, 0))
    assert words_of(run("vpermd %ymm0,%ymm2,%ymm3", machine), 3) == (4, None, 2, 1)


def test_integers_leave_vectors() -> None:
    machine = run("vpextrq $0x1,%xmm1,%rcx", with_vectors(A, B))
    assert value(machine, "rcx") == 30 | 40 << 32
    assert leads_to_integers("vpextrq", "$0x1,%xmm1,%rcx")
    assert not leads_to_integers("vmovd", "%eax,%xmm1")
    assert not leads_to_integers("vptestmd", "%xmm1,%xmm2,%k1")
    assert vector_action("vcvttss2si", "(%rax),%ecx") is not None


def test_masks_of_comparisons() -> None:
    machine = run(
        "vpcmpltd %xmm1,%xmm0,%k1\nvpcmpgtd %xmm1,%xmm0,%k2", with_vectors(A, (0, 9, 9, 0))
    )
    assert mask_of(machine, 1) == 0b0110
    assert mask_of(machine, 2) == 0b1001
    run("kandw %k1,%k2,%k3\nkorw %k1,%k2,%k4\nknotw %k1,%k5\nkxnorw %k0,%k0,%k6", machine)
    assert [mask_of(machine, number) for number in (3, 4, 5, 6)] == [0, 0b1111, 0xFFF9, 0xFFFF]
    run("kmovw %k4,%eax\nkshiftlw $0x4,%k4,%k7", machine)
    assert machine.registers[0] == 0b1111
    assert mask_of(machine, 7) == 0xF0


def test_results_under_masks() -> None:
    machine = run("mov $0x5,%eax\nkmovw %eax,%k1\nvmovdqa %xmm1,%xmm2", with_vectors(A, B))
    kept = run("vpaddd %xmm1,%xmm0,%xmm2{%k1}", machine)
    assert words_of(kept, 2) == (11, 20, 33, 40)
    assert words_of(run("vpaddd %xmm1,%xmm0,%xmm2{%k1}{z}", machine), 2) == (11, 0, 33, 0)
    put_mask(machine, 1, 1, 1)  # of the others nothing is known
    assert words_of(run("vpaddd %xmm1,%xmm0,%xmm2{%k1}{z}", machine), 2) == (11, None, None, None)


@pytest.mark.parametrize(
    ("mask", "known", "is_zero", "is_full"),
    [
        (0, 0xFFFF, True, False),
        (0xFFFF, 0xFFFF, False, True),
        (1, 0xFFFF, False, False),
        (1, 1, False, None),
        (0, 1, None, None),
    ],
)
def test_tests_of_masks(
    mask: int, known: int, *, is_zero: bool | None, is_full: bool | None
) -> None:
    machine = Machine()
    put_mask(machine, 1, mask, known)
    run("kortestw %k1,%k1", machine)
    equal, carry = condition_of("e"), condition_of("b")
    assert equal is not None
    assert carry is not None
    assert equal(machine) is is_zero
    if is_full is not None:
        assert carry(machine) is is_full


def test_gathers_end_with_an_empty_mask() -> None:
    machine = run("kxnorw %k0,%k0,%k1\nvpgatherdd (%rax,%zmm0,4),%zmm2{%k1}", with_vectors(A))
    assert mask_of(machine, 1) == 0
    assert words_of(machine, 2) == (None,) * 4


@pytest.mark.parametrize(
    ("code", "vector", "expected"),
    [
        ("vpmovw2m %xmm0,%k1", (0x8000_0001, 0x0000_8000, 0, 0xFFFF_FFFF), 0b11_00_01_10),
        ("vpmovb2m %xmm0,%k1", (0x8000_0080, 0, 0, 0x00FF_0000), 0b0100_0000_0000_1001),
        ("vpmovq2m %xmm0,%k1", (0, 1 << 31, 1 << 31, 0), 0b01),
        ("vpcmpeqw %xmm0,%xmm0,%k1", (1, 2, 3, 4), 0xFF),
        ("vpcmpltw %xmm1,%xmm0,%k1", (0x0000_FFFF, 0, 0x8000_0001, 0), 0b00_10_00_01),
        ("vpcmpltuw %xmm1,%xmm0,%k1", (0x0000_FFFF, 0, 0x8000_0001, 0), 0),
        ("vptestmb %xmm0,%xmm0,%k1", (0x0100_0001, 0, 0, 0x0002_0000), 0b0100_0000_0000_1001),
    ],
)
def test_masks_of_small_elements(code: str, vector: Words, expected: int) -> None:
    machine = run(code, with_vectors(vector, (0, 0, 0, 0)))
    assert mask_of(machine, 1) == expected


def test_small_elements_are_spread() -> None:
    machine = Machine()
    put_mask(machine, 1, 0b10_01)
    assert words_of(run("vpmovm2w %k1,%xmm2", machine), 2) == (0xFFFF, 0xFFFF_0000, 0, 0)
    assert words_of(run("vpbroadcastw %eax,%xmm2", rax=0x1_2345), 2) == (0x2345_2345,) * 4
    assert words_of(run("vpbroadcastb %eax,%xmm2", rax=0x1FF), 2) == (ALL,) * 4


@pytest.mark.parametrize(
    ("name", "expected"),
    [("kandb", 0b1000), ("kandnw", 0b0010), ("kord", 0b1110), ("kxorq", 0b0110)],
)
def test_masks_are_combined(name: str, expected: int) -> None:
    machine = Machine()
    put_mask(machine, 1, 0b1100)
    put_mask(machine, 2, 0b1010)
    run(f"{name} %k2,%k1,%k3", machine)
    assert mask_of(machine, 3) == expected


def test_a_blend_of_equal_elements_needs_no_mask() -> None:
    machine = with_vectors((), (None,) * 8, A, (), (1, 0, *A[2:]))
    run("vblendvps %ymm1,%ymm2,%ymm4,%ymm3", machine)
    assert words_of(machine, 3, 8) == (1, None, *A[2:])


def test_masked_loads_and_stores() -> None:
    machine = with_vectors((), (1 << 31, 0, None, ALL), (20, 21, 22, 23))
    machine.registers[0] = 0x1000
    for lane in range(4):
        machine.store(0x1000 + 4 * lane, 32, 10 + lane)
    run("vpmaskmovd (%rax),%xmm1,%xmm3", machine)
    assert words_of(machine, 3) == (10, 0, None, 13)
    for name in ("vpmaskmovd", "vmaskmovps"):
        run(f"{name} %xmm2,%xmm1,(%rax)", machine)
        loaded = [machine.load(0x1000 + 4 * lane, 32) for lane in range(4)]
        assert loaded == [20, 11, None, 23]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("valignd $0x1,%xmm1,%xmm2,%xmm3", (None,) * 4),  # as what has no rule
        ("vpblendmd %xmm1,%xmm2,%xmm3{%k1}", (None, None, None, None)),
        ("vpshufd $0x0,%xmm1,%xmm3", (None,) * 4),
        ("vpmovdw %xmm1,%xmm3", (None, None, 0, 0)),
        ("vpaddd %xmm0,%xmm0,%xmm3{%k2}{z}", (2, 0, 6, 0)),
        ("vmovdqu8 %xmm0,%xmm3{%k2}{z}", (1, 2, 3, 4)),
    ],
)
def test_unknown_elements_stay_unknown(code: str, expected: Words) -> None:
    machine = with_vectors(A, (None, 8) * 8, (None, 9) * 8)
    put_mask(machine, 2, 0b1_0001_0001_0101)
    assert words_of(run(code, machine), 3) == expected


@pytest.mark.parametrize(
    ("mnemonic", "operands", "size", "expected"),
    [
        ("vgatherdps", "0x10(%rax,%xmm1,4),%xmm2{%k1}", 4, [1016, 1056, 1012, None]),
        ("vscatterdpd", "%ymm2,(%rax,%xmm1,8){%k1}", 8, [1000, 1080, 992, None]),
        ("vpgatherqd", "0x38(,%ymm3,1),%xmm4{%k1}", 4, [156, 56 + (7 << 32) + 8, None, 56]),
        ("vpscatterqq", "%ymm16,0x70(,%ymm3,2){%k1}", 8, [312, 128 + (7 << 33), None, 112]),
    ],
)
def test_addresses_of_gathers_and_scatters(
    mnemonic: str, operands: str, size: int, expected: list[int | None]
) -> None:
    machine = with_vectors((), (0, 10, ALL, None), (), (100, 0, 8, 7, None))
    machine.registers[0] = 1000
    addresses, width = lane_addresses(mnemonic, operands)
    assert width == size
    assert [address(machine) for address in addresses] == expected


def test_integers_are_gathered_and_scattered_under_masks() -> None:
    machine = with_vectors((0, 1, 2, 3), (), (9, 9, 9, 9))
    machine.registers[0] = 0x1000
    for lane in range(3):
        machine.store(0x1000 + 4 * lane, 32, 20 + lane)
    put_mask(machine, 1, 0b1011)
    run("vpgatherdd (%rax,%xmm0,4),%xmm2{%k1}", machine)
    assert words_of(machine, 2) == (20, 21, 9, None)
    assert mask_of(machine, 1) == 0
    put_mask(machine, 1, 0b0110)
    run("vpscatterdd %xmm0,0x4(%rax,%xmm0,4){%k1}", machine)
    assert [machine.load(0x1004 + 4 * lane, 32) for lane in range(3)] == [21, 1, 2]
