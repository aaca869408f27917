"""Functions of runtimes' libraries that kernels call."""

from __future__ import annotations

import pytest

from countperf.errors import DeviceError
from countperf.harness.compile.objects import find_library
from countperf.harness.devices import find_device
from countperf.machine_code.machine_state import REGISTERS, Machine
from countperf.machine_code.object_file import find_objdump, functions_of
from tests.machine_code.test_interpreter import executed, program

NAMES = ("__ocl_svml_z0_rsqrtf16", "puts", "__ocl_svml_z0_irem16")
START, APART = 0x5000_0000_0000, 1 << 20


@pytest.mark.device
@pytest.mark.skipif(find_objdump() is None, reason="objdump is not installed")
def test_functions_are_found_and_get_addresses_of_their_own() -> None:
    try:
        find_device("intel:0")
    except DeviceError as error:
        pytest.skip(str(error))
    found = functions_of(NAMES, START, APART, find_library)
    assert set(found) == {NAMES[0], NAMES[2]}
    for number, name in enumerate(NAMES):
        if name in found:
            assert found[name][0].address == START + number * APART
            assert found[name][-1].mnemonic == "ret"
    assert any(line.mnemonic == "vrsqrt14ps" for line in found[NAMES[0]])


def test_other_functions_are_not_looked_for() -> None:
    assert not functions_of(["memset", "__ocl_svml_none"], START, APART, find_library)


CALLING = """
f:
mov $0x4,%eax
call *%rax
ret
nop
g:
vcomiss %xmm0,%xmm1
je 9
nop
nop
nop
ret
"""


def test_calls_by_register_are_followed_the_shorter_way() -> None:
    assert executed(CALLING) == {0: 1, 1: 1, 2: 1, 4: 1, 5: 1, 9: 1}


def test_longer_ways_are_not_taken_where_they_come_first() -> None:
    code = CALLING.replace("je 9", "jne 8").replace("nop\nnop\nnop\nret", "ret\nnop\nnop\nret")
    assert executed(code) == {0: 1, 1: 1, 2: 1, 4: 1, 5: 1, 6: 1}


def test_unknown_functions_leave_nothing_known_that_they_need_not_restore() -> None:
    code = """
    f:
    mov $0x3,%ecx
    mov $0x3,%ebx
    call 999
    dec %rbx
    jne 3
    ret
    """
    assert executed(code)[3] == 3
    machine = Machine()
    program(code).executed("f", machine)
    assert machine.registers[REGISTERS["%rcx"].number] is None
    assert machine.registers[REGISTERS["%rbx"].number] == 0


def test_vectors_are_divided() -> None:
    code = """
    f:
    vmovd %edi,%xmm0
    vmovd %esi,%xmm1
    call 7
    vmovd %xmm0,%eax
    dec %eax
    jne 4
    ret
    __ocl_svml_z0_irem16:
    vdivps %zmm1,%zmm0,%zmm0
    ret
    """
    assert executed(code, rdi=17, rsi=5)[4] == 17 % 5
    assert executed(code.replace("irem", "udiv"), rdi=17, rsi=5)[4] == 17 // 5
