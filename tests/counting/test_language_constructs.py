"""Reductions, scans, tuples, callees, substitution rules, tags, several launches and mixed types,
against what Oclgrind executes of the emitted code."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import loopy as lp
import pytest

from countperf.counting.count_properties import count_kernel
from countperf.errors import DataDependentControlFlowError
from tests.kernels import arguments_of, made
from tests.oracles import oclgrind

needs_oclgrind = pytest.mark.skipif(
    oclgrind.PROGRAM is None, reason="oclgrind-kernel is not installed"
)
# of what Loopy uses of its dependencies
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
N = 6


def reduction(operation: str, kind: str = "f32", *, length: int = 16, tree: bool) -> Any:
    return made(
        f"i<n, j<{length}",
        f"z[i] = reduce({operation}, j, a[i, j])",
        f"a {kind} n,{length}; z {kind} n; n i32",
        tags={"j": "l.0", "i": "g.0"} if tree else None,
    )


def pair_reduction(operation: str, second: str, *, tree: bool) -> Any:
    return made(
        "i<n, j<16",
        f"z[i], y[i] = reduce({operation}, j, (a[i, j], {second}))",
        "a f32 n,16; flags i32 n,16; z f32 n; y i32 n; n i32",
        tags={"j": "l.0", "i": "g.0"} if tree else None,
    )


def scan(operation: str, length: Any, *, parallel: bool) -> Any:
    kernel = made(
        f"[n] -> {{ [i, j] : 0 <= i < {length} and 0 <= j <= i }}",
        f"z[i] = reduce({operation}, j, a[j])",
        f"a,z f32 {length}; n i32",
        tags={"i": "l.0"} if parallel else None,
    )
    return lp.realize_reduction(kernel, force_scan=True)


def callees() -> Any:
    """Call one callee with loops of its own three times, with different arguments, nested."""
    inner = lp.make_function(
        "{ [k] : 0 <= k < 4 }",
        "out[k] = 2*given[k] + 1",
        name="scale",
        lang_version=(2018, 2),
    )
    outer = lp.make_function(
        "{ [p, q] : 0 <= p, q < 4 }",
        """
        kept[p] = given[p] * given[p]  {id=square}
        [q]: out[q] = scale([q]: kept[q]) {dep=square}
        """,
        arguments_of("given,out f32 4; kept f32 4 -"),
        name="scaled_square",
        lang_version=(2018, 2),
    )
    caller = made(
        "i<n, j<4, l<4, m<4, o<4",
        """
        for i
            [j]: y[i, j] = scale([j]: a[i, j]) {id=first}
            [l]: z[i, l] = scaled_square([l]: y[i, l]) {id=second, dep=first}
            [m]: c[i, m] = scaled_square([m]: z[i, m]) {dep=second}
        end
        """,
        "a,c,y,z f32 n,4; n i32",
    )
    return lp.merge([caller, outer, inner])


def unused_local_axis() -> Any:
    kernel = made(
        "i<n, j<n",
        "<> row = a[i] * 3 {id=row, inames=i}\nb[i, j] = row + 1 {dep=row}",
        "a f32 n; b f32 n,n; n i32",
        split="i:4:g.0,l.1 j:8:,l.0",
    )
    return lp.add_inames_for_unused_hw_axes(kernel)


_SIMPLE: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "mixed types": (
        "i<n, j<16",
        "z[i] = sum(j, a[i, j] * d[j] + k[j]) + k[i] // 3\nk[i] = k[i] % 5 + 2",
        "a f32 n,16; d f64 16; z f64 n; k i64 n+16; n i32",
        {"seq_dependencies": True},
    ),
    "tuples": (
        *("i<n", "z[i], y[i] = make_tuple(2*a[i] + 1, a[i]*a[i])"),
        *("a,y f32 n; z f64 n; n i32", {}),
    ),
    "substitutions": (
        "i<n, j<16",
        "pair(p, q) := a[p, q]*a[p, 15 - q]\nz[i] = sum(j, pair(i, j) + pair(0, j))",
        "a f32 n,16; z f32 n; n i32",
        {"split": "i:4"},
    ),
    "ilp": (
        *("i<n, j<16", "z[i, j] = 3*a[i, j]*a[i, j]", "a,z f32 n,16; n i32"),
        {"split": "j:4:,ilp i:4"},
    ),
    "unrolled remainder": (
        *("i<n", "z[i] = 3*a[i]*a[i]", "a,z f32 n; n i32", {"split": "i:4:g.0,unr"}),
    ),
    # the emitted code has loop variables as literals
    "unrolled numbers": (
        *("i<n, j<4, k<4", "z[i, k] = sum(j, a[i, j]*(j + 1) + j // 2) + k"),
        *("a,z f32 n,4; n i32", {"tags": {"j": "unr", "k": "ilp"}}),
    ),
    # with different geometry, one of them with a local barrier
    "three launches": (
        "i<n, j<n, k<n, l<16",
        """
        y[i] = 2*a[i] {id=first}
        ... gbarrier {id=one, dep=first}
        z[j] = sum(l, y[j]*b[l]) {id=second, dep=one}
        ... gbarrier {id=two, dep=second}
        c[k] = z[k] + 1 {dep=two}
        """,
        "a,c,y,z f32 n; b f32 16; n i32",
        {"split": "i:4 k:2", "tags": {"j": "g.0", "l": "l.0"}},
    ),
    "partial groups": (
        *("i<n", "b[i] = a[i]*2 + 1 + rsqrt(a[i])", "a,b f32 n; n i32", {"split": "i:12"}),
    ),
    "affine condition": (
        "i<n, j<n",
        "b[i] = sum(j, a[i, j] / a[j, j] if i != j and j < n - 2 else a[i, i])",
        *("a f32 n,n; b f32 n; n i32", {"split": "i:8"}),
    ),
    "predicated": (
        "i<n",
        """
        for i
            if i >= 2 and i < n - 3
                b[i] = a[i-2] + a[i+3]
            else
                c[i] = a[i]
            end
        end
        """,
        *("a,b,c f32 n; n i32", {"split": "i:8"}),
    ),
    "barrier in a triangular loop": (
        "{ [g, l, k] : 0 <= g and 8*g + l < n and 0 <= l < 8 and 0 <= k <= g }",
        """
        for g, l
            <float32> total = 0 {id=init}
            for k
                tile[l] = a[8*k + l] {id=fill, dep=init}
                total = total + tile[7 - l] {id=use, dep=fill}
            end
            b[8*g + l] = total {dep=use}
        end
        """,
        "a,b f32 n; tile f32 8 local; n i32",
        {"assumptions": "n >= 8 and n mod 8 = 0", "tags": {"g": "g.0", "l": "l.0"}},
    ),
}


def _simple(name: str) -> Any:
    loops, body, arguments, options = _SIMPLE[name]
    return made(loops, body, arguments, **options)


SIZES = {"partial groups": 31, "predicated": 21, "barrier in a triangular loop": 24}
KERNELS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    **{
        f"{operation} {kind} {'tree' if tree else 'loop'}": (
            partial(reduction, operation, kind, tree=tree),
            {},
        )
        for operation, kind in (
            *(("sum", "f32"), ("sum", "f64"), ("sum", "i32"), ("product", "f32")),
            *(("product", "i64"), ("max", "f32"), ("max", "i32"), ("min", "f64")),
        )
        for tree in (False, True)
    },
    "sum of 13 tree": (lambda: reduction("sum", length=13, tree=True), {}),
    **{
        f"{operation} {'tree' if tree else 'loop'}": (
            partial(pair_reduction, operation, "j", tree=tree),
            {},
        )
        for operation in ("argmax", "argmin")
        for tree in (False, True)
    },
    "segmented sum loop": (
        lambda: pair_reduction("segmented(sum)", "flags[i, j]", tree=False),
        {"insn_j_update": 0},
    ),
    "segmented product tree": (
        lambda: pair_reduction("segmented(product)", "flags[i, j]", tree=True),
        {
            "flags[i, j]": 0,
            **{f"acc_j_0[red_j_s{k} + {8 >> k}]": 0 for k in range(4)},
        },
    ),
    "scan": (lambda: scan("sum", 13, parallel=False), {}),
    "scan of n": (lambda: scan("sum", "n", parallel=False), {}),
    "parallel scan": (lambda: scan("sum", 13, parallel=True), {}),
    "parallel scan of maxima": (lambda: scan("max", 16, parallel=True), {}),
    "callees": (callees, {}),
    "unused local axis": (unused_local_axis, {}),
    **{name: (partial(_simple, name), {}) for name in _SIMPLE},
}


def _inlined(t_unit: Any) -> Any:
    """Inline callees, for which Loopy else emits functions that take global arrays only."""
    for name in ("scaled_square", "scale", "scale_0", "scale_1"):
        if name in t_unit.callables_table:
            t_unit = lp.inline_callable_kernel(t_unit, name)
    return t_unit


@needs_oclgrind
@pytest.mark.oclgrind
@pytest.mark.parametrize("name", KERNELS)
def test_constructs_are_what_is_executed(name: str, tmp_path: Path) -> None:
    build, statistics = KERNELS[name]
    sizes = {"n": SIZES.get(name, N)}
    counts = count_kernel(build(), statistics=statistics).evaluate(sizes)
    dynamic = oclgrind.run(_inlined(build()), sizes, tmp_path)
    assert oclgrind.disagreements(counts, dynamic) == {}

    def total(pattern: str) -> int:
        return sum(int(v) for k, v in counts.items() if re.fullmatch(pattern, k))

    conversions = ("fpext", "fptrunc", "sitofp", "fptosi", "uitofp")
    assert total(r"flop\.convert\..*") == dynamic.of(*conversions)
    assert total(r"flop\.compare\..*") == dynamic.of("fcmp")
    assert total(r"iop\.bitwise\..*") == dynamic.of("or")
    if any(word in name for word in ("max f32", "of maxima")):
        assert total(r"flop\.minmax\..*") == dynamic.calls("fmax")


def _logical(operation: str) -> Any:
    text = f"z[i] = {operation}(j, a[i, j] > 0)"
    return made("i<n, j<16", text, "a f32 n,16; z i32 n; n i32")


@needs_oclgrind
@pytest.mark.oclgrind
def test_any_stops_at_the_first_that_holds(tmp_path: Path) -> None:
    kernel = _logical("any")
    with pytest.raises(DataDependentControlFlowError, match="insn_j_update"):
        count_kernel(kernel)
    # all elements are 1.5: after the first, the accumulator holds
    counts = count_kernel(kernel, statistics={"acc_j": Fraction(15, 16)}).evaluate(n=N)
    dynamic = oclgrind.run(kernel, {"n": N}, tmp_path)
    assert counts["flop.compare.f32"] == dynamic.of("fcmp") == N
    assert counts["gmem.load.32.uniform"] == dynamic.of("load global")


def test_a_segment_flag_is_exact_where_loops_decide_it_and_needs_a_probability_in_data() -> None:
    vector = count_kernel(pair_reduction("segmented(sum)", "j % 4", tree=False))
    assert vector.is_exact
    assert vector.evaluate(n=N)["flop.add.f32"] == 4 * N
    kernel = pair_reduction("segmented(sum)", "flags[i, j]", tree=False)
    message = r"flags\[i, j\] holds \(in 'insn_j_update'\).*0\.5"
    with pytest.raises(DataDependentControlFlowError, match=message):
        count_kernel(kernel)
    vector = count_kernel(kernel, statistics={"flags[i, j]": 0.25})
    assert vector.evaluate(n=4)["flop.add.f32"] == 48
    assert vector["flop.add.f32"].reason == "the caller's statistic for 'flags[i, j]'"


@pytest.mark.parametrize(
    ("constant", "bits"), [(2**31 - 1, 32), (2**31, 64), (-(2**31), 32), (-(2**31) - 1, 64)]
)
def test_a_constant_beyond_32_bits_makes_a_sum_one_of_64(constant: int, bits: int) -> None:
    kernel = made("i<n", f"z[i] = a[i] + {constant}", "a i32 n; z i64 n; n i32")
    assert count_kernel(kernel).evaluate(n=N)[f"iop.add.i{bits}"] == N


def test_half_precision_is_a_type_of_its_own() -> None:
    kernel = made("i<n", "z[i] = h[i]*g[i] + a[i]", "h,g f16 n; a,z f32 n; n i32")
    counts = count_kernel(kernel).evaluate(n=N)
    assert (counts["flop.mul.f16"], counts["flop.add.f32"]) == (N, N)
    assert counts["flop.convert.f32"] == N
    assert counts["gmem.load.16.uniform"] == 2 * N


def test_inames_that_equal_a_lane_are_strided() -> None:
    counts = count_kernel(scan("sum", 16, parallel=True)).evaluate(n=N)
    assert {k for k in counts if k.startswith("gmem.load")} == {"gmem.load.32.stride1"}


@needs_oclgrind
@pytest.mark.oclgrind
@pytest.mark.parametrize(("kind", "family"), [("i32", "iop"), ("f64", "flop")])
def test_integer_powers_with_a_variable_exponent_are_calls(
    kind: str, family: str, tmp_path: Path
) -> None:
    kernel = made("i<n", "z[i] = 2*a[i]**k[i]", f"a,z {kind} n; k i32 n; n i32")
    executed = oclgrind.run(kernel, {"n": N}, tmp_path).instructions
    counts = count_kernel(kernel).evaluate(n=N)
    helper = f"call loopy_pow_{'int32' if kind == 'i32' else 'float64'}_int32()"
    assert counts[f"{family}.special.{kind}.pown"] == executed[helper] == N
    assert counts[f"{family}.mul.{kind}"] == N
