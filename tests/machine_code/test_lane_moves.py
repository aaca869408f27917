"""Rules for moves of elements between vectors, against the processor itself."""

from __future__ import annotations

import ctypes
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from countperf.machine_code.avx512 import packed_action
from countperf.machine_code.machine_state import REGISTERS, Machine

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
_LOADED = [f"vmovdqu32 {64 * k}(%rdi),%zmm{k + 1}" for k in range(3)]
_NEEDED = ("avx512f", "avx512bw", "avx512dq", "avx512vl")


@pytest.fixture(scope="module")
def processor(
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


def _machine(given: list[int], mask: int) -> Machine:
    machine = Machine()
    machine.registers[REGISTERS["%rdi"].number] = 0x1000
    for place, value in enumerate(given):
        machine.store(0x1000 + 4 * place, 32, value)
        number = 1 + place // 16
        machine.vectors[number] = (*machine.vectors[number][: place % 16], value)
    machine.masks[1] = (mask, (1 << 64) - 1)
    return machine


@pytest.mark.parametrize("text", MOVES)
def test_moves_are_those_of_the_processor(
    text: str, processor: Callable[[str, list[int], int], list[int]]
) -> None:
    action = packed_action(*text.split(maxsplit=1))
    assert action is not None
    for seed in range(10):
        draw = random.Random(seed)
        given, mask = [draw.getrandbits(32) for _ in range(48)], draw.getrandbits(16)
        machine = _machine(given, mask)
        action(machine)
        assert list(machine.vectors[3]) == processor(text, given, mask), seed


def test_unknown_elements_stay_unknown() -> None:
    machine = Machine()
    for number in (1, 2):
        machine.vectors[number] = (None, 7 + number) * 8
    for text, expected in (
        ("valignd $0x1,%xmm1,%xmm2,%xmm3", (8, None, 8, None)),
        ("vpblendmd %xmm1,%xmm2,%xmm3{%k1}", (None, None, None, None)),
        ("vpermilps $0x0,%xmm1,%xmm3", (None,) * 4),
        ("vpermilps %xmm1,%xmm2,%xmm3", (None, None, None, None)),
        ("vpmovdw %xmm1,%xmm3", (None, None, 0, 0)),
    ):
        action = packed_action(*text.split(maxsplit=1))
        assert action is not None
        action(machine)
        assert machine.vectors[3][:4] == expected, text
