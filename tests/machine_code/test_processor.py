"""Rules of integer and vector instructions, against the processor that executes them."""

from __future__ import annotations

import ctypes
import json
import platform
import random
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from countperf.machine_code.machine_state import REGISTERS, UNKNOWN, Flags, Machine, condition_of
from countperf.machine_code.vector_unit import leads_to_integers
from tests.machine_code.machines import put, put_mask, run, value, words_of

Execute = Callable[..., list[int]]
"""Instruction, and numbers that it is given; what it leaves."""
_EMULATED = Path(__file__).parents[1] / "golden" / "avx512_moves.json"


def assembled(
    folder: Path,
    codes: Mapping[str, Sequence[str]],
    word: type[ctypes.c_uint32 | ctypes.c_uint64],
    taken: int,
    *features: str,
) -> Execute:
    """Return how to execute functions: rdi leads to what is given, rsi to what is taken.

    Skipped without the features, by the names that Linux gives them.
    """
    info, compiler = Path("/proc/cpuinfo"), shutil.which("cc")
    known = info.read_text(encoding="utf-8").split() if info.exists() else []
    if compiler is None or platform.machine() != "x86_64" or not {*features} <= {*known}:
        pytest.skip(f"needs a C compiler and an x86-64 processor with {', '.join(features)}")
    lines: list[str] = []
    for number, code in enumerate(codes.values()):
        lines += [f".globl f{number}", f"f{number}:", *code, "ret"]
    source, library = folder / "code.s", folder / "code.so"
    source.write_text("\n".join((*lines, "")), encoding="utf-8")
    subprocess.run([compiler, "-shared", "-o", str(library), str(source)], check=True)
    loaded, order = ctypes.CDLL(str(library)), list(codes)

    def execute(text: str, inputs: Sequence[int]) -> list[int]:
        given, results = (word * len(inputs))(*inputs), (word * taken)()
        loaded[f"f{order.index(text)}"](given, results)
        return list(results)

    return execute


def agree(followed: bool | int | None, right: bool | int) -> bool:
    """Say whether what is followed is right, as far as it is known."""
    return followed in (None, right)


NAMES = ("rax", "rbx", "rcx", "rdx")
ALL = "besol"
CASES = {
    code: conditions
    for conditions, codes in {
        # the conditions that instructions leave defined
        ALL: (
            "add %rbx,%rax; add $0x8,%rax; sub %ebx,%eax; sub $0xffffffffffffff80,%rax; "
            "adc %rbx,%rax; adc %ebx,%eax; sbb %rbx,%rax; sbb %eax,%eax; sbb $0x5,%rax; neg %rax; "
            "neg %eax; and %rbx,%rax; or %ebx,%eax; xor %bl,%al; cmp %bl,%al; test %ebx,%eax; "
            "shl $0x1,%rax; shl %rax; shr $0x1,%eax; sar $0x1,%rax"
        ),
        "eso": ("inc %rax; dec %eax"),
        "": (
            "not %eax; mulx %rbx,%rcx,%rax; xchg %rbx,%rax; xchg %bl,%al; xchg %ax,%ax; cwtl; "
            "cbtw; cltq; cltd; cqto; mov %ecx,%eax; mov $0x7,%al; movabs $0x100000000,%rax; "
            "movsbl %bl,%eax; movzbl %cl,%eax; movzwl %bx,%eax; movslq %ebx,%rax; "
            "lea 0x11(%rbx,%rcx,4),%rax; lea 0x1(%rcx),%eax; seto %al; setb %bl; cmovb %rbx,%rax; "
            "cmovs %ebx,%eax; shlx %rcx,%rbx,%rax; sarx %ecx,%ebx,%eax"
        ),
        "bo": ("mul %rbx; mul %ebx; imul %rbx; imul %ebx; imul %ebx,%eax; imul $0x7,%rbx,%rax"),
        "bes": ("shl $0x3,%eax; shr $0x5,%rax; sar $0x9,%eax"),
        "es": ("shl %cl,%eax; shr %cl,%rax; sar %cl,%eax; bzhi %rcx,%rbx,%rax"),
        "b": ("bt %rbx,%rax"),
        "be": ("tzcnt %rbx,%rax"),
        "beso": ("andn %rcx,%rbx,%rax"),
    }.items()
    for code in codes.split("; ")
}
_VALUES = (0, 1, 2, 5, 0x7F, 0x80, 0xFF, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF, 1 << 63, 2**64 - 1)
_FLAGS: dict[str, Callable[[int], bool]] = {
    "b": lambda flags: bool(flags & 1),
    "e": lambda flags: bool(flags >> 6 & 1),
    "s": lambda flags: bool(flags >> 7 & 1),
    "o": lambda flags: bool(flags >> 11 & 1),
    "l": lambda flags: bool(flags >> 7 & 1) != bool(flags >> 11 & 1),
}
"""Conditions, from the register of flags."""
_BEFORE = ("push %rbx", "mov 32(%rdi),%rax", "cmp 40(%rdi),%rax")
_GIVEN = tuple(f"mov {8 * k}(%rdi),%{name}" for k, name in enumerate(NAMES))
_TAKEN = tuple(f"mov %{name},{8 * k}(%rsi)" for k, name in enumerate(NAMES))
_SCALAR = ("abm", "bmi1", "bmi2", "popcnt")
_AFTER = ("pushfq", "pop 32(%rsi)", "pop %rbx")


