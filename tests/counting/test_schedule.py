"""Kernels as Loopy prepares them: callees, against what Oclgrind executes of Loopy's functions,
which are not inlined; loops over copies in a fixed order; unsigned integers that C wraps."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import loopy as lp
import loopy.schedule
import numpy as np
import pytest
from loopy.schedule import Barrier

from countperf.counting.analysis import analyze_kernel
from countperf.counting.count_properties import count_kernel, count_loopy_kernel
from countperf.counting.frontend.schedule import generate_code, in_fixed_order, prepare_unit
from countperf.counting.programs import kernel_programs
from countperf.errors import CountingError, KernelBuildError
from tests.counting.test_source_view import with_oclgrind
from tests.kernels import arguments_of, made
from tests.oracles import oclgrind

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Loopy's dependencies
N, M = 9, 7
BOUNDS = {"t": 3, "i": "n", "p": "m", "q": "m", "r": "n", "s": "n"}  # of the caller's loops


def function(
    loops: str, body: str, sizes: str, name: str = "dbl", assumptions: str | None = None
) -> Any:
    """Make a callee of sizes, whose further arguments are a vector or matrix x, and y."""
    values = [lp.ValueArg(sizes, np.int32)] if sizes else []
    arrays = lp.GlobalArg("x,y", np.float64, shape=lp.auto)
    options: dict[str, Any] = {"assumptions": assumptions} if assumptions else {}
    return lp.make_function(
        f"{{ [{loops.split(':')[0]}] : {loops.split(':')[1]} }}",
        body,
        [*values, arrays, ...],
        name=name,
        lang_version=(2018, 2),
        options=lp.Options(enforce_array_accesses_within_bounds="no_check"),
        **options,
    )


def double(size: str, loop: str = "j", **more: Any) -> Any:
    return function(f"{loop}: 0<={loop}<{size}", f"y[{loop}] = 2*x[{loop}]", size, **more)


def caller(body: str, *callees: Any, **options: Any) -> Any:
    loops = [f"{name}<{end}" for name, end in BOUNDS.items() if re.search(rf"\b{name}\b", body)]
    unit = made(", ".join(loops), body, "A,out f64 n+m,n+m; n,m i32", **options)
    return lp.merge([unit, *callees])


ROW = "[p]: out[i, p] = dbl(m, [q]: A[i, q])"
NESTED = "for o\n [k]: y[o, k] = inner({}, [l]: x[o, l])\nend"


def rectangle(sizes: str) -> Any:
    first, second = sizes.split(",")
    return function(f"j,k: 0<=j<{first} and 0<=k<{second}", "y[j, k] = 2*x[j, k]", sizes)


def nested(first: str, second: str) -> Any:
    """Make a callee of first rows of second elements that calls one for each row."""
    loops = f"k,l,o: 0<=k,l<{second} and 0<=o<{first}"
    return function(loops, NESTED.format(second), "n,m", name="outer")


# the unit, and the number of its multiplications
CALLS: dict[str, tuple[Any, int]] = {
    "a size of the same name": (caller(ROW, double("m")), N * M),
    "the name of another size": (caller(ROW, double("n")), N * M),
    "the name of a loop of the caller": (caller(ROW, double("i")), N * M),
    "the name of an array of the caller": (caller(ROW, double("out")), N * M),
    "a loop of the same name": (caller(ROW, double("m", loop="i")), N * M),
    "in groups": (caller(ROW, double("m"), split="i:4"), N * M),
    "in a loop": (caller(f"for t,i\n {ROW}\nend", double("m")), 3 * N * M),
    "under a condition": (caller(f"if i < 3\n {ROW}\nend", double("m")), 3 * M),
    "an expression": (caller(ROW.replace("m,", "m//2 + 1,"), double("m")), N * (M // 2 + 1)),
    "a loop variable": (
        caller("[r]: out[i, r] = dbl(i, [s]: A[i, s])", double("m", assumptions="m >= 0")),
        N * (N - 1) // 2,
    ),
    "assumed": (caller(ROW.replace("m,", "m - 2,"), double("n", assumptions="n >= 4")), N * 5),
    "two calls": (
        caller(f"{ROW} {{id=a}}\n[r]: out[i, r] = dbl(n, [s]: A[i, s]) {{dep=a}}", double("m")),
        N * (M + N),
    ),
    "names exchanged": (
        caller("[p, r]: out[p, r] = dbl(m, n, [q, s]: A[q, s])", rectangle("n,m")),
        N * M,
    ),
    "one name in two arguments": (
        caller("[p, r]: out[p, r] = dbl(m, m - 1, [q, s]: A[q, s])", rectangle("n,m")),
        M * (M - 1),
    ),
    "a callee of a callee": (
        caller(
            "[r, p]: out[r, p] = outer(n, m, [s, q]: A[s, q]) {id=a}\n"
            "[r, p]: out[r, p] = outer(n - 1, m - 2, [s, q]: A[s, q]) {dep=a}",
            nested("n", "m"),
            double("m", name="inner"),
        ),
        N * M + (N - 1) * (M - 2),
    ),
    "names exchanged in a callee of a callee": (
        caller(
            "[r, p]: out[r, p] = outer(m, n, [s, q]: A[s, q])",
            nested("m", "n"),
            double("n", name="inner"),
        ),
        N * M,
    ),
    "rules of one name": (
        caller(
            f"two(k) := 3*A[k, 0]*A[k, 0]\n{ROW} {{id=a}}\nout[i, 0] = two(i) {{dep=a}}",
            function("j: 0<=j<m", "two(k) := 2*x[k]\ny[j] = two(j)", "m"),
        ),
        N * M + 2 * N,
    ),
    "temporaries and instructions of one name": (
        caller(
            f"<> t0 = 3*A[i, 0] {{id=a}}\n{ROW} {{id=b, dep=a}}\nout[i, 0] = 5*t0 {{dep=b}}",
            function("j: 0<=j<m", "<> t0 = 2*x[j] {id=a}\ny[j] = t0 {id=b, dep=a}", "m"),
        ),
        N * M + 2 * N,
    ),
    "a condition in the callee": (
        caller(
            ROW.replace("m,", "m, 3,"),
            function("j: 0<=j<w", "if j < m\n y[j] = 2*x[j]\nend", "w,m"),
        ),
        3 * N,
    ),
}


@pytest.mark.parametrize("name", CALLS)
@with_oclgrind
def test_calls_are_what_is_executed(name: str, tmp_path: Path) -> None:
    unit, multiplications = CALLS[name]
    vector = count_kernel(unit)
    sizes = {size: {"n": N, "m": M}[size] for size in vector.parameters}
    counts = vector.evaluate(sizes)
    assert counts["flop.mul.f64"] == multiplications
    assert oclgrind.disagreements(counts, oclgrind.run(unit, sizes, tmp_path)) == {}


def test_a_size_from_data_is_that_of_its_statistic() -> None:
    text = "<> m = columns[i]\n[s]: out[i, s] = dbl(m, [r]: a[i, r])"
    unit = made("i<n, r<n, s<n", text, "a,out f64 n,n; columns i32 n; n i32")
    vector = count_kernel(lp.merge([unit, double("m")]), statistics={"dbl_j": 3})
    assert vector.evaluate(n=N)["flop.mul.f64"] == 3 * N


def test_recursive_calls_are_refused() -> None:
    loops = "j,k: 0<=j,k<m"
    unit = caller(
        "[p]: out[i, p] = first(m, [q]: A[i, q])",
        function(loops, "[j]: y[j] = second(m, [k]: x[k])", "m", "first"),
        function(loops, "[j]: y[j] = first(m, [k]: x[k])", "m", "second"),
    )
    with pytest.raises(CountingError, match="'first' calls itself, by second; recursive"):
        count_kernel(unit)


def test_callees_that_loopy_cannot_inline_are_refused() -> None:
    external = lp.make_function(
        "{ [k] : 0 <= k < 4 }", "out[k] = given[k]", name="copied", lang_version=(2018, 2)
    )
    caller = made("i<n, j<4", "[j]: z[i, j] = copied([j]: a[i, j])", "a,z f32 n,4; n i32")
    assert count_kernel(lp.merge([caller, external])).evaluate(n=N)["gmem.load.32.uniform"] == 4 * N
    with pytest.raises(CountingError):
        count_kernel(caller)


_SCRIPT = """
import loopy as lp, numpy as np
from countperf.counting.frontend.schedule import in_fixed_order, prepare_unit
unit = lp.make_kernel(
    "{ [i, j, a, b, c, d]: 0 <= i, j < 16 and 0 <= a < 2 and 0 <= b < 3 and 0 <= c < 2"
    " and 0 <= d < 3 }",
    "out[i, a, b, c, d] = sum(j, x[i, j, a, b]*y[j, c, d])",
    [lp.GlobalArg("out,x,y", np.float32, shape=lp.auto)], lang_version=(2018, 2))
