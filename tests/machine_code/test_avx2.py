"""Rules for instructions of AVX2, against the processor itself."""

from __future__ import annotations

import ctypes
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from countperf.machine_code.avx2 import element_source, element_test, is_element_test, masked_store
from countperf.machine_code.avx512 import leads_to_integers, packed_action
from countperf.machine_code.conditions import condition_of
from countperf.machine_code.integer_operands import operands_of
from countperf.machine_code.machine_state import Flags, Machine
from countperf.machine_code.vector_elements import elements_of, lanes_from

FIRST, SECOND, THIRD = "%ymm1", "%ymm2", "%ymm3"
COMPUTED = (
    *(f"vpcmp{order}{size} {FIRST},{SECOND},{THIRD}" for order in ("eq", "gt") for size in "bwdq"),
    *(
        f"vp{which}{sign}{size} {FIRST},{SECOND},{THIRD}"
        for which in ("min", "max")
        for sign in "su"
        for size in "bwd"
    ),
    *(f"vp{name}{size} {FIRST},{SECOND},{THIRD}" for name in ("add", "sub") for size in "bw"),
    f"vpmullw {FIRST},{SECOND},{THIRD}",
    f"vpmulhw {FIRST},{SECOND},{THIRD}",
    f"vpmulhuw {FIRST},{SECOND},{THIRD}",
    *(f"vps{way}w ${by},{SECOND},{THIRD}" for way in ("ll", "rl", "ra") for by in (0, 5, 15, 16)),
    *(f"vps{way}d %xmm1,{SECOND},{THIRD}" for way in ("ll", "rl", "ra")),
    *(f"vps{way}v{size} {FIRST},{SECOND},{THIRD}" for way in ("ll", "rl") for size in "dq"),
    f"vpsravd {FIRST},{SECOND},{THIRD}",
    f"vpmuludq {FIRST},{SECOND},{THIRD}",
    f"vpmuldq {FIRST},{SECOND},{THIRD}",
    *(f"vpack{sign}s{what} {FIRST},{SECOND},{THIRD}" for sign in "su" for what in ("wb", "dw")),
    *(f"vpunpck{half}{what} {FIRST},{SECOND},{THIRD}" for half in "lh" for what in ("bw", "wd")),
    *(
        f"vpmov{sign}x{sizes} %xmm1,{THIRD}"
        for sign in "sz"
        for sizes in ("bw", "bd", "bq", "wd", "wq", "dq")
    ),
    *(f"vpabs{size} {FIRST},{THIRD}" for size in "bwd"),
    f"vblendvps {FIRST},{SECOND},%ymm4,{THIRD}",
    f"vblendvpd {FIRST},{SECOND},%ymm4,{THIRD}",
    f"vpblendvb {FIRST},{SECOND},%ymm4,{THIRD}",
    *(f"vpbroadcast{size} %xmm1,{THIRD}" for size in "bw"),
    f"vpslldq $0x3,{SECOND},{THIRD}",
    f"vpsrldq $0x5,{SECOND},{THIRD}",
    f"vpalignr $0x7,{FIRST},{SECOND},{THIRD}",
    f"vpalignr $0x13,{FIRST},{SECOND},{THIRD}",
    f"vpshufb {FIRST},{SECOND},{THIRD}",
    f"vpblendw $0xa6,{FIRST},{SECOND},{THIRD}",
)
TAKEN = (
    *(f"vmovmskp{size} {FIRST},%eax" for size in "sd"),
    f"vpmovmskb {FIRST},%eax",
    *(f"vpextr{size} $0x5,%xmm1,%eax" for size in "bw"),
)
TESTED = (f"vptest {FIRST},{SECOND}", f"vtestps {FIRST},{SECOND}", f"vtestpd {FIRST},{SECOND}")
INPUTS = (1, 2, 4)

_LOAD = [f"vmovdqu {32 * place}(%rdi),%ymm{number}" for place, number in enumerate(INPUTS)]


def _has_avx2() -> bool:
    path = Path("/proc/cpuinfo")
    return path.exists() and "avx2" in path.read_text(encoding="utf-8").split()


@pytest.fixture(scope="module")
def processor(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, list[int]], list[int]]:
    """Execute an instruction; return what is in its target, flags or registers afterwards."""
    compiler = shutil.which("cc")
    if compiler is None or not _has_avx2():
        pytest.skip("needs a C compiler and a processor with AVX2")
    texts = (*COMPUTED, *TAKEN, *TESTED)
    lines: list[str] = []
    for number, text in enumerate(texts):
        lines += [f".globl f{number}", f"f{number}:", *_LOAD, "xorl %eax,%eax", text]
        lines += [*_after(text), "vzeroupper", "ret"]
    folder = tmp_path_factory.mktemp("avx2")
    source, library = folder / "code.s", folder / "code.so"
    source.write_text("\n".join((*lines, "")), encoding="utf-8")
    subprocess.run([compiler, "-shared", "-o", str(library), str(source)], check=True)
    loaded = ctypes.CDLL(str(library))

    def execute(text: str, inputs: list[int]) -> list[int]:
        given, taken = (ctypes.c_uint32 * 24)(*inputs), (ctypes.c_uint32 * 8)()
        loaded[f"f{texts.index(text)}"](given, taken)
        return list(taken)

    return execute


def _after(text: str) -> list[str]:
    if text in COMPUTED:
        return ["vmovdqu %ymm3,(%rsi)"]
    if text in TESTED:
        return ["setz (%rsi)", "setc 4(%rsi)"]
    return ["movl %eax,(%rsi)"]