@pytest.fixture(scope="module")
def integers(tmp_path_factory: pytest.TempPathFactory) -> Execute:
    """Execute an instruction; return registers and flags afterwards."""
    codes = {code: (*_BEFORE, *_GIVEN, code, *_TAKEN, *_AFTER) for code in CASES}
    return assembled(tmp_path_factory.mktemp("integers"), codes, ctypes.c_uint64, 5, *_SCALAR)


@pytest.mark.parametrize("code", CASES)
def test_results_and_flags(integers: Execute, code: str) -> None:
    numbers, known = random.Random(code), 0
    for _ in range(60):
        drawn = (numbers.getrandbits(64), numbers.getrandbits(31))
        given = [numbers.choice((*_VALUES, *drawn)) for _ in range(6)]
        *registers, flags = integers(code, given)
        machine = Machine()
        for name, number in zip(NAMES, given, strict=False):
            machine.registers[REGISTERS[f"%{name}"].number] = number
        machine.registers[8:10] = given[4:]
        run(f"cmp %r9,%r8\n{code}", machine)
        for name, right in zip(NAMES, registers, strict=True):
            followed = value(machine, name)
            assert agree(followed, right), (name, [hex(number) for number in given])
            known += followed is not None
        for suffix in CASES[code]:
            condition = condition_of(suffix)
            assert condition is not None
            decided = condition(machine)
            assert agree(decided, _FLAGS[suffix](flags)), (suffix, [hex(n) for n in given])
            known += decided is not None
    assert known >= 60 * (len(NAMES) + len(CASES[code])) * 0.8


