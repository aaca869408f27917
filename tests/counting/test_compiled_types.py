"""Complex numbers and vectors in the compiler's view, against what LLVM leaves at -O3."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import loopy as lp
import numpy as np
import pytest

from countperf.errors import UnmeasuredPropertyError
from countperf.execution.count import count_execution
from countperf.execution.keys import ChainKey
from countperf.models.library import load_weights
from countperf.properties.count_properties import count_kernel
from tests.counting.test_language_complex import EXPRESSIONS
from tests.counting.test_language_vectors import SILENCED, typed
from tests.oracles import llvm_ir, oclgrind

needs_llvm = pytest.mark.skipif(
    not llvm_ir.is_available(), reason="oclgrind-kernel and opt of LLVM 14 are not installed"
)
N = 37
ALSO = ["a[i]**2", "a[i]**3", "d[i] * a[i] * r[i]", "(d[i] + a[i]) * b[i]", "a[i]*b[i] + a[i]*b[i]",
        "1.0*a[i]*b[i] + b[i]/1.0", "a[i]*b[i]*1.0 - 0.0"]  # fmt: skip
UNUSED = "real(a[i]) + imag(b[i])"
"""LLVM leaves out the parts that are not used; the count is a bound from above."""


def _complex(expression: str, dtype: Any = np.complex64, domain: str = "0 <= i < n") -> Any:
    real = np.float32 if dtype is np.complex64 else np.float64
    return lp.make_kernel(
        f"{{ [i] : {domain} }}",
        f"z[i] = {expression}",
        [
            lp.GlobalArg("a,b,z", dtype, shape="n"),
            lp.GlobalArg("r,s", real, shape="n"),
            lp.GlobalArg("d", np.float64, shape="n"),
            lp.ValueArg("n", np.int32),
        ],
        assumptions="n >= 1",
        lang_version=(2018, 2),
    )


def _vectors(
    width: int, dtype: Any = np.float32, *, tag: str = "vec", stored: str = "a,b", body: str = ""
) -> Any:
    kernel = lp.make_kernel(
        f"{{ [i, c] : 0 <= i < n and 0 <= c < {width} }}",
        body or "b[i, c] = a[i, c]*2 + 1",
        [lp.GlobalArg("a,b", dtype, shape=f"n,{width}"), lp.ValueArg("n", np.int32)],
        assumptions="n >= 1",
        lang_version=(2018, 2),
        silenced_warnings=SILENCED,
    )
    kernel = lp.tag_array_axes(kernel, stored, "c,vec")
    kernel = lp.tag_inames(kernel, {"c": tag})
    return lp.split_iname(kernel, "i", 16, outer_tag="g.0", inner_tag="l.0")


def _operations(counts: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, value in counts.items():
        if not name.startswith("flop."):
            continue
        kind = name.split(".")[1]
        if kind in ("add", "mul", "div", "fma") and value:
            found[kind] = found.get(kind, 0) + int(value)
    return found


def _left(dynamic: oclgrind.DynamicCounts, width: int = 1) -> dict[str, int]:
    fused = sum(
        number
        for name, number in dynamic.instructions.items()
        if name.startswith("call llvm.fmuladd.")
    )
    found = {
        "add": dynamic.of("fadd", "fsub"),
        "mul": dynamic.of("fmul"),
        "div": dynamic.of("fdiv"),
        "fma": fused + dynamic.calls("fma"),
    }
    return {kind: number * width for kind, number in found.items() if number}


def _bytes(counts: Any, direction: str) -> int:
    return sum(
        int(value) * int(name.split(".")[2]) // 8
        for name, value in counts.items()
        if name.startswith(f"gmem.{direction}.")
    )


@needs_llvm
@pytest.mark.oclgrind
@pytest.mark.parametrize(
    "dtype", [np.complex64, pytest.param(np.complex128, marks=pytest.mark.nightly)]
)
@pytest.mark.parametrize("expression", [*EXPRESSIONS, *ALSO])
def test_complex_operations_are_what_llvm_leaves(
    expression: str, dtype: Any, tmp_path: Path
) -> None:
    kernel = _complex(expression, dtype)
    counts = count_kernel(kernel, view="compiled").evaluate(n=N)
    dynamic = oclgrind.run(kernel, {"n": N}, tmp_path, contraction=True, passes=llvm_ir.O3)
    assert _operations(counts) == _left(dynamic)
    if expression == UNUSED:
        assert _bytes(counts, "load") == 2 * dynamic.bytes["load global"]
    else:
        assert _bytes(counts, "load") == dynamic.bytes["load global"]
    assert _bytes(counts, "store") == dynamic.bytes["store global"]


@needs_llvm
@pytest.mark.oclgrind
def test_complex_values_leave_loops_that_do_not_change_them(tmp_path: Path) -> None:
    kernel = lp.make_kernel(
        "{ [i, j] : 0 <= i < n and 0 <= j < 5 }",
        "z[i] = sum(j, a[i]*b[i] + c[j])",
        [
            lp.GlobalArg("a,b,z", np.complex64, shape="n"),
            lp.GlobalArg("c", np.complex64, shape=5),
            lp.ValueArg("n", np.int32),
        ],
        assumptions="n >= 1",
        lang_version=(2018, 2),
    )
    counts = count_kernel(kernel, view="compiled").evaluate(n=N)
    # fma(a.re, b.re, c.re) and two more wait for c[j]; then the sum of the reduction
    assert _operations(counts) == {"fma": 4 * 5 * N, "add": 2 * 5 * N}
    assert _bytes(counts, "load") == 8 * (2 * N + 5 * N)
    kernel = lp.make_kernel(
        "{ [i, j] : 0 <= i < n and 0 <= j < 5 }",
        "z[i] = sum(j, a[i]*b[i]*c[j])",
        [
            lp.GlobalArg("a,b,z", np.complex64, shape="n"),
            lp.GlobalArg("c", np.complex64, shape=5),
            lp.ValueArg("n", np.int32),
        ],
        assumptions="n >= 1",
        lang_version=(2018, 2),
    )
    counts = count_kernel(kernel, view="compiled").evaluate(n=N)
    dynamic = oclgrind.run(kernel, {"n": N}, tmp_path, contraction=True, passes=llvm_ir.O3)
    assert _operations(counts) == _left(dynamic)


@needs_llvm
@pytest.mark.oclgrind
@pytest.mark.parametrize(
    ("width", "dtype"),
    [
        *((2, np.float64), (3, np.float32), (3, np.float64), (4, np.float32), (4, np.float64)),
        *((8, np.float32), (16, np.float32)),
    ],
)
def test_vectors_are_whole_accesses_and_operations_of_each_component(
    width: int, dtype: Any, tmp_path: Path
) -> None:
    kernel = _vectors(width, dtype)
    counts = count_kernel(kernel, view="compiled").evaluate(n=N)
    dynamic = oclgrind.run(kernel, {"n": N}, tmp_path, contraction=True, passes=llvm_ir.O3)
    assert _operations(counts) == _left(dynamic, width) == {"fma": width * N}
    bits = 8 * np.dtype(dtype).itemsize
    in_memory = 4 if width == 3 else width
    assert counts[f"gmem.load.{in_memory * bits}.stride1"] == N == dynamic.of("load global")
    assert counts[f"gmem.store.{width * bits}.stride1"] == N
    assert _bytes(counts, "load") == dynamic.bytes["load global"]
    assert _bytes(counts, "store") == dynamic.bytes["store global"]


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
    kernel = typed(body)
    counts = count_kernel(kernel, view="compiled").evaluate(n=N)
    dynamic = oclgrind.run(kernel, {"n": N}, tmp_path, contraction=True, passes=llvm_ir.O3)
    width = 8 if body.startswith("w") else 4
    assert _operations(counts) == _left(dynamic, width) == {k: N * v for k, v in left.items()}
    assert sum(v for k, v in counts.items() if k.startswith("gmem.load.")) == loads * N
    assert dynamic.of("load global") == loads * N


@needs_llvm
@pytest.mark.oclgrind
@pytest.mark.parametrize(("tag", "stored"), [("unr", "a,b"), ("vec", "a"), ("vec", "b")])
def test_components_load_their_vector_once(tag: str, stored: str, tmp_path: Path) -> None:
    kernel = _vectors(4, tag=tag, stored=stored)
    vector = count_kernel(kernel, view="compiled")
    counts = vector.evaluate(n=N)
    dynamic = oclgrind.run(kernel, {"n": N}, tmp_path, contraction=True, passes=llvm_ir.O3)
    assert oclgrind.disagreements(counts, dynamic, optimized=True) == {}


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_kernels_are_predicted_from_their_real_operations(dtype: Any) -> None:
    kernel = lp.split_iname(_complex("a[i]*b[i]", dtype), "i", 64, outer_tag="g.0", inner_tag="l.0")
    vector = count_kernel(kernel, view="structure")
    real = "f32" if dtype is np.complex64 else "f64"
    counts = vector.evaluate(n=4096)
    found = {k.split(".flop.")[1]: v for k, v in counts.items() if ".flop." in k}
    assert found == {f"mul.{real}": 2 * 4096, f"fma.{real}": 2 * 4096}
    assert load_weights("pocl-epyc-zen5", model="structural").predict(kernel, n=4096).complete
    linear = load_weights("pocl-epyc-zen5", model="linear")
    if dtype is np.complex64:
        assert linear.predict(kernel, n=4096).complete
    else:
        with pytest.raises(UnmeasuredPropertyError, match=r"gmem\.load\.128\.stride1"):
            linear.predict(kernel, n=4096)


def test_vector_kernels_are_predicted_from_their_components() -> None:
    weights = load_weights("pocl-epyc-zen5", model="structural")
    for kernel in (_vectors(4), _vectors(3), _vectors(4, stored="b"), _vectors(4, tag="unr")):
        assert weights.predict(kernel, n=4096).complete


def test_a_chain_of_complex_sums_waits_as_one_of_real_ones_does() -> None:
    def summed(dtype: Any) -> Any:
        return lp.make_kernel(
            "{ [i, j] : 0 <= i < n and 0 <= j < m }",
            "z[i] = sum(j, a[i, j])",
            [lp.GlobalArg("a", dtype, shape="n,m"), lp.GlobalArg("z", dtype, shape="n"), ...],
            assumptions="n >= 1 and m >= 1",
            lang_version=(2018, 2),
        )

    for dtype in (np.float32, np.complex64):
        keys = count_execution(summed(dtype)).counts
        chains = [(key.kind, key.type_name) for key in keys if isinstance(key, ChainKey)]
        assert chains == [("add", "f32")]