def _inputs(seed: int) -> list[int]:
    draw = random.Random(seed)
    special = (0, 1, 3, 9, 0x8000_0000, 0xFFFF_FFFF, 0x7FFF_FFFF, 0x80FF_017F, 0x1234_8765)
    found = [draw.choice((draw.choice(special), draw.getrandbits(32))) for _ in range(24)]
    if seed % 3 == 0:  # elements that are equal, and tests that find nothing
        found[8:16] = [value if draw.random() < 0.5 else ~value % (1 << 32) for value in found[:8]]
    if seed % 4 == 0:
        found[:8] = [draw.randrange(40) if place % 2 == 0 else 0 for place in range(8)]
    return found


def _machine(inputs: list[int]) -> Machine:
    machine = Machine()
    for place, number in enumerate(INPUTS):
        machine.vectors[number] = (*inputs[8 * place : 8 * place + 8], *(0,) * 8)
    return machine


def _executed(text: str, machine: Machine) -> Machine:
    mnemonic, operands = text.split(maxsplit=1)
    action = packed_action(mnemonic, operands)
    assert action is not None
    action(machine)
    return machine


@pytest.mark.parametrize("text", COMPUTED)
def test_vectors_are_those_of_the_processor(
    text: str, processor: Callable[[str, list[int]], list[int]]
) -> None:
    for seed in range(40):
        inputs = _inputs(seed)
        machine = _executed(text, _machine(inputs))
        assert list(machine.vectors[3][:8]) == processor(text, inputs), seed
        assert machine.vectors[3][8:] == (0,) * 8


@pytest.mark.parametrize("text", TAKEN)
def test_integers_are_those_of_the_processor(
    text: str, processor: Callable[[str, list[int]], list[int]]
) -> None:
    assert leads_to_integers(*text.split(maxsplit=1))
    for seed in range(40):
        inputs = _inputs(seed)
        machine = _executed(text, _machine(inputs))
        assert machine.registers[0] == processor(text, inputs)[0]


@pytest.mark.parametrize("text", TESTED)
def test_flags_are_those_of_the_processor(
    text: str, processor: Callable[[str, list[int]], list[int]]
) -> None:
    seen: set[tuple[bool | None, bool | None]] = set()
    cases = [*map(_inputs, range(60)), [0] * 24, [0xFFFF_FFFF] * 24, [0] * 8 + [1 << 31] * 16]
    for inputs in cases:
        machine = _executed(text, _machine(inputs))
        is_zero, carries = condition_of("e"), condition_of("b")
        assert is_zero is not None
        assert carries is not None
        found = is_zero(machine), carries(machine)
        assert found == tuple(map(bool, processor(text, inputs)[:2]))
        seen.add(found)
    assert len(seen) >= 3


@pytest.mark.parametrize("text", [*COMPUTED, *TESTED, *TAKEN])
def test_unknown_lanes_stay_unknown(text: str) -> None:
    machine = Machine(flags=Flags("mask", 0, 1, 0, 32), registers=[7] * 16)
    machine.vectors[3] = (5,) * 16
    _executed(text, machine)
    if text in COMPUTED:
        has_zeros = text.startswith("vpsrldq")  # which are shifted in
        assert set(machine.vectors[3][:8]) == ({None, 0} if has_zeros else {None})
    elif text in TESTED:
        assert machine.flags is None
    else:
        assert machine.registers[0] is None


def test_a_blend_of_equal_elements_needs_no_mask() -> None:
    machine = Machine()
    machine.vectors[2] = (1, 2, 3, 4, 5, 6, 7, 8) + (0,) * 8
    machine.vectors[4] = (1, 0, 3, 4, 5, 6, 7, 8) + (0,) * 8
    source = element_source("vblendvps", [FIRST, SECOND, "%ymm4", THIRD], 8)
    assert source is not None
    assert source(machine) == (1, None, 3, 4, 5, 6, 7, 8)


def test_masked_loads_and_stores() -> None:
    machine = Machine()
    machine.registers[0] = 0x1000
    for lane in range(4):
        machine.store(0x1000 + 4 * lane, 32, 10 + lane)
    machine.vectors[1] = (1 << 31, 0, None, 0xFFFF_FFFF) + (0,) * 12
    load = element_source("vpmaskmovd", ["(%rax)", "%xmm1", "%xmm2"], 4)
    assert load is not None
    assert load(machine) == (10, 0, None, 13)
    machine.vectors[2] = (20, 21, 22, 23) + (0,) * 12
    for name in ("vpmaskmovd", "vmaskmovps"):
        store = masked_store(name, "%xmm2,%xmm1,(%rax)")
        assert store is not None
        store(machine)
        loaded = [machine.load(0x1000 + 4 * lane, 32) for lane in range(4)]
        assert loaded == [20, 11, None, 23]
    assert masked_store("vmaskmovps", "(%rax),%xmm1,%xmm2") is None
    assert masked_store("vmovups", "%xmm2,(%rax)") is None


def test_elements_put_together_again_are_the_lanes() -> None:
    lanes = (0x1234_5678, None, 0xFFFF_0001, 7)
    for bits in (8, 16, 32):
        assert lanes_from(elements_of(lanes, bits), bits) == lanes
    assert lanes_from(elements_of(lanes, 64), 64) == (None, None, 0xFFFF_0001, 7)


def test_other_instructions_have_no_rule() -> None:
    assert element_source("vaddps", [FIRST, SECOND, THIRD], 8) is None
    assert element_test("vaddps", f"{FIRST},{SECOND},{THIRD}") is None
    assert not is_element_test("vptestmd")
    assert operands_of(f"{FIRST},{SECOND}") == [FIRST, SECOND]
