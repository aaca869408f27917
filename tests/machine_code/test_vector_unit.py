"""Integers in vectors, and masks: what `test_processor` does not compare with a processor."""

from __future__ import annotations

import pytest

from countperf.machine_code.machine_state import Machine, condition_of
from countperf.machine_code.vector_unit import lane_addresses, leads_to_integers, vector_action
from tests.machine_code.machines import Words, mask_of, put_mask, run, value, with_vectors, words_of

A, B = (1, 2, 3, 4, 5, 6, 7, 8), (10, 20, 30, 40, 50, 60, 70, 80)
ALL, UNKNOWN, TOP = 0xFFFFFFFF, (None,) * 4, 1 << 31
KEPT = "vmovdqa %xmm1,%xmm2\n"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("vpxor %xmm5,%xmm5,%xmm2", (0,) * 4),
        ("vpcmpeqd %xmm5,%xmm5,%xmm2", (ALL,) * 4),
        ("vpternlogd $0xff,%xmm5,%xmm5,%xmm2", (ALL,) * 4),
        ("vpbroadcastd %eax,%xmm2", (9,) * 4),
        ("vpbroadcastw %ecx,%xmm2", (0x2345_2345,) * 4),
        ("vpbroadcastb %ecx,%xmm2", (0x4545_4545,) * 4),
        ("vmovd %eax,%xmm2", (9, 0, 0, 0)),
        ("vmovd %eax,%xmm2\nvpinsrd $0x2,%eax,%xmm2,%xmm2", (9, 0, 9, 0)),
        ("vmovdqu %ymm0,0x10(%rsp)\nvmovdqu 0x20(%rsp),%xmm2", (5, 6, 7, 8)),
        ("vpermd %ymm0,%ymm3,%ymm2", (4, None, 2, 1)),
        ("vpermt2d %ymm1,%ymm6,%ymm0\nvmovdqa %xmm0,%xmm2", (20, 2, 10, 1)),
        ("vblendvps %xmm5,%xmm0,%xmm7,%xmm2", (1, None, 3, 4)),  # of equal elements, no mask
        (KEPT + "vpaddd %xmm1,%xmm0,%xmm2{%k1}", (11, 20, 33, 40)),
        (KEPT + "vpaddd %xmm1,%xmm0,%xmm2{%k1}{z}", (11, 0, 33, 0)),
        (KEPT + "vpaddd %xmm1,%xmm0,%xmm2{%k3}{z}", (11, None, None, None)),
        ("vmovdqu8 %xmm0,%xmm2{%k4}{z}", (1, 2, 3, 4)),
        ("vpmovm2w %k6,%xmm2", (0xFFFF, 0xFFFF_0000, 0, 0)),
        ("vaddps %xmm1,%xmm0,%xmm2", UNKNOWN),
        ("valignd $0x1,%xmm1,%xmm0,%xmm2", UNKNOWN),  # as what has no rule
        ("vpblendmd %xmm4,%xmm5,%xmm2{%k5}", UNKNOWN),
        ("vpshufd $0x0,%xmm4,%xmm2", UNKNOWN),
        ("vpmovdw %xmm4,%xmm2", (None, None, 0, 0)),
        ("kxnorw %k0,%k0,%k1\nvpgatherdd (%rdi,%zmm0,4),%zmm2{%k1}", UNKNOWN),
    ],
)
def test_results(code: str, expected: Words) -> None:
    vectors = (A, B, (), (3, None, 1, 0), (None, 8) * 8, (None,) * 8, (9, 1, 8, 0), (1, 0, 3, 4))
    machine = with_vectors(*vectors)
    for number, mask, known in ((1, 5, ~0), (3, 1, 1), (4, 0x1115, ~0), (6, 9, ~0)):
        put_mask(machine, number, mask, known)
    assert words_of(run(code, machine, rax=9, rcx=0x1_2345, rsp=1 << 20), 2) == expected


def test_integers_leave_vectors() -> None:
    machine = run("vpextrq $0x1,%xmm1,%rcx", with_vectors(A, B))
    assert value(machine, "rcx") == 30 | 40 << 32
    assert leads_to_integers("vpextrq", "$0x1,%xmm1,%rcx")
    assert not leads_to_integers("vmovd", "%eax,%xmm1")
    assert not leads_to_integers("vptestmd", "%xmm1,%xmm2,%k1")
    assert vector_action("vcvttss2si", "(%rax),%ecx") is not None


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("vpcmpltd %xmm1,%xmm0,%k3", 0b0110),
        ("vpcmpgtd %xmm1,%xmm0,%k3", 0b1001),
        *((f"k{name} %k2,%k1,%k3", mask) for name, mask in (("andb", 8), ("andnw", 2))),
        *((f"k{name} %k2,%k1,%k3", mask) for name, mask in (("ord", 14), ("xorq", 6))),
        ("knotw %k1,%k3", 0xFFF3),
        ("kxnorw %k0,%k0,%k3", 0xFFFF),
        ("kshiftlw $0x4,%k1,%k3", 0b1100_0000),
        ("kshiftrw $0x3,%k1,%k3", 1),
        ("kunpckbw %k1,%k2,%k3", 0b1010_0000_1100),
        ("vpmovw2m %xmm4,%k3", 0b11_00_01_10),
        ("vpmovb2m %xmm5,%k3", 0b0100_0000_0000_1001),
        ("vpmovq2m %xmm6,%k3", 0b01),
        ("vpcmpeqw %xmm7,%xmm7,%k3", 0xFF),
        ("vpcmpltw %xmm9,%xmm8,%k3", 0b00_10_00_01),
        ("vpcmpltuw %xmm9,%xmm8,%k3", 0),
        ("vptestmb %xmm5,%xmm5,%k3", 0b0100_0000_0000_1011),
    ],
)
def test_masks(code: str, expected: int) -> None:
    small = ((TOP + 1, 0x8000, 0, ALL), (0x8000_0180, 0, 0, 0x00FF_0000), (0, TOP, TOP, 0))
    others = (A, (0xFFFF, 0, TOP + 1, 0), (0,) * 4)
    machine = with_vectors(A, (0, 9, 9, 0), (), (), *small, *others)
    put_mask(machine, 1, 0b1100)
    put_mask(machine, 2, 0b1010)
    assert mask_of(run(code, machine), 3) == expected
    assert value(run("kmovw %k3,%ecx", machine), "rcx") == expected % (1 << 16)


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


def test_masked_loads_and_stores() -> None:
    machine = with_vectors((), (TOP, 0, None, ALL), (20, 21, 22, 23))
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
    addresses_in, width = lane_addresses(mnemonic, operands)
    assert width == size
    assert addresses_in(machine) == expected


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