unit = lp.tag_inames(unit, {"i": "l.0", **dict.fromkeys("abcd", "ilp.seq")})
unit = lp.prioritize_loops(unit, "d,b")
kernel, _ = prepare_unit(unit)
loops = [item.iname for item in kernel.linearization if isinstance(item, lp.schedule.EnterLoop)]
print(loops[:4])
print(lp.generate_code_v2(in_fixed_order(unit)).device_code())
"""


def _printed(seed: int) -> str:
    """Return what the script prints in a process whose sets have another order."""
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _SCRIPT],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_each_process_counts_and_generates_the_same() -> None:
    first, second = _printed(1), _printed(2)
    assert first == second
    assert first.splitlines()[0] == "['d', 'b', 'a', 'c']"  # by priority, then by name


def test_others_are_left_to_loopy() -> None:
    state = loopy.schedule.SchedulerState
    unit = lp.make_kernel("{ [i, j]: 0 <= i, j < 16 }", "out[i, j] = i + j", lang_version=(2018, 2))
    unit = lp.tag_inames(unit, {"i": "l.0", "j": "ilp"})
    kernel = unit.default_entrypoint.copy(silenced_warnings=("v1_scheduler_fallback",))
    unit = unit.with_kernel(kernel)
    assert in_fixed_order(unit) is unit
    prepare_unit(unit)
    assert loopy.schedule.SchedulerState is state


SIZE = 40
DOUBLED = "a[i] = 2*b[i]"


def _unit(
    kind: str,
    loops: Any = "i<n",
    body: str = DOUBLED,
    assumptions: str = "n >= 1",
    more: str = "",
    **options: Any,
) -> Any:
    arguments = f"a,b f32 n; n {kind}; {more}"
    return made(loops, body, arguments, assumptions=assumptions, **options)


def _where(condition: str, more: str = "") -> Any:
    return _unit("i32", body=f"{DOUBLED} {{if={condition}}}", more=more)


def _called(kind: str) -> Any:
    callee = lp.make_function(
        "{ [i]: 0 <= i < m }",
        "y[i] = 2*x[i]",
        arguments_of(f"x,y f32 m; m {kind}"),
        name="double",
        lang_version=(2018, 2),
    )
    callee = lp.split_iname(lp.assume(callee, "m >= 1"), "i", 16)
    body = "a[:] = double(b[:], n) {inames=k}"
    caller = _unit(kind, "[n] -> { [k] : 0 <= k < 1 }", body, name="caller")
    return lp.merge([caller, callee])


COUNTED = {
    "a tile of narrow numbers, which C widens": (_unit("u16", split="i:32"), 40),
    "the same of bytes": (_unit("u8", split="i:32"), 40),
}
"""Kernels, and how many products they compute for n = 40."""

REFUSED = {
    "a loop": _unit("u32"),
    "a tile in 64-bit arithmetic": _unit("u64", split="i:32", index_dtype=np.int64),
    "the smaller of two ends": _unit("i32", ["{ [i] : 0 <= i < n and i < m }"], more="m u32"),
    "a condition on another size": _where("i - m >= 0", "m u32"),
    "a sum that is compared": _where("i + m >= n", "m u32"),
    "a condition in an expression": _unit(
        "i32", body="a[i] = b[i] if i < m - 3 else 1", more="m u32"
    ),
    "a callee": _called("u32"),
}

DATA = {
    "k[i] - 1 > 0": True,
    "k[i] - h[i] > 3": True,
    "k[i] < i - 1": True,
    "k[i] > h[i]": False,
    "k[i] + 1 < n": False,
    "(3*k[i] + 1) % n < h[i]": False,
    "(k[i] ^ h[i]) < 5": False,
}
"""Conditions on unsigned data, and whether they may go wrong."""


@pytest.mark.parametrize("name", COUNTED)
@with_oclgrind
def test_what_cannot_wrap_counts_as_it_executes(name: str, tmp_path: Path) -> None:
    unit, products = COUNTED[name]
    assert count_kernel(unit).evaluate(n=SIZE)["flop.mul.f32"] == products
    assert oclgrind.run(unit, {"n": SIZE}, tmp_path).of("fmul") == products


@pytest.mark.parametrize("name", REFUSED)
def test_what_may_wrap_is_neither_counted_nor_generated(name: str) -> None:
    said = r"which unsigned numbers make wrong: \w+ \(uint(32|64)\); declare np\.int32"
    with pytest.raises(CountingError, match=said):
        count_kernel(REFUSED[name])
    with pytest.raises(KernelBuildError, match=said):
        generate_code(REFUSED[name])


@pytest.mark.parametrize("kind", ["u16", "u32"])
@pytest.mark.parametrize("condition", DATA)
def test_conditions_on_unsigned_data_are_refused_where_they_may_wrap(
    condition: str, kind: str
) -> None:
    unit = _where(condition, f"k,h {kind} n")
    if kind == "u32" and DATA[condition]:
        with pytest.raises(CountingError, match=r"unsigned numbers make wrong: .*k \(uint32\)"):
            count_kernel(unit, statistics={"insn": 0.5})
    else:
        counts = count_kernel(unit, statistics={"insn": 0.5}).evaluate(n=SIZE)
        assert counts["flop.mul.f32"] == SIZE / 2


@pytest.mark.parametrize(
    ("declared", "is_refused"),
    [("<>", False), ("<uint32>", True), ("<uint16>", False)],
    ids=["as Loopy types them, signed", "unsigned", "narrow"],
)
def test_rows_are_refused_where_their_ends_are_kept_unsigned(
    declared: str, is_refused: bool
) -> None:
    body = f"{declared} low = p[i]\n{declared} high = p[i + 1]\na[i] = sum(j, b[j])"
    unit = made(
        ["i<n", "[low, high] -> { [j] : low <= j < high }"],
        f"for i\n {body}\nend",
        "p u32 n+1; a,b f32 n; n i32",
    )
    if is_refused:
        with pytest.raises(CountingError, match=r"make wrong: high \(uint32\), low"):
            count_kernel(unit, statistics={"j": 3})
    else:
        assert count_kernel(unit, statistics={"j": 3}).evaluate(n=SIZE)["flop.add.f32"] == 3 * SIZE


# --- Preprocessing and scheduling, which take longer than counting: once, or not at all

_STEPS = ("preprocess_program", "get_one_linearized_kernel")


def _reversal() -> Any:
    """Two barriers: local memory is written again in each pass of the loop."""
    return made(
        "[n] -> {[g, l, k]: 0 <= 16*g + l < n and 0 <= l < 16 and 0 <= k < 8}",
        """
        for g, l, k
            tile[l] = a[k, 16*g + l] {id=write}
            b[k, 16*g + l] = tile[15 - l] {id=read, dep=write}
        end
        """,
        "a,b f32 8,n; tile f32 16 local; n i32",
        assumptions="n mod 16 = 0 and n >= 16",
        tags={"g": "g.0", "l": "l.0"},
    )


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record which of the steps are run."""
    taken: list[str] = []
    for name in _STEPS:
        original = getattr(lp, name)

        def step(*arguments: Any, name: str = name, original: Any = original) -> Any:
            taken.append(name)
            return original(*arguments)

        monkeypatch.setattr(lp, name, step)
    return taken


