"""Reductions, scans, tuples, callees, substitution rules, tags, several launches and mixed types,
against what Oclgrind executes of the emitted code."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import loopy as lp
import numpy as np
import pytest

from countperf.errors import CountingError, DataDependentControlFlowError
from countperf.properties.count_properties import count_kernel
from tests.oracles import oclgrind

needs_oclgrind = pytest.mark.skipif(
    oclgrind.PROGRAM is None, reason="oclgrind-kernel is not installed"
)
# of what Loopy uses of its dependencies
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
N = 6


def _make(domains: Any, body: str, *arguments: Any, **options: Any) -> Any:
    return lp.make_kernel(
        domains,
        body,
        [*arguments, lp.ValueArg("n", np.int32)],
        assumptions="n >= 1",
        lang_version=(2018, 2),
        silenced_warnings=["v1_scheduler_fallback", "write_race*"],
        **options,
    )


def reduction(operation: str, dtype: Any = np.float32, *, length: int = 16, tree: bool) -> Any:
    kernel = _make(
        f"{{ [i, j] : 0 <= i < n and 0 <= j < {length} }}",
        f"z[i] = reduce({operation}, j, a[i, j])",
        lp.GlobalArg("a", dtype, shape=("n", length)),
        lp.GlobalArg("z", dtype, shape="n"),
    )
    return lp.tag_inames(kernel, {"j": "l.0", "i": "g.0"}) if tree else kernel


def pair_reduction(operation: str, second: str, *, tree: bool) -> Any:
    kernel = _make(
        "{ [i, j] : 0 <= i < n and 0 <= j < 16 }",
        f"z[i], y[i] = reduce({operation}, j, (a[i, j], {second}))",
        lp.GlobalArg("a", np.float32, shape=("n", 16)),
        lp.GlobalArg("flags", np.int32, shape=("n", 16)),
        lp.GlobalArg("z", np.float32, shape="n"),
        lp.GlobalArg("y", np.int32, shape="n"),
    )
    return lp.tag_inames(kernel, {"j": "l.0", "i": "g.0"}) if tree else kernel


def scan(operation: str, length: int, *, parallel: bool) -> Any:
    kernel = _make(
        f"[n] -> {{ [i, j] : 0 <= i < {length} and 0 <= j <= i }}",
        f"z[i] = reduce({operation}, j, a[j])",
        lp.GlobalArg("a,z", np.float32, shape=length),
    )
    if parallel:
        kernel = lp.tag_inames(kernel, {"i": "l.0"})
    return lp.realize_reduction(kernel, force_scan=True)


def symbolic_scan() -> Any:
    kernel = _make(
        "{ [i, j] : 0 <= i < n and 0 <= j <= i }",
        "z[i] = reduce(sum, j, a[j])",
        lp.GlobalArg("a,z", np.float32, shape="n"),
    )
    return lp.realize_reduction(kernel, force_scan=True)


def mixed_types() -> Any:
    return _make(
        "{ [i, j] : 0 <= i < n and 0 <= j < 16 }",
        """
        z[i] = sum(j, a[i, j] * d[j] + k[j]) + k[i] // 3
        k[i] = k[i] % 5 + 2
        """,
        lp.GlobalArg("a", np.float32, shape=("n", 16)),
        lp.GlobalArg("d", np.float64, shape=16),
        lp.GlobalArg("z", np.float64, shape="n"),
        lp.GlobalArg("k", np.int64, shape=16),
        seq_dependencies=True,
    )


def tuples() -> Any:
    return _make(
        "{ [i] : 0 <= i < n }",
        "z[i], y[i] = make_tuple(2*a[i] + 1, a[i]*a[i])",
        lp.GlobalArg("a", np.float32, shape="n"),
        lp.GlobalArg("y", np.float32, shape="n"),
        lp.GlobalArg("z", np.float64, shape="n"),
    )


def substitutions() -> Any:
    kernel = _make(
        "{ [i, j] : 0 <= i < n and 0 <= j < 16 }",
        """
        pair(p, q) := a[p, q]*a[p, 15 - q]
        z[i] = sum(j, pair(i, j) + pair(0, j))
        """,
        lp.GlobalArg("a", np.float32, shape=("n", 16)),
        lp.GlobalArg("z", np.float32, shape="n"),
    )
    return lp.split_iname(kernel, "i", 4, outer_tag="g.0", inner_tag="l.0")


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
        [
            lp.GlobalArg("given,out", np.float32, shape=4),
            lp.TemporaryVariable("kept", np.float32, shape=(4,)),
        ],
        name="scaled_square",
        lang_version=(2018, 2),
    )
    caller = _make(
        "{ [i, j, l, m, o] : 0 <= i < n and 0 <= j, l, m, o < 4 }",
        """
        for i
            [j]: y[i, j] = scale([j]: a[i, j]) {id=first}
            [l]: z[i, l] = scaled_square([l]: y[i, l]) {id=second, dep=first}
            [m]: c[i, m] = scaled_square([m]: z[i, m]) {dep=second}
        end
        """,
        lp.GlobalArg("a,c,y,z", np.float32, shape=("n", 4)),
    )
    return lp.merge([caller, outer, inner])


def ilp() -> Any:
    kernel = _make(
        "{ [i, j] : 0 <= i < n and 0 <= j < 16 }",
        "z[i, j] = 3*a[i, j]*a[i, j]",
        lp.GlobalArg("a,z", np.float32, shape=("n", 16)),
    )
    kernel = lp.split_iname(kernel, "j", 4, inner_tag="ilp")
    return lp.split_iname(kernel, "i", 4, outer_tag="g.0", inner_tag="l.0")


def unrolled_remainder() -> Any:
    kernel = _make(
        "{ [i] : 0 <= i < n }",
        "z[i] = 3*a[i]*a[i]",
        lp.GlobalArg("a,z", np.float32, shape="n"),
    )
    return lp.split_iname(kernel, "i", 4, inner_tag="unr", outer_tag="g.0")


def unrolled_numbers() -> Any:
    """Use unrolled loop variables as numbers, which the emitted code has as literals."""
    kernel = _make(
        "{ [i, j, k] : 0 <= i < n and 0 <= j, k < 4 }",
        "z[i, k] = sum(j, a[i, j]*(j + 1) + j // 2) + k",
        lp.GlobalArg("a,z", np.float32, shape=("n", 4)),
    )
    return lp.tag_inames(kernel, {"j": "unr", "k": "ilp"})


def three_launches() -> Any:
    """Run three device programs with different geometry, one of them with a local barrier."""
    kernel = _make(
        "{ [i, j, k, l] : 0 <= i, j, k < n and 0 <= l < 16 }",
        """
        y[i] = 2*a[i] {id=first}
        ... gbarrier {id=one, dep=first}
        z[j] = sum(l, y[j]*b[l]) {id=second, dep=one}
        ... gbarrier {id=two, dep=second}
        c[k] = z[k] + 1 {dep=two}
        """,
        lp.GlobalArg("a,c,y,z", np.float32, shape="n"),
        lp.GlobalArg("b", np.float32, shape=16),
    )
    kernel = lp.split_iname(kernel, "i", 4, outer_tag="g.0", inner_tag="l.0")
    kernel = lp.tag_inames(kernel, {"j": "g.0", "l": "l.0"})
    return lp.split_iname(kernel, "k", 2, outer_tag="g.0", inner_tag="l.0")


KERNELS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    **{
        f"{operation} {np.dtype(dtype).name} {'tree' if tree else 'loop'}": (
            lambda o=operation, d=dtype, t=tree: reduction(o, d, tree=t),
            {},
        )
        for operation, dtype in (
            ("sum", np.float32),
            ("sum", np.float64),
            ("sum", np.int32),
            ("product", np.float32),
            ("product", np.int64),
            ("max", np.float32),
            ("max", np.int32),
            ("min", np.float64),
        )
        for tree in (False, True)
    },
    "sum of 13 tree": (lambda: reduction("sum", length=13, tree=True), {}),
    **{
        f"{operation} {'tree' if tree else 'loop'}": (
            lambda o=operation, t=tree: pair_reduction(o, "j", tree=t),
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
    "scan of n": (symbolic_scan, {}),
    "parallel scan": (lambda: scan("sum", 13, parallel=True), {}),
    "parallel scan of maxima": (lambda: scan("max", 16, parallel=True), {}),
    "mixed types": (mixed_types, {}),
    "tuples": (tuples, {}),
    "substitutions": (substitutions, {}),
    "callees": (callees, {}),
    "ilp": (ilp, {}),
    "unrolled remainder": (unrolled_remainder, {}),
    "unrolled numbers": (unrolled_numbers, {}),
    "three launches": (three_launches, {}),
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
    counts = count_kernel(build(), statistics=statistics).evaluate(n=N)
    dynamic = oclgrind.run(_inlined(build()), {"n": N}, tmp_path)
    assert oclgrind.disagreements(counts, dynamic) == {}

    def total(pattern: str) -> int:
        return sum(int(v) for k, v in counts.items() if re.fullmatch(pattern, k))

    conversions = ("fpext", "fptrunc", "sitofp", "fptosi", "uitofp")
    assert total(r"flop\.convert\..*") == dynamic.of(*conversions)
    assert total(r"flop\.compare\..*") == dynamic.of("fcmp")
    assert total(r"iop\.bitwise\..*") == dynamic.of("or")
    if any(word in name for word in ("max float", "max tree", "of maxima")) and "arg" not in name:
        assert total(r"flop\.minmax\..*") == dynamic.calls("fmax")


@needs_oclgrind
@pytest.mark.oclgrind
def test_any_stops_at_the_first_that_holds(tmp_path: Path) -> None:
    kernel = _make(
        "{ [i, j] : 0 <= i < n and 0 <= j < 16 }",
        "z[i] = any(j, a[i, j] > 0)",
        lp.GlobalArg("a", np.float32, shape=("n", 16)),
        lp.GlobalArg("z", np.int32, shape="n"),
    )
    with pytest.raises(DataDependentControlFlowError, match="insn_j_update"):
        count_kernel(kernel)
    # all elements are 1.5: after the first, the accumulator holds
    counts = count_kernel(kernel, statistics={"acc_j": Fraction(15, 16)}).evaluate(n=N)
    dynamic = oclgrind.run(kernel, {"n": N}, tmp_path)
    assert counts["flop.compare.f32"] == dynamic.of("fcmp") == N
    assert counts["gmem.load.32.uniform"] == dynamic.of("load global")


def test_an_all_reduction_names_its_condition() -> None:
    kernel = _make(
        "{ [i, j] : 0 <= i < n and 0 <= j < 16 }",
        "z[i] = all(j, a[i, j] > 0)",
        lp.GlobalArg("a", np.float32, shape=("n", 16)),
        lp.GlobalArg("z", np.int32, shape="n"),
    )
    vector = count_kernel(kernel, statistics={"acc_j": 0.5})
    assert vector.evaluate(n=N)["flop.compare.f32"] == 8 * N
    assert not vector["flop.compare.f32"].exact


def test_a_segment_flag_that_loops_decide_is_exact() -> None:
    vector = count_kernel(
        _make(
            "{ [i, j] : 0 <= i < n and 0 <= j < 16 }",
            "z[i], y[i] = reduce(segmented(sum), j, (a[i, j], j % 4))",
            lp.GlobalArg("a", np.float32, shape=("n", 16)),
            lp.GlobalArg("z", np.float32, shape="n"),
            lp.GlobalArg("y", np.int32, shape="n"),
        )
    )
    assert vector.is_exact
    assert vector.evaluate(n=N)["flop.add.f32"] == 4 * N


def test_a_segment_flag_in_data_needs_a_probability() -> None:
    kernel = pair_reduction("segmented(sum)", "flags[i, j]", tree=False)
    message = r"flags\[i, j\] holds \(in 'insn_j_update'\).*0\.5"
    with pytest.raises(DataDependentControlFlowError, match=message):
        count_kernel(kernel)
    vector = count_kernel(kernel, statistics={"flags[i, j]": 0.25})
    assert vector.evaluate(n=4)["flop.add.f32"] == 48
    assert vector["flop.add.f32"].reason == "the caller's statistic for 'flags[i, j]'"


def test_half_precision_is_a_type_of_its_own() -> None:
    kernel = _make(
        "{ [i] : 0 <= i < n }",
        "z[i] = h[i]*g[i] + a[i]",
        lp.GlobalArg("h,g", np.float16, shape="n"),
        lp.GlobalArg("a,z", np.float32, shape="n"),
    )
    counts = count_kernel(kernel).evaluate(n=N)
    assert (counts["flop.mul.f16"], counts["flop.add.f32"]) == (N, N)
    assert counts["flop.convert.f32"] == N
    assert counts["gmem.load.16.uniform"] == 2 * N


def test_inames_that_equal_a_lane_are_strided() -> None:
    counts = count_kernel(scan("sum", 16, parallel=True)).evaluate(n=N)
    assert {k for k in counts if k.startswith("gmem.load")} == {"gmem.load.32.stride1"}


def test_a_power_by_an_unrolled_variable_is_refused() -> None:
    kernel = _make(
        "{ [i, j] : 0 <= i < n and 0 <= j < 4 }",
        "z[i, j] = a[i, j]**j",
        lp.GlobalArg("a,z", np.float32, shape=("n", 4)),
    )
    with pytest.raises(CountingError, match="each copy of the unrolled loop"):
        count_kernel(lp.tag_inames(kernel, {"j": "unr"}))


def test_callees_that_loopy_cannot_inline_are_refused() -> None:
    external = lp.make_function(
        "{ [k] : 0 <= k < 4 }", "out[k] = given[k]", name="copied", lang_version=(2018, 2)
    )
    caller = _make(
        "{ [i, j] : 0 <= i < n and 0 <= j < 4 }",
        "[j]: z[i, j] = copied([j]: a[i, j])",
        lp.GlobalArg("a,z", np.float32, shape=("n", 4)),
    )
    assert count_kernel(lp.merge([caller, external])).evaluate(n=N)["gmem.load.32.uniform"] == 4 * N
    with pytest.raises(CountingError):
        count_kernel(caller)


@pytest.mark.oclgrind
@pytest.mark.skipif(oclgrind.PROGRAM is None, reason="oclgrind-kernel is not installed")
@pytest.mark.parametrize("dtype", [np.int32, np.float64])
def test_integer_powers_with_a_variable_exponent_are_calls(dtype: Any, tmp_path: Path) -> None:
    kernel = _make(
        "{ [i] : 0 <= i < n }",
        "z[i] = 2*a[i]**k[i]",
        lp.GlobalArg("a,z", dtype, shape="n"),
        lp.GlobalArg("k", np.int32, shape="n"),
    )
    name = "i32" if dtype is np.int32 else "f64"
    executed = oclgrind.run(kernel, {"n": N}, tmp_path).instructions
    counts = count_kernel(kernel).evaluate(n=N)
    helper = f"call loopy_pow_{np.dtype(dtype).name}_int32()"
    family = "iop" if dtype is np.int32 else "flop"
    assert counts[f"{family}.special.{name}.pown"] == executed[helper] == N
    assert counts[f"{family}.mul.{name}"] == N
