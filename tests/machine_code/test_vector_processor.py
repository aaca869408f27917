"""Rules for instructions with vectors, against the processor itself."""

from __future__ import annotations

import ctypes
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from countperf.machine_code.conditions import condition_of
from countperf.machine_code.machine_state import UNKNOWN, Flags, Machine
from countperf.machine_code.vector_unit import leads_to_integers
from tests.machine_code.machines import put, put_mask, run, words_of

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
MOVES = (
    *(f"valign{size} ${by},%zmm1,%zmm2,%zmm3" for size in "dq" for by in (0, 1, 7, 15)),
    "valignd $0x5,%ymm1,%ymm2,%ymm3",
    *(f"vpermilps ${order},%{width}mm1,%{width}mm3" for order in (0x1B, 0xD8) for width in "xyz"),
    *(f"vpermilpd ${order},%{width}mm1,%{width}mm3" for order in (0x1, 0xA6) for width in "xyz"),
    *(f"vpermil{kind} %zmm1,%zmm2,%zmm3" for kind in ("ps", "pd")),
    *(f"vmovs{which}dup %{width}mm1,%{width}mm3" for which in "hl" for width in "xz"),
    *(f"vinsertps ${order},%xmm1,%xmm2,%xmm3" for order in (0x10, 0xE8, 0x5D)),
    "vinsertps $0x90,(%rdi),%xmm2,%xmm3",
    *(f"vmovs{kind} %xmm1,%xmm2,%xmm3" for kind in "sd"),
    *(f"vmovs{kind} %xmm1,%xmm2,%xmm3{{%k1}}{zeros}" for kind in "sd" for zeros in ("", "{z}")),
    "vmovhlps %xmm1,%xmm2,%xmm3",
    "vblendpd $0x6,%ymm1,%ymm2,%ymm3",
    *(
        f"vshufpd $0x{order},%{width}mm1,%{width}mm2,%{width}mm3"
        for order in "69"
        for width in "yz"
    ),
    *(
        f"v{name} %{width}mm1,%{width}mm2,%{width}mm3{{%k1}}{zeros}"
        for name in ("blendmps", "blendmpd", "pblendmd", "pblendmq")
        for width in "xz"
        for zeros in ("", "{z}")
    ),
    *(f"vpmov{sizes} %zmm1,%ymm3" for sizes in ("qd", "dw", "wb")),
    *(f"vpmov{sizes} %zmm1,%xmm3" for sizes in ("qw", "db", "qb")),
    "vpmovqd %ymm1,%xmm3",
    "vpmovqd %xmm1,%xmm3",
    "vpmullq (%rdi){1to4},%ymm2,%ymm3",
    "vpaddd (%rdi){1to16},%zmm2,%zmm3",
    "vpternlogq $0x96,(%rdi){1to8},%zmm2,%zmm3",
    "vpminsd (%rdi){1to8},%ymm2,%ymm3",
    *(
        f"{name} %zmm1,%zmm2,%zmm3{{%k1}}{zeros}"
        for name in ("vpminsd", "vpmaxsq", "vpsllvd", "vpsravq", "vpmuludq", "vpsubq")
        for zeros in ("", "{z}")
    ),
    *(f"vpmov{name} %xmm1,%zmm3{{%k1}}{{z}}" for name in ("sxbd", "zxwq")),
    "vpsrld $0x3,%zmm2,%zmm3{%k1}",
    "vpabsd %zmm1,%zmm3{%k1}",
    "vbroadcastsd (%rdi),%ymm3",
    "vbroadcastsd %xmm1,%zmm3",
    "vbroadcastss %xmm1,%ymm3",
    "vbroadcasti64x4 (%rdi),%zmm3",
    "vbroadcasti32x8 (%rdi),%zmm3",
    "vbroadcasti32x2 (%rdi),%ymm3",
    "vbroadcasti64x2 (%rdi),%zmm3",
    "vbroadcasti32x4 (%rdi),%zmm3",
    "vbroadcasti128 (%rdi),%ymm3",
    "vbroadcastf128 (%rdi),%ymm3",
)

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
        put(machine, number, inputs[8 * place : 8 * place + 8])
    return machine


@pytest.mark.parametrize("text", COMPUTED)
def test_vectors_are_those_of_the_processor(
    text: str, processor: Callable[[str, list[int]], list[int]]
) -> None:
    for seed in range(40):
        inputs = _inputs(seed)
        machine = run(text, _machine(inputs))
        assert list(words_of(machine, 3, 16)) == [*processor(text, inputs), *[0] * 8], seed


