"""Code of Loopy: loops over copies in a fixed order; unsigned integers that C wraps."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import loopy as lp
import loopy.schedule
import numpy as np
import pytest

from countperf.counting.count_properties import count_kernel
from countperf.counting.frontend.schedule import generate_code, in_fixed_order, prepare_unit
from countperf.errors import CountingError, KernelBuildError
from tests.kernels import arguments_of, made
from tests.oracles import oclgrind

_SCRIPT = """
import loopy as lp, numpy as np
from countperf.counting.frontend.schedule import in_fixed_order
from countperf.counting.frontend.schedule import prepare_unit
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


N = 40
DOUBLED = "a[i] = 2*b[i]"
TRIANGLE = "a[i] = a[i]*b[j]"


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
    "a sum that is compared": _where("i + m >= n", "m u32"),
    "a tile": _unit("u32", split="i:32"),
    "a difference for equality": _unit("u32", body=f"{DOUBLED} {{if=i == n - 3}}"),
    "a tile in 64-bit arithmetic": _unit("u64", split="i:32", index_dtype=np.int64),
    "a tile of a triangle": _unit("u32", "i<n,j<i", TRIANGLE, split="i:16"),
    "a tile of loops": _unit("u32", split="i:16:,"),
    "a loop that may be empty": _unit("u32", assumptions=""),
    "an end that may be negative": _unit("u32", "i<n-5", assumptions="n >= 5"),
    "a beginning that is negative": _unit("u32", "-3<=i<n-3", "a[i + 3] = b[i + 3]"),
    "the smaller of two ends": _unit("i32", ["{ [i] : 0 <= i < n and i < m }"], more="m u32"),
    "a condition": _unit("u32", body=f"{DOUBLED} {{if=i - n + 3 >= 0}}"),
    "a condition on another size": _where("i - m >= 0", "m u32"),
    "a condition in an expression": _unit("u32", body="a[i] = b[i] if i < n - 3 else 1"),
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
@pytest.mark.skipif(oclgrind.PROGRAM is None, reason="oclgrind-kernel is not installed")
def test_what_cannot_wrap_counts_as_it_executes(name: str, tmp_path: Path) -> None:
    unit, products = COUNTED[name]
    assert count_kernel(unit).evaluate(n=N)["flop.mul.f32"] == products
    assert oclgrind.run(unit, {"n": N}, tmp_path).of("fmul") == products


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
        counts = count_kernel(unit, statistics={"insn": 0.5}).evaluate(n=N)
        assert counts["flop.mul.f32"] == N / 2


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
        assert count_kernel(unit, statistics={"j": 3}).evaluate(n=N)["flop.add.f32"] == 3 * N