def test_a_kernel_is_scheduled_once_for_all_views(steps: list[str]) -> None:
    t_unit = _reversal()
    vector = count_kernel(t_unit, view="structure", cache=False)
    kernel_programs(t_unit)
    analyze_kernel(t_unit)
    assert steps == list(_STEPS)
    assert vector.evaluate(n=32)["barrier.local"] == 2 * 8 * 32


def test_the_schedule_of_the_caller_is_the_one_that_counts(steps: list[str]) -> None:
    t_unit = lp.preprocess_program(_reversal())
    steps.clear()
    of_preprocessed = count_kernel(t_unit, cache=False)
    assert steps.count("get_one_linearized_kernel") == 1
    kernel = lp.get_one_linearized_kernel(t_unit.default_entrypoint, t_unit.callables_table)
    steps.clear()
    vector = count_kernel(t_unit.with_kernel(kernel), cache=False)
    assert steps == []
    assert vector == of_preprocessed == count_kernel(_reversal(), cache=False)
    items = list(kernel.linearization or ())
    barriers = [item for item in items if isinstance(item, Barrier)]
    assert barriers
    items.remove(barriers[0])
    counts = count_loopy_kernel(t_unit.with_kernel(kernel.copy(linearization=items)))
    assert counts.operations["barrier.local"].evaluate({"n": 32}) == (len(barriers) - 1) * 8 * 32


