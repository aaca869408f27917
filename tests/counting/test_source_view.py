"""Complex numbers and vectors, against what Oclgrind executes of the emitted code, unoptimized."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import loopy as lp
import numpy as np
import pymbolic.primitives as p
import pytest
from pyopencl import cltypes

from countperf.counting.count_properties import count_kernel
from tests.kernels import made
from tests.oracles import oclgrind


def with_oclgrind(test: Any) -> Any:
    missing = oclgrind.PROGRAM is None
    skip = pytest.mark.skipif(missing, reason="oclgrind-kernel is not installed")
    return pytest.mark.oclgrind(skip(test))


N = 8


def complex_kernel(expression: str, kind: str = "c64", **options: Any) -> Any:
    """Make a kernel of complex a and b, and real r, s and d."""
    real = "f32" if kind == "c64" else "f64"
    arguments = f"a,b,z {kind} n; r,s {real} n; d f64 n; n i32"
    return made("i<n", f"z[i] = {expression}", arguments, **options)


KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "additions": (r"flop\.add\..*", ("fadd", "fsub")),
    "multiplications": (r"flop\.(mul|neg)\..*", ("fmul", "fneg")),
    "divisions": (r"flop\.div\..*", ("fdiv",)),
    "comparisons": (r"flop\.compare\..*", ("fcmp",)),
    "conversions": (r"flop\.convert\..*", ("fpext", "fptrunc", "sitofp")),
}
FUNCTIONS = ("fabs", "hypot", "atan2", "log", "exp", "sqrt", "sincos", "sinh", "cosh", "fma")


def counted_of(counts: dict[str, Any]) -> dict[str, int]:
    """Sum counts as Oclgrind tells them apart."""
    sums: Counter[str] = Counter(dict.fromkeys((*KINDS, "load", "store"), 0))
    for name, value in counts.items():
        for kind, (pattern, _) in KINDS.items():
            sums[kind] += int(value) if re.fullmatch(pattern, name) else 0
        match name.split("."):
            case ["flop", "special", _, function] | ["flop", "fma" as function, _]:
                sums[function] += int(value)
            case ["gmem", "load" | "store" as direction, bits, _]:
                sums[direction] += int(value) * int(bits) // 8
            case _:
                pass
    return dict(sums)


def executed_of(dynamic: oclgrind.DynamicCounts, dtype: Any) -> dict[str, int]:
    """Return the same of executed instructions; whole elements are copied as memory."""
    size = np.dtype(dtype).itemsize
    within = dynamic.copied(1, 1)  # from global memory to global memory
    copied = {"load": dynamic.copied(1, 0) + within, "store": dynamic.copied(0, 1) + within}
    return {
        **{kind: dynamic.of(*names) for kind, (_, names) in KINDS.items()},
        **{d: dynamic.bytes.get(f"{d} global", 0) + size * n for d, n in copied.items()},
        **{name: calls for name in FUNCTIONS if (calls := dynamic.calls(name))},
    }


EXPRESSIONS = """\
a[i] + b[i]; a[i] - b[i]; -a[i]; a[i] * b[i]; a[i] / b[i]; a[i] + r[i]; a[i] * r[i];
r[i] * s[i] * a[i]; a[i] * r[i] * s[i]; a[i] / r[i]; r[i] / a[i]; a[i] + b[i]*a[i];
a[i]*b[i] + b[i]*a[i]; r[i] + a[i]*b[i] + a[i] + s[i] + b[i]; a[i]*b[i]*a[i]*b[i]; conj(a[i]);
abs(a[i]); real(a[i]) + imag(b[i]); exp(a[i]); log(a[i]); sin(a[i]); cos(a[i]); sinh(a[i]);
cosh(a[i]); a[i]**0.5; r[i]; real(r[i])""".replace("\n", " ").split("; ")
# of 1 / a[i] in double precision, since the type of 1 is that of an int
MIXED = """\
1 / a[i]; a[i]**2; a[i]**3; a[i]**5; a[i] + i; d[i] + a[i]; d[i] * a[i] * r[i];
(d[i] + a[i]) * b[i]""".replace("\n", " ").split("; ")


def _assert_executed(kernel: Any, dtype: Any, folder: Path) -> None:
    executed = executed_of(oclgrind.run(kernel, {"n": N}, folder), dtype)
    assert counted_of(count_kernel(kernel).evaluate(n=N)) == executed


@with_oclgrind
@pytest.mark.parametrize("expression", [*EXPRESSIONS, *MIXED])
def test_single_precision_is_what_is_executed(expression: str, tmp_path: Path) -> None:
    _assert_executed(complex_kernel(expression), np.complex64, tmp_path)


@with_oclgrind
@pytest.mark.parametrize(
    "expression", ["a[i]*b[i] + r[i]*a[i]", "a[i] / b[i]", "a[i] + b[i]**2", "exp(a[i]) / 2"]
)
def test_double_precision_is_what_is_executed(expression: str, tmp_path: Path) -> None:
    _assert_executed(complex_kernel(expression, "c128"), np.complex128, tmp_path)


@with_oclgrind
@pytest.mark.parametrize("operation", ["sum", "product"])
def test_reductions_are_what_is_executed(operation: str, tmp_path: Path) -> None:
    text = f"z[i] = {operation}(j, a[i, j] * r[j])"
    kernel = made("i<n, j<5", text, "a c64 n,5; z c64 n; r f32 5; n i32")
    _assert_executed(kernel, np.complex64, tmp_path)


@pytest.mark.parametrize(("kind", "bits"), [("c64", 64), ("c128", 128)])
def test_elements_are_accesses_of_64_and_128_bits(kind: str, bits: int) -> None:
    counts = count_kernel(complex_kernel("a[i] + b[i]", kind, split="i:4")).evaluate(n=N)
    assert counts[f"gmem.load.{bits}.stride1"] == 2 * N
    assert counts[f"gmem.store.{bits}.stride1"] == N


def test_a_choice_between_complex_numbers_selects_both_parts() -> None:
    counts = count_kernel(complex_kernel("a[i] if i < 3 else b[i]")).evaluate(n=N)
    assert counts["flop.select.f32"] == 2 * N
    assert counts["gmem.load.64.uniform"] == N


def test_constants_join_for_free() -> None:
    kernel = complex_kernel("a[i]", "c128")
    element, one, two = p.Variable("a")[p.Variable("i")], np.complex128(1j), np.complex128(2j)
    for expression, additions in ((p.Sum((element, one, two)), 2), (p.Sum((one, two)), 0)):
        (instruction,) = kernel.default_entrypoint.instructions
        changed = kernel.with_kernel(
            kernel.default_entrypoint.copy(instructions=[instruction.copy(expression=expression)])
        )
        counts = count_kernel(changed).evaluate(n=N)
        assert counts.get("flop.add.f64", 0) == additions * N


@with_oclgrind
@pytest.mark.parametrize("function", ["sqrt", "tan", "tanh"])
def test_helpers_that_branch_on_data_are_calls(function: str, tmp_path: Path) -> None:
    kernel = complex_kernel(f"{function}(a[i])*r[i]")
    executed = oclgrind.run(kernel, {"n": N}, tmp_path).instructions
    counts = count_kernel(kernel).evaluate(n=N)
    assert counts[f"flop.special.f32.c{function}"] == executed[f"call cfloat_{function}()"] == N
    assert counts["flop.mul.f32"] == 2 * N


# --- vectors


def typed(body: str) -> Any:
    return made(
        "i<n",
        body,
        "r,s f32 n; n i32",
        lp.GlobalArg("a,b,z", cltypes.float4, shape="n"),
        lp.GlobalArg("q,u", cltypes.int2, shape="n"),
        lp.GlobalArg("p,w", cltypes.double8, shape="n"),
        split="i:4",
    )


def _axis(body: str, tag: str = "vec", width: int = 4) -> Any:
    arguments = f"a,b,z f32 n,{width} N0,vec; r,s f32 n; n i32"
    return made(f"i<n, j<{width}", body, arguments, split="i:4", tags={"j": tag})


def plain() -> Any:
    """Vectorize a loop over an array without a vector axis, which Loopy unrolls."""
    return made("i<n", "z[i] = 2*a[i] + b[i]", "a,b,z f32 n; n i32", split="i:4:g.0,vec")


def not_full() -> Any:
    """Vectorize a loop whose last vector is not full, which Loopy unrolls with conditions."""
    return made(
        "{ [i, j] : 0 <= i < n and 0 <= j < 4 and 4*i + j < 4*n - 2 }",
        "z[i, j] = 2*a[i, j]",
        "a,z f32 n,4 N0,vec; n i32",
        tags={"j": "vec"},
    )


# what is executed once for each component: Oclgrind counts vector instructions once
KERNELS: dict[str, tuple[Callable[[], Any], int]] = {
    "sum": (lambda: typed("z[i] = a[i] + b[i]"), 4),
    "polynomial": (lambda: typed("z[i] = a[i]*b[i] - a[i] + 2*b[i]"), 4),
    "integers": (lambda: typed("q[i] = q[i]*u[i] + u[i]"), 2),
    "double8": (lambda: typed("w[i] = p[i]*w[i] + p[i]"), 8),
    "scalar factor": (lambda: typed("z[i] = r[i]*a[i]"), 4),
    "components": (lambda: typed("s[i] = a[i].x + b[i].s3"), 1),
    "stored component": (lambda: typed("z[i].y = 3*r[i]"), 1),
    "made": (lambda: typed("z[i] = make_float4(r[i], 2*r[i], r[i], 1)"), 1),
    "roots": (lambda: typed("z[i] = sqrt(a[i])"), 4),
    "dot": (lambda: typed("s[i] = dot(a[i], b[i])"), 1),
    "spread": (lambda: typed("z[i] = r[i]"), 1),
    "axis": (lambda: _axis("z[i, j] = 2*a[i, j] + b[i, j]"), 4),
    "axis with scalar": (lambda: _axis("z[i, j] = r[i]*a[i, j]"), 4),
    "axis quotient": (lambda: _axis("z[i, j] = a[i, j] / b[i, j]"), 4),
    "axis spread": (lambda: _axis("z[i, j] = r[i]"), 1),
    "axis component": (lambda: _axis("z[i, j] = a[i, 0]"), 1),
    "axis reversed": (lambda: _axis("z[i, j] = 2*a[i, 3 - j]"), 1),
    "axis functions": (lambda: _axis("z[i, j] = sqrt(a[i, j])"), 1),
    "axis unrolled": (lambda: _axis("z[i, j] = 2*a[i, j]", "unr"), 1),
    "axis of two": (lambda: _axis("z[i, j] = 2*a[i, j] + b[i, j]", width=2), 2),
    "once in the loop": (lambda: _axis("s[i] = 2*r[i] {inames=i:j}"), 1),
    "plain": (plain, 1),
    "partial": (not_full, 1),
}


def _moved(counts: dict[str, Any], direction: str) -> tuple[int, int]:
    parts = [
        (int(v), int(k.split(".")[2]))
        for k, v in counts.items()
        if k.startswith(f"gmem.{direction}.")
    ]
    return sum(n for n, _ in parts), sum(n * bits // 8 for n, bits in parts)


def _operations(counts: dict[str, Any], pattern: str) -> int:
    return sum(int(v) for k, v in counts.items() if re.fullmatch(pattern, k))


@with_oclgrind
@pytest.mark.filterwarnings("ignore:This function is deprecated and will go away")  # Loopy's own
@pytest.mark.parametrize("name", KERNELS)
def test_vectors_are_what_is_executed(name: str, tmp_path: Path) -> None:
    build, width = KERNELS[name]
    counts = count_kernel(build()).evaluate(n=N)
    dynamic = oclgrind.run(build(), {"n": N}, tmp_path)
    for direction in ("load", "store"):
        name = f"{direction} global"
        executed = dynamic.of(name), dynamic.bytes.get(name, 0)
        assert _moved(counts, direction) == executed, direction
    assert _operations(counts, r"flop\.add\..*") == width * dynamic.of("fadd", "fsub")
    assert _operations(counts, r"flop\.(mul|neg)\..*") == width * dynamic.of("fmul", "fneg")
    assert _operations(counts, r"flop\.div\..*") == width * dynamic.of("fdiv")
    assert _operations(counts, r".*\.sqrt") == width * dynamic.calls("sqrt")
    assert _operations(counts, r".*\.dot") == dynamic.calls("dot")


@pytest.mark.parametrize(
    ("build", "counts"),
    [
        (KERNELS["integers"][0], {"iop.mul.i32": 2 * N, "iop.add.i32": 2 * N}),
        (KERNELS["axis"][0], {"gmem.load.128.stride1": 2 * N, "gmem.store.128.stride1": N}),
        (KERNELS["axis reversed"][0], {"gmem.store.32.4of4": 4 * N}),
        (KERNELS["stored component"][0], {"gmem.store.32.1of4": N}),
        (KERNELS["sum"][0], {"gmem.load.128.stride1": 2 * N, "gmem.store.128.stride1": N}),
    ],
)
def test_whole_vectors_are_neighbors_and_components_are_strided(
    build: Callable[[], Any], counts: dict[str, int]
) -> None:
    counted = count_kernel(build()).evaluate(n=N)
    assert {name: counted[name] for name in counts} == counts