THREE, TWO = "%ymm1,%ymm2,%ymm3", "%ymm1,%ymm3"
COMPUTED = (
    *(f"vpcmp{order}{size} {THREE}" for order in ("eq", "gt") for size in "bwdq"),
    *(f"vp{which}{size} {THREE}" for which in ("mins", "minu", "maxs", "maxu") for size in "bwd"),
    *(f"vp{name}{size} {THREE}" for name in ("add", "sub") for size in "bwdq"),
    *(f"vp{name} {THREE}" for name in ("mullw", "mulld", "muludq", "muldq")),
    *(f"v{name} {THREE}" for name in ("pand", "pandn", "por", "pxor", "andps", "xorpd")),
    *(f"vps{way}w ${by},%ymm2,%ymm3" for way in ("ll", "rl", "ra") for by in (0, 5, 15, 16)),
    *(f"vps{way}d {by},%ymm2,%ymm3" for way in ("ll", "rl", "ra") for by in ("%xmm1", "$0x4")),
    *(f"vps{way}q $0x4,%ymm2,%ymm3" for way in ("ll", "rl")),
    *(f"vps{way} {THREE}" for way in ("llvd", "llvq", "rlvd", "rlvq", "ravd")),
    *(f"vpack{sign}s{what} {THREE}" for sign in "su" for what in ("wb", "dw")),
    *(f"vpunpck{half}{what} {THREE}" for half in "lh" for what in ("bw", "wd", "dq", "qdq")),
    *(f"vpmov{sign}xb{wide} %xmm1,%ymm3" for sign in "sz" for wide in "wdq"),
    *(f"vpmov{sign}x{sizes} %xmm1,%ymm3" for sign in "sz" for sizes in ("wd", "wq", "dq")),
    *(f"v{name} %ymm1,%ymm2,%ymm4,%ymm3" for name in ("blendvps", "blendvpd", "pblendvb")),
    *(f"v{name} %xmm1,%ymm3" for name in ("broadcastss", *map("pbroadcast{}".format, "bwdq"))),
    *(f"v{name} $0x1b,{TWO}" for name in ("pshufd", "permq")),
    *(f"v{name},{THREE}" for name in ("shufps $0x4e", "pblendd $0x53", "perm2i128 $0x31")),
    *("vextracti128 $0x1,%ymm1,%xmm3", "vinserti128 $0x1,%xmm1,%ymm2,%ymm3"),
    *("vmovdqa %xmm1,%xmm3", f"vblendpd $0x6,{THREE}"),
    *(f"vbroadcast{what} (%rdi),%ymm3" for what in ("sd", "i128", "f128")),
)
TAKEN = (
    *(f"v{name} %ymm1,%eax" for name in ("movmskps", "movmskpd", "pmovmskb")),
    *(f"vpextr{size} $0x1,%xmm1,%eax" for size in "bwd"),
    *(f"vpextr{size} $0x5,%xmm1,%eax" for size in "bw"),
    "vmovd %xmm1,%eax",
)
TESTED = tuple(f"v{name} %ymm1,%ymm2" for name in ("ptest", "testps", "testpd"))
INPUTS = (1, 2, 4)
_LOAD = [f"vmovdqu {32 * place}(%rdi),%ymm{number}" for place, number in enumerate(INPUTS)]


_KEEP = {
    **dict.fromkeys(COMPUTED, ("vmovdqu %ymm3,(%rsi)",)),
    **dict.fromkeys(TESTED, ("setz (%rsi)", "setc 4(%rsi)")),
    **dict.fromkeys(TAKEN, ("movl %eax,(%rsi)",)),
}
"""Instructions that keep what each of those that are compared leaves."""


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Execute:
    """Execute an instruction; return what is in its target, flags or registers afterwards."""
    codes = {
        text: (*_LOAD, "xorl %eax,%eax", text, *kept, "vzeroupper") for text, kept in _KEEP.items()
    }
    return assembled(tmp_path_factory.mktemp("avx2"), codes, ctypes.c_uint32, 8, "avx2")


def _inputs(seed: int) -> list[int]:
    draw = random.Random(seed)
    special = (0, 1, 3, 9, 0x8000_0000, 0xFFFF_FFFF, 0x7FFF_FFFF, 0x80FF_017F, 0x1234_8765)
    words = [draw.choice((draw.choice(special), draw.getrandbits(32))) for _ in range(24)]
    if seed % 3 == 0:  # elements that are equal, and tests that find nothing
        words[8:16] = [word if draw.random() < 0.5 else ~word % (1 << 32) for word in words[:8]]
    if seed % 4 == 0:
        words[:8] = [draw.randrange(40) if index % 2 == 0 else 0 for index in range(8)]
    return words


def _with_memory(words: Sequence[int]) -> Machine:
    """Return a processor whose register rdi leads to words in memory."""
    machine = Machine()
    machine.registers[REGISTERS["%rdi"].number] = 0x1000
    for index, word in enumerate(words):
        machine.store(0x1000 + 4 * index, 32, word)
    return machine


def _machine(inputs: list[int]) -> Machine:
    machine = _with_memory(inputs)
    for index, number in enumerate(INPUTS):
        put(machine, number, inputs[8 * index : 8 * index + 8])
    return machine