def test_a_kernel_that_loopy_cannot_schedule_is_refused_without_a_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def asked(prompt: str = "") -> str:
        raise AssertionError(f"asked {prompt!r}")

    monkeypatch.setattr("builtins.input", asked)
    t_unit = made(
        ["[n] -> { [i]: 0 <= i < 5 }", "[n] -> { [j]: 0 <= j < n + 2 }"],
        """
        y[0] = max(i, (1.0 if a[i] > a[2] else 2.0)) {id=first}
        z[j] = max(i, b[i])*2 {id=second}
        """,
        "a,b f32 6; y f32 1; z f32 n+2; n i32",
        assumptions="n >= 4",
        silenced_warnings=["v1_scheduler_fallback", "write_race(first)", "write_race(second)"],
    )
    t_unit = lp.split_iname(t_unit, "j", 2, inner_tag="ilp")
    with pytest.raises(CountingError, match="not have a schedulable iname nesting"):
        count_kernel(t_unit)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("view", ["source", "compiled", "structure"])
def test_indices_along_separate_axes_have_to_be_constants(view: Any) -> None:
    arguments = "o f64 n; u f64 3,n sep,C; n i32"
    kernel = made("d<3, i<n", "o[i] = sum(d, u[d, i])", arguments, assumptions="")
    with pytest.raises(CountingError, match=r"no code for it.*unroll the iname\(s\) 'd'"):
        count_kernel(kernel, view=view)
    # as Loopy advises
    counts = count_kernel(lp.tag_inames(kernel, {"d": "unr"}), view=view).evaluate(n=10)
    assert sum(n for name, n in counts.items() if name.startswith("gmem.load")) == 30
