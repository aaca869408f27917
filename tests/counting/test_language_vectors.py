"""Vector types and vectorized loops, against what Oclgrind executes of the emitted code."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import loopy as lp
import pytest
from pyopencl import cltypes

from countperf.counting.count_properties import count_kernel
from tests.kernels import made
from tests.oracles import oclgrind

needs_oclgrind = pytest.mark.skipif(
    oclgrind.PROGRAM is None, reason="oclgrind-kernel is not installed"
)
N = 8


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


@needs_oclgrind
@pytest.mark.oclgrind
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
