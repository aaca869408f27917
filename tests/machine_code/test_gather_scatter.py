"""Where lanes of gathers and scatters access memory."""

from __future__ import annotations

import pytest

from countperf.machine_code.gather_scatter import lanes_of
from countperf.machine_code.machine_state import REGISTERS, Machine


@pytest.mark.parametrize(
    ("mnemonic", "operands", "size", "expected"),
    [
        ("vgatherdps", "0x10(%rax,%xmm1,4),%xmm2{%k1}", 4, [1016, 1056, 1012, None]),
        ("vscatterdpd", "%ymm2,(%rax,%xmm1,8){%k1}", 8, [1000, 1080, 992, None]),
        ("vpgatherqd", "0x38(,%ymm3,1),%xmm4{%k1}", 4, [156, 56 + (7 << 32) + 8, None, 56]),
        ("vpscatterqq", "%ymm16,0x70(,%ymm3,2){%k1}", 8, [312, 128 + (7 << 33), None, 112]),
    ],
)
def test_addresses(mnemonic: str, operands: str, size: int, expected: list[int | None]) -> None:
    machine = Machine()
    machine.registers[REGISTERS["%rax"].number] = 1000
    machine.vectors[1] = (0, 10, 0xFFFF_FFFF, None, *(0,) * 12)
    machine.vectors[3] = (100, 0, 8, 7, None, 0, 0, 0, *(0,) * 8)
    found = lanes_of(mnemonic, operands)
    assert found is not None
    assert found.size == size
    assert [address(machine) for address in found.addresses] == expected


def test_other_instructions_have_no_lanes() -> None:
    assert lanes_of("vmovups", "(%rax),%zmm0") is None