@pytest.mark.parametrize("text", TAKEN)
def test_integers_are_those_of_the_processor(
    text: str, processor: Callable[[str, list[int]], list[int]]
) -> None:
    assert leads_to_integers(*text.split(maxsplit=1))
    for seed in range(40):
        inputs = _inputs(seed)
        machine = run(text, _machine(inputs))
        assert machine.registers[0] == processor(text, inputs)[0]


@pytest.mark.parametrize("text", TESTED)
def test_flags_are_those_of_the_processor(
    text: str, processor: Callable[[str, list[int]], list[int]]
) -> None:
    seen: set[tuple[bool | None, bool | None]] = set()
    cases = [*map(_inputs, range(60)), [0] * 24, [0xFFFF_FFFF] * 24, [0] * 8 + [1 << 31] * 16]
    for inputs in cases:
        machine = run(text, _machine(inputs))
        is_zero, carries = condition_of("e"), condition_of("b")
        assert is_zero is not None
        assert carries is not None
        found = is_zero(machine), carries(machine)
        assert found == tuple(map(bool, processor(text, inputs)[:2]))
        seen.add(found)
    assert len(seen) >= 3


@pytest.mark.parametrize("text", [*COMPUTED, *TESTED, *TAKEN])
def test_unknown_lanes_stay_unknown(text: str) -> None:
    machine = Machine(flags=Flags("exact", 1, 0, 0, 32), registers=[7] * 16)
    put(machine, 3, (5,) * 16)
    run(text, machine)
    if text in COMPUTED:
        shifts_zeros_in = "rldq" in text or "lldq" in text or "alignr $0x13" in text
        zeros = {0} if shifts_zeros_in else set[int]()
        assert set(machine.vectors[3, :32].tolist()) - zeros == {UNKNOWN}
    elif text in TESTED:
        assert machine.flags is None
    else:
        assert machine.registers[0] is None


_LOADED = [f"vmovdqu32 {64 * k}(%rdi),%zmm{k + 1}" for k in range(3)]
_NEEDED = ("avx512f", "avx512bw", "avx512dq", "avx512vl")


@pytest.fixture(scope="module")
def wide_processor(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str, list[int], int], list[int]]:
    """Execute a move on three vectors with a mask; return the third one afterwards."""
    info, compiler = Path("/proc/cpuinfo"), shutil.which("cc")
    features = info.read_text(encoding="utf-8").split() if info.exists() else []
    if compiler is None or not all(each in features for each in _NEEDED):
        pytest.skip("needs a C compiler and a processor with AVX-512")
    lines: list[str] = []
    for number, text in enumerate(MOVES):
        lines += [f".globl f{number}", f"f{number}:", *_LOADED, "kmovd %edx,%k1", text]
        lines += ["vmovdqu32 %zmm3,(%rsi)", "vzeroupper", "ret"]
    folder = tmp_path_factory.mktemp("moves")
    source, library = folder / "code.s", folder / "code.so"
    source.write_text("\n".join((*lines, "")), encoding="utf-8")
    subprocess.run([compiler, "-shared", "-o", str(library), str(source)], check=True)
    loaded = ctypes.CDLL(str(library))

    def execute(text: str, given: list[int], mask: int) -> list[int]:
        taken = (ctypes.c_uint32 * 16)()
        loaded[f"f{MOVES.index(text)}"]((ctypes.c_uint32 * 48)(*given), taken, mask)
        return list(taken)

    return execute


def test_moves_are_those_of_the_processor(
    wide_processor: Callable[[str, list[int], int], list[int]],
) -> None:
    for text in MOVES:
        for seed in range(10):
            draw = random.Random(seed)
            given, mask = [draw.getrandbits(32) for _ in range(48)], draw.getrandbits(16)
            machine = Machine()
            machine.registers[7] = 0x1000  # rdi
            put_mask(machine, 1, mask)
            for place, value in enumerate(given):
                machine.store(0x1000 + 4 * place, 32, value)
            for number in range(3):
                put(machine, 1 + number, given[16 * number : 16 * number + 16])
            run(text, machine)
            assert list(words_of(machine, 3, 16)) == wide_processor(text, given, mask), (text, seed)
