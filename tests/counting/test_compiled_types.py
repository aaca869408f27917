"""Complex numbers and vectors in the compiler's view, against what LLVM leaves at -O3."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import loopy as lp
import pytest

import countperf
from countperf.counting.count_properties import count_kernel
from countperf.counting.execution.sites import count_execution
from countperf.counting.structure.site_keys import EventKey
from countperf.errors import UnmeasuredPropertyError
from countperf.models.library import load_weights
from tests.counting.test_language_complex import EXPRESSIONS, complex_kernel
from tests.counting.test_language_vectors import typed
from tests.kernels import made
from tests.oracles import llvm_ir, oclgrind

needs_llvm = pytest.mark.skipif(
    not llvm_ir.is_available(), reason="oclgrind-kernel and opt of LLVM 14 are not installed"
)
N = 37
ALSO = ["a[i]**2", "a[i]**3", "d[i] * a[i] * r[i]", "(d[i] + a[i]) * b[i]", "a[i]*b[i] + a[i]*b[i]",
        "1.0*a[i]*b[i] + b[i]/1.0", "a[i]*b[i]*1.0 - 0.0"]  # fmt: skip
UNUSED = "real(a[i]) + imag(b[i])"
"""LLVM leaves out the parts that are not used; the count is a bound from above."""


def _vectors(width: int, kind: str = "f32", *, tag: str = "vec", stored: str = "a,b") -> Any:
    text = "b[i, c] = a[i, c]*2 + 1"
    kernel = made(f"i<n, c<{width}", text, f"a,b {kind} n,{width}; n i32", split="i:16")
    return lp.tag_inames(lp.tag_array_axes(kernel, stored, "c,vec"), {"c": tag})


def _compiled(kernel: Any, folder: Path) -> tuple[dict[str, Any], oclgrind.DynamicCounts]:
    """Return what is counted in the compiler's view, and what LLVM leaves and Oclgrind executes."""
    dynamic = oclgrind.run(kernel, {"n": N}, folder, contraction=True, passes=llvm_ir.O3)
    return count_kernel(kernel, view="compiled").evaluate(n=N), dynamic


def _operations(counts: Any) -> dict[str, int]:
    sums: Counter[str] = Counter()
    for name, value in counts.items():
        family, kind = (*name.split("."), "")[:2]
        if family == "flop" and kind in ("add", "mul", "div", "fma") and value:
            sums[kind] += int(value)
    return dict(sums)


def _left(dynamic: oclgrind.DynamicCounts, width: int = 1) -> dict[str, int]:
    calls = dynamic.instructions.items()
    fused = sum(n for name, n in calls if name.startswith("call llvm.fmuladd."))
    sums = {
        "add": dynamic.of("fadd", "fsub"),
        "mul": dynamic.of("fmul"),
        "div": dynamic.of("fdiv"),
        "fma": fused + dynamic.calls("fma"),
    }
    return {kind: number * width for kind, number in sums.items() if number}


def _bytes(counts: Any, direction: str) -> int:
    return sum(
        int(value) * int(name.split(".")[2]) // 8
        for name, value in counts.items()
        if name.startswith(f"gmem.{direction}.")
    )