@pytest.mark.parametrize("text", [*COMPUTED, *TAKEN])
def test_vectors_and_integers_are_those_of_the_processor(text: str, vectors: Execute) -> None:
    assert leads_to_integers(*text.split(maxsplit=1)) == (text in TAKEN)
    for seed in range(40):
        inputs = _inputs(seed)
        machine, right = run(text, _machine(inputs)), vectors(text, inputs)
        if text in TAKEN:
            assert machine.registers[0] == right[0]
        else:
            assert list(words_of(machine, 3, 16)) == [*right, *[0] * 8], seed


@pytest.mark.parametrize("text", TESTED)
def test_flags_are_those_of_the_processor(text: str, vectors: Execute) -> None:
    seen: set[tuple[bool | None, bool | None]] = set()
    cases = [*map(_inputs, range(60)), [0] * 24, [0xFFFF_FFFF] * 24, [0] * 8 + [1 << 31] * 16]
    is_zero, carries = condition_of("e"), condition_of("b")
    assert is_zero is not None
    assert carries is not None
    for inputs in cases:
        machine = run(text, _machine(inputs))
        flags = is_zero(machine), carries(machine)
        assert flags == tuple(map(bool, vectors(text, inputs)[:2]))
        seen.add(flags)
    assert len(seen) >= 3


@pytest.mark.parametrize("text", [*COMPUTED, *TESTED, *TAKEN])
def test_unknown_lanes_stay_unknown(text: str) -> None:
    machine = Machine()
    machine.flags, machine.registers = Flags("exact", 1, 0, 0, 32), [7] * 16
    put(machine, 3, (5,) * 16)
    run(text, machine)
    if text in COMPUTED:
        zeros = {0} if "%xmm3" in text else set[int]()
        assert set(machine.vectors[3, :32].tolist()) - zeros == {UNKNOWN}
    elif text in TESTED:
        assert machine.flags is None
    else:
        assert machine.registers[0] is None


MOVES = (
    *(
        f"v{name} %{width}mm1,%{width}mm2,%{width}mm3{{%k1}}{zeros}"
        for name in ("blendmps", "blendmpd", "pblendmd", "pblendmq")
        for width in "xz"
        for zeros in ("", "{z}")
    ),
    *(f"vpmov{sizes} %zmm1,%ymm3" for sizes in ("qd", "dw", "wb")),
    *(f"vpmov{sizes} %zmm1,%xmm3" for sizes in ("qw", "db", "qb")),
    *("vpmovqd %ymm1,%xmm3", "vpmovqd %xmm1,%xmm3", "vpmullq (%rdi){1to4},%ymm2,%ymm3"),
    *("vpaddd (%rdi){1to16},%zmm2,%zmm3", "vpternlogq $0x96,(%rdi){1to8},%zmm2,%zmm3"),
    "vpminsd (%rdi){1to8},%ymm2,%ymm3",
    *(
        f"{name} %zmm1,%zmm2,%zmm3{{%k1}}{zeros}"
        for name in ("vpminsd", "vpmaxsq", "vpsllvd", "vpsravq", "vpmuludq", "vpsubq")
        for zeros in ("", "{z}")
    ),
    *(f"vpmov{name} %xmm1,%zmm3{{%k1}}{{z}}" for name in ("sxbd", "zxwq")),
    "vpsrld $0x3,%zmm2,%zmm3{%k1}",
    "vbroadcasti32x2 (%rdi),%ymm3",
    *(f"vbroadcasti{what} (%rdi),%zmm3" for what in ("64x4", "32x8", "64x2", "32x4")),
    "vbroadcastsd %xmm1,%zmm3",
)
GIVEN = [[random.Random(seed).getrandbits(32) for _ in range(48)] for seed in range(10)]


@pytest.mark.parametrize("text", MOVES)
def test_moves_are_those_of_an_emulator(text: str) -> None:
    """Compare with Bochs 2.7 (``corei7_skylake_x``), which executed the same instructions."""
    results = json.loads(_EMULATED.read_text(encoding="utf-8"))[text]
    for given, (mask, words) in zip(GIVEN, results, strict=False):
        machine = _with_memory(given)
        put_mask(machine, 1, mask)
        for number in range(3):
            put(machine, 1 + number, given[16 * number : 16 * number + 16])
        assert list(words_of(run(text, machine), 3, 16)) == words
