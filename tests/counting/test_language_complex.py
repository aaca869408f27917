"""Complex arithmetic against what Oclgrind executes of Loopy's emitted code, unoptimized."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pymbolic.primitives as p
import pytest

from countperf.counting.count_properties import count_kernel
from tests.kernels import made
from tests.oracles import oclgrind

needs_oclgrind = pytest.mark.skipif(
    oclgrind.PROGRAM is None, reason="oclgrind-kernel is not installed"
)
N = 8


def complex_kernel(expression: str, kind: str = "c64", **options: Any) -> Any:
    """Make a kernel of complex a and b, and real r, s and d."""
    real = "f32" if kind == "c64" else "f64"
    arguments = f"a,b,z {kind} n; r,s {real} n; d f64 n; n i32"
    return made("i<n", f"z[i] = {expression}", arguments, **options)


def counted_of(counts: dict[str, Any]) -> dict[str, int]:
    """Sum counts as Oclgrind tells them apart."""

    def total(pattern: str) -> int:
        return sum(int(v) for k, v in counts.items() if re.fullmatch(pattern, k))

    def moved(direction: str) -> int:
        return sum(
            int(v) * int(k.split(".")[2]) // 8
            for k, v in counts.items()
            if k.startswith(f"gmem.{direction}.")
        )

    sums = {
        "additions": total(r"flop\.add\..*"),
        "multiplications": total(r"flop\.(mul|neg)\..*"),
        "divisions": total(r"flop\.div\..*"),
        "comparisons": total(r"flop\.compare\..*"),
        "conversions": total(r"flop\.convert\..*"),
        "calls of fma": total(r"flop\.fma\..*"),
        "bytes loaded": moved("load"),
        "bytes stored": moved("store"),
    }
    for name, value in counts.items():
        if name.startswith("flop.special."):
            sums[f"calls of {name.split('.')[-1]}"] = int(value)
    return sums


def executed_of(dynamic: oclgrind.DynamicCounts, dtype: Any) -> dict[str, int]:
    """Return the same of executed instructions; whole elements are copied as memory."""
    size = np.dtype(dtype).itemsize
    within = dynamic.copied(1, 1)  # from global memory to global memory
    loaded, stored = dynamic.copied(1, 0) + within, dynamic.copied(0, 1) + within
    sums = {
        "additions": dynamic.of("fadd", "fsub"),
        "multiplications": dynamic.of("fmul", "fneg"),
        "divisions": dynamic.of("fdiv"),
        "comparisons": dynamic.of("fcmp"),
        "conversions": dynamic.of("fpext", "fptrunc", "sitofp"),
        "calls of fma": dynamic.calls("fma"),
        "bytes loaded": dynamic.bytes.get("load global", 0) + size * loaded,
        "bytes stored": dynamic.bytes.get("store global", 0) + size * stored,
    }
    for name in ("fabs", "hypot", "atan2", "log", "exp", "sqrt", "sincos", "sinh", "cosh"):
        if calls := dynamic.calls(name):
            sums[f"calls of {name}"] = calls
    return sums


EXPRESSIONS = [
    "a[i] + b[i]",
    "a[i] - b[i]",
    "-a[i]",
    "a[i] * b[i]",
    "a[i] / b[i]",
    "a[i] + r[i]",
    "a[i] * r[i]",
    "r[i] * s[i] * a[i]",
    "a[i] * r[i] * s[i]",
    "a[i] / r[i]",
    "r[i] / a[i]",
    "a[i] + b[i]*a[i]",
    "a[i]*b[i] + b[i]*a[i]",
    "r[i] + a[i]*b[i] + a[i] + s[i] + b[i]",
    "a[i]*b[i]*a[i]*b[i]",
    "conj(a[i])",
    "abs(a[i])",
    "real(a[i]) + imag(b[i])",
    "exp(a[i])",
    "log(a[i])",
    "sin(a[i])",
    "cos(a[i])",
    "sinh(a[i])",
    "cosh(a[i])",
    "a[i]**0.5",
    "r[i]",
    "real(r[i])",
]
MIXED = [
    "1 / a[i]",  # double precision, since the type of 1 is that of an int
    "a[i]**2",
    "a[i]**3",
    "a[i]**5",
    "a[i] + i",
    "d[i] + a[i]",
    "d[i] * a[i] * r[i]",
    "(d[i] + a[i]) * b[i]",
]


def _assert_executed(kernel: Any, dtype: Any, folder: Path) -> None:
    executed = executed_of(oclgrind.run(kernel, {"n": N}, folder), dtype)
    assert counted_of(count_kernel(kernel).evaluate(n=N)) == executed


@needs_oclgrind
@pytest.mark.oclgrind
@pytest.mark.parametrize("expression", [*EXPRESSIONS, *MIXED])
def test_single_precision_is_what_is_executed(expression: str, tmp_path: Path) -> None:
    _assert_executed(complex_kernel(expression), np.complex64, tmp_path)


@needs_oclgrind
@pytest.mark.oclgrind
@pytest.mark.parametrize(
    "expression", ["a[i]*b[i] + r[i]*a[i]", "a[i] / b[i]", "a[i] + b[i]**2", "exp(a[i]) / 2"]
)
def test_double_precision_is_what_is_executed(expression: str, tmp_path: Path) -> None:
    _assert_executed(complex_kernel(expression, "c128"), np.complex128, tmp_path)


@needs_oclgrind
@pytest.mark.oclgrind
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


@needs_oclgrind
@pytest.mark.oclgrind
@pytest.mark.parametrize("function", ["sqrt", "tan", "tanh"])
def test_helpers_that_branch_on_data_are_calls(function: str, tmp_path: Path) -> None:
    kernel = complex_kernel(f"{function}(a[i])*r[i]")
    executed = oclgrind.run(kernel, {"n": N}, tmp_path).instructions
    counts = count_kernel(kernel).evaluate(n=N)
    assert counts[f"flop.special.f32.c{function}"] == executed[f"call cfloat_{function}()"] == N
    assert counts["flop.mul.f32"] == 2 * N