@needs_llvm
@pytest.mark.oclgrind
@pytest.mark.parametrize("kind", ["c64", pytest.param("c128", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("expression", [*EXPRESSIONS, *ALSO])
def test_complex_operations_are_what_llvm_leaves(
    expression: str, kind: str, tmp_path: Path
) -> None:
    counts, dynamic = _compiled(complex_kernel(expression, kind), tmp_path)
    assert _operations(counts) == _left(dynamic)
    parts = 2 if expression == UNUSED else 1
    assert _bytes(counts, "load") == parts * dynamic.bytes["load global"]
    assert _bytes(counts, "store") == dynamic.bytes["store global"]


@needs_llvm
@pytest.mark.oclgrind
def test_complex_values_leave_loops_that_do_not_change_them(tmp_path: Path) -> None:
    arguments = "a,b,z c64 n; c c64 5; n i32"
    kernel = made("i<n, j<5", "z[i] = sum(j, a[i]*b[i] + c[j])", arguments)
    counts = count_kernel(kernel, view="compiled").evaluate(n=N)
    # fma(a.re, b.re, c.re) and two more wait for c[j]; then the sum of the reduction
    assert _operations(counts) == {"fma": 4 * 5 * N, "add": 2 * 5 * N}
    assert _bytes(counts, "load") == 8 * (2 * N + 5 * N)
    kernel = made("i<n, j<5", "z[i] = sum(j, a[i]*b[i]*c[j])", arguments)
    counts, dynamic = _compiled(kernel, tmp_path)
    assert _operations(counts) == _left(dynamic)


@needs_llvm
@pytest.mark.oclgrind
@pytest.mark.parametrize(
    ("width", "kind"),
    [
        *((2, "f64"), (3, "f32"), (3, "f64"), (4, "f32"), (4, "f64")),
        *((8, "f32"), (16, "f32")),
    ],
)
def test_vectors_are_whole_accesses_and_operations_of_each_component(
    width: int, kind: str, tmp_path: Path
) -> None:
    counts, dynamic = _compiled(_vectors(width, kind), tmp_path)
    assert _operations(counts) == _left(dynamic, width) == {"fma": width * N}
    bits = int(kind[1:])
    in_memory = 4 if width == 3 else width
    assert counts[f"gmem.load.{in_memory * bits}.stride1"] == N == dynamic.of("load global")
    assert counts[f"gmem.store.{width * bits}.stride1"] == N
    for direction in ("load", "store"):
        assert _bytes(counts, direction) == dynamic.bytes[f"{direction} global"]


@needs_llvm
@pytest.mark.oclgrind
@pytest.mark.parametrize(
    ("body", "left", "loads"),
    [
        ("z[i] = a[i]*b[i] + a[i]", {"fma": 4}, 2),
        ("z[i] = a[i]*r[i] + b[i]*s[i]", {"mul": 4, "fma": 4}, 4),
        ("z[i] = a[i] + 2*a[i]", {"fma": 4}, 1),
        ("w[i] = 3*p[i]", {"mul": 8}, 1),
    ],
)
def test_vector_types_are_contracted(
    body: str, left: dict[str, int], loads: int, tmp_path: Path
) -> None:
    counts, dynamic = _compiled(typed(body), tmp_path)
    width = 8 if body.startswith("w") else 4
    assert _operations(counts) == _left(dynamic, width) == {k: N * v for k, v in left.items()}
    assert sum(v for k, v in counts.items() if k.startswith("gmem.load.")) == loads * N
    assert dynamic.of("load global") == loads * N


@needs_llvm
@pytest.mark.oclgrind
@pytest.mark.parametrize(("tag", "stored"), [("unr", "a,b"), ("vec", "a"), ("vec", "b")])
def test_components_load_their_vector_once(tag: str, stored: str, tmp_path: Path) -> None:
    counts, dynamic = _compiled(_vectors(4, tag=tag, stored=stored), tmp_path)
    assert oclgrind.disagreements(counts, dynamic, optimized=True) == {}


@pytest.mark.parametrize("kind", ["c64", "c128"])
def test_complex_kernels_are_predicted_from_their_real_operations(kind: str) -> None:
    kernel = complex_kernel("a[i]*b[i]", kind, split="i:64")
    real = "f32" if kind == "c64" else "f64"
    counts = count_kernel(kernel, view="structure").evaluate(n=4096)
    operations = {k.split(".flop.")[1]: v for k, v in counts.items() if ".flop." in k}
    assert operations == {f"mul.{real}": 2 * 4096, f"fma.{real}": 2 * 4096}
    assert countperf.predict(
        kernel, n=4096, weights=load_weights("pocl-epyc-zen5", model="structural")
    ).complete
    linear = load_weights("pocl-epyc-zen5", model="linear")
    if kind == "c64":
        assert countperf.predict(kernel, n=4096, weights=linear).complete
    else:
        with pytest.raises(UnmeasuredPropertyError, match=r"gmem\.load\.128\.stride1"):
            countperf.predict(kernel, n=4096, weights=linear)


def test_vector_kernels_are_predicted_from_their_components() -> None:
    weights = load_weights("pocl-epyc-zen5", model="structural")
    for kernel in (_vectors(4), _vectors(3), _vectors(4, stored="b"), _vectors(4, tag="unr")):
        assert countperf.predict(kernel, n=4096, weights=weights).complete


@pytest.mark.parametrize("kind", ["f32", "c64"])
def test_a_chain_of_complex_sums_waits_as_one_of_real_ones_does(kind: str) -> None:
    kernel = made("i<n, j<m", "z[i] = sum(j, a[i, j])", f"a {kind} n,m; z {kind} n; n,m i32")
    events = [key.event for key in count_execution(kernel).counts if isinstance(key, EventKey)]
    assert [event for event in events if event.startswith("chain.")] == ["chain.add.f32"]
