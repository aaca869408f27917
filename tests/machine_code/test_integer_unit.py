"""Integer instructions, against what the manual says of them."""

from __future__ import annotations

import pytest

from countperf.machine_code.machine_state import Flags, Machine, condition_of
from tests.machine_code.machines import run, value


@pytest.mark.parametrize(
    ("code", "given", "expected"),
    [
        ("cltd\nidiv %ecx", {"rax": 17, "rcx": 5}, 3),
        ("cltd\nidiv %ecx", {"rax": 0xFFFFFFEF, "rcx": 5}, 0xFFFFFFFD),
        ("mov %rcx,0x8(%rsp)\nadd $0x2,0x8(%rsp)\nmov 0x8(%rsp),%rax", {"rsp": 64, "rcx": 5}, 7),
        ("push %rcx\npop %rax", {"rsp": 64, "rcx": 9}, 9),
        ("nopw 0x0(%rax,%rax,1)", {"rax": 3}, 3),
    ],
)
def test_results(code: str, given: dict[str, int], expected: int) -> None:
    assert value(run(code, **given), "rax") == expected


def test_what_is_not_known_stays_unknown() -> None:
    machine = run("add %rcx,%rax\nmov (%rdx),%rbx\nvmovd %xmm0,%esi", rax=1, rdx=1 << 40, rsi=2)
    assert [value(machine, name) for name in ("rax", "rbx", "rsi")] == [None] * 3
    assert machine.flags is None


def test_instructions_without_a_rule_leave_nothing_known_that_they_write() -> None:
    machine = Machine()
    machine.store(64, 32, 7)
    run("rol $0x3,(%rdi)\nxadd %ebx,%eax\nbsf %esi,%ecx\nleave", machine, rdi=64, rbx=1, rax=2)
    assert [value(machine, name) for name in ("rax", "rbx", "rcx", "rbp", "rsp")] == [None] * 5
    assert machine.load(64, 32) is None


def test_the_lowest_byte_may_be_known_alone() -> None:
    machine = run("mov $0x1,%bl\ntest $0x1,%bl")
    assert value(machine, "rbx") is None
    assert machine.flags == Flags("exact", 0, 0, 1, 8)
    assert value(run("mov $0x1,%bl\nmovzbl %bl,%eax"), "rax") == 1


@pytest.mark.parametrize(
    ("code", "true", "false"),
    [
        ("cmp $0x3,%eax", ["l", "le", "b", "be", "ne"], ["e", "g", "ge", "a", "ae"]),
        ("cmp $0x2,%eax", ["e", "le", "ge", "be", "ae", "ns"], ["ne", "l", "g", "b", "a", "s"]),
        ("cmp $0xffffffff,%eax", ["g", "ge", "b", "ne"], ["l", "a", "e"]),
        ("test %eax,%eax", ["ne", "g", "ns", "ae"], ["e", "s", "b", "le"]),
        ("sub $0x3,%eax", ["s", "l", "b"], ["ns", "ge", "e"]),
        ("add $0xfffffffe,%eax", ["e", "b"], ["ne", "l"]),
    ],
)
def test_conditions(code: str, true: list[str], false: list[str]) -> None:
    machine = run(code, rax=2)
    assert {name: condition_of(name)(machine) for name in true + false} == (  # type: ignore[misc]
        dict.fromkeys(true, True) | dict.fromkeys(false, False)
    )


def test_conditions_of_unknown_flags_are_unknown() -> None:
    decide = condition_of("ne")
    assert decide is not None
    assert decide(run("vucomiss %xmm0,%xmm1", rax=2)) is None
    assert condition_of("cxz") is None
    for old, expected in ((6, None), (5, 5)):
        moved = run("cmp (%rdi),%eax\ncmovl %rcx,%rdx", rdi=64, rcx=5, rdx=old)
        assert value(moved, "rdx") == expected


@pytest.mark.parametrize(
    ("code", "given", "suffix", "expected"),
    [
        ("bt %ecx,%eax", {"rax": 0b1000}, "b", None),
        ("mov $0x2,%cl\ntest $0x1,%cl", {}, "e", True),
        ("mov $0x2,%cl\ntest $0x1,%ecx", {}, "e", None),
        ("mov $0x2,%ch\ntest $0x1,%cl", {}, "e", None),
    ],
)
def test_bits_that_are_counted_or_tested(
    code: str, given: dict[str, int], suffix: str, expected: bool | None
) -> None:
    condition = condition_of(suffix)
    assert condition is not None
    assert condition(run(code, **given)) == expected


@pytest.mark.parametrize(
    ("stored", "loaded"),
    [
        (
            [(64, 64, 0x1122334455667788)],
            {(68, 32): 0x11223344, (65, 8): 0x77, (66, 32): 0x33445566},
        ),
        ([(64, 32, 0x55667788), (66, 8, 0xAA)], {(64, 32): 0x55AA7788, (67, 8): 0x55}),
        ([(64, 64, 1), (64, 32, None)], {(64, 64): None, (68, 32): 0, (None, 32): None}),
        # the last byte of one, three of the next
        (
            [(64, 32, 0x44332211), (68, 32, 0x88776655), (67, 32, 0)],
            {(71, 8): 0x88, (64, 32): 0x00332211, (68, 32): 0x88000000},
        ),
        ([], {(16, 32): 0x03020100, (17, 16): 0x0201, (20, 64): None, (8, 8): None}),
    ],
)
def test_memory_is_read_in_other_pieces_than_written(
    stored: list[tuple[int, int, int | None]], loaded: dict[tuple[int | None, int], int | None]
) -> None:
    machine = Machine()
    machine.constants = {16: bytes(range(8))}
    for each in stored:
        machine.store(*each)
    assert {place: machine.load(*place) for place in loaded} == loaded


def test_only_instructions_on_strings_move_their_pointers() -> None:
    machine = Machine()
    machine.store(64 + 24, 32, 0xFFFF_FFFE)
    assert value(run("movslq 0x18(%rdi),%r8", machine, rdi=64), "r8") == 2**64 - 2
    assert value(machine, "rdi") == 64
    assert value(run("stos %al,%es:(%rdi)", machine), "rdi") is None
