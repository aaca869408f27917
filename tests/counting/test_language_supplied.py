"""Counts of instructions and statistics of data that the caller supplies."""

from __future__ import annotations

import argparse
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import loopy as lp
import numpy as np
import pytest
from pymbolic import parse
from pymbolic.primitives import Min, Variable

from countperf.cli.options import statistic
from countperf.counting.count_properties import count_kernel
from countperf.counting.statistics import ACCESS_CLASSES
from countperf.counting.taxonomy import property_unit
from countperf.counting.vector import PropertyVector
from countperf.errors import (
    CountingError,
    DataDependentControlFlowError,
    PropertyNameError,
    UnsupportedExpressionError,
)
from tests.kernels import made
from tests.oracles import oclgrind

N = 64


def _c_code(code: str, reads: str, predicates: frozenset[Any] = frozenset()) -> Any:
    return lp.CInstruction(
        "i",
        code,
        id="raw",
        assignees=("z[i]",),
        read_variables=frozenset(reads),
        predicates=predicates,
    )


def _raw(predicates: frozenset[Any] = frozenset()) -> Any:
    raw = _c_code("z[i] = x[i]*x[i] + x[i];", "x", predicates)
    return made("i<n", [raw, "y[i] = 2*x[i] {id=plain}"], "x,y,z f32 n; n i32", split="i:16")


SUPPLIED = {
    "flop.add.f32": 1,
    "flop.mul.f32": 1,
    "gmem.load.32.stride1": 3,
    "gmem.store.32.stride1": 1,
}


def test_supplied_counts_are_multiplied_by_executions_and_added() -> None:
    vector = count_kernel(_raw(), instruction_counts={"raw": SUPPLIED})
    counts = vector.evaluate(n=50)
    assert counts["flop.add.f32"] == 50
    assert counts["flop.mul.f32"] == 100  # one of its own instruction
    assert counts["gmem.load.32.stride1"] == 200
    assert counts["gmem.min.32.stride1"] == 100


EXECUTED = {
    "flop.fma.f32": 1,
    "flop.special.f32.exp": 1,
    "gmem.load.32.stride1": 1,
    "gmem.load.32.uniform": 1,
    "gmem.store.32.stride1": 1,
}
"""Counts, by hand, of compiled code for one execution of ``z[i] = exp(x[i])*x[i] + w[0]``."""


def _one_instruction(*, raw: bool, in_loop: bool, guarded: bool) -> Any:
    """Make a kernel of C code, or the same of an assignment."""
    added = "1.0f" if in_loop else "w[0]"  # which need not be loaded in each iteration
    predicates = frozenset([parse("i >= 3")]) if guarded else frozenset[Any]()
    instruction = _c_code(f"z[i] = exp(x[i])*x[i] + {added};", "xw", predicates)
    condition = ", if=i >= 3" if guarded else ""
    plain = f"z[i] = exp(x[i])*x[i] + {added.removesuffix('f')} {{id=raw{condition}}}"
    split = "" if in_loop else "i:16"
    return made("i<n", [instruction if raw else plain], "x,z f32 n; w f32 1; n i32", split=split)


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("in_loop", [False, True])
def test_supplied_counts_are_executed_as_those_of_an_assignment(
    in_loop: bool, guarded: bool
) -> None:
    counts = {k: v for k, v in EXECUTED.items() if not in_loop or "uniform" not in k}
    build = partial(_one_instruction, in_loop=in_loop, guarded=guarded)
    plain = count_kernel(build(raw=False), view="structure").evaluate(n=64)
    supplied = {"raw": counts}
    raw = count_kernel(build(raw=True), view="structure", instruction_counts=supplied)
    values = raw.evaluate(n=64)
    executed = {name: plain[name] for name in plain if name.startswith("site.")}
    assert {name: values[name] for name in values if name.startswith("site.")} == executed
    site = "site.free.loop.1x1" if in_loop else "site.free.flat.16x1"
    assert "instruction 'raw'" in raw[f"{site}.flop.fma.f32"].reason
    counted = {name: values[name] for name in values if name.startswith(("flop.", "gmem."))}
    assert counted == {
        name: number * (61 if guarded else 64)
        for name, number in (counts | {"gmem.min.32.stride1": 1}).items()
    }


def test_supplied_accesses_are_of_distinct_bytes_and_uniform_ones_once_a_group() -> None:
    counts = {
        "gmem.load.32.stride1": 2,
        "gmem.load.64.uniform": 1,
        "gmem.store.32.1ofn": 3,
        "lmem.load.32": 5,
    }
    kernel = _one_instruction(raw=True, in_loop=False, guarded=False)
    vector = count_kernel(kernel, view="structure", instruction_counts={"raw": counts})
    values = vector.evaluate(n=64)
    # 64 items in 4 groups of 16
    assert values["bytes.group.load.dense"] == 64 * 2 * 4 + 4 * 8
    assert values["bytes.group.store.sparse"] == 64 * 3 * 4
    assert (values["segments.group.load"], values["segments.group.store"]) == (4 * 2 + 4, 64 * 3)
    assert values["site.free.flat.16x1.lmem.load.32.next"] == 5 * 64
    assert values["site.free.flat.16x1.gmem.load.64.same"] == 64
    assert values["site.free.flat.16x1.gmem.store.32.l1_reuse"] == 3 * 64


def test_only_what_supplied_counts_enter_is_not_exact() -> None:
    vector = count_kernel(_raw(), instruction_counts={"raw": {"flop.add.f32": 1.5}})
    assert vector["flop.add.f32"].reason == "the caller's counts for instruction 'raw'"
    assert vector.evaluate(n=3)["flop.add.f32"] == Fraction(9, 2)
    assert vector["flop.mul.f32"].exact
    assert vector["launches"].exact
    assert not vector.is_exact
    assert PropertyVector.from_document(vector.to_document()) == vector


@pytest.mark.oclgrind
@pytest.mark.skipif(oclgrind.PROGRAM is None, reason="oclgrind-kernel is not installed")
def test_supplied_counts_agree_with_what_is_executed(tmp_path: Path) -> None:
    counts = count_kernel(_raw(), instruction_counts={"raw": SUPPLIED}).evaluate(n=50)
    assert oclgrind.disagreements(counts, oclgrind.run(_raw(), {"n": 50}, tmp_path)) == {}


def test_supplied_counts_respect_predicates() -> None:
    kernel = _raw(frozenset([parse("i_inner + 16*i_outer < 7")]))
    counts = count_kernel(kernel, instruction_counts={"raw": {"flop.add.f32": 2}}).evaluate(n=N)
    assert counts["flop.add.f32"] == 14


def test_atomic_updates_take_supplied_counts() -> None:
    kernel = made(
        "i<n",
        "z[i % 20] = z[i % 20] + 2*x[i] {id=update, atomic}",
        "x f32 n; n i32",
        lp.GlobalArg("z", np.float32, shape=20, for_atomic=True),
        split="i:16",
    )
    with pytest.raises(UnsupportedExpressionError, match=r"atomic.*instruction_counts=\{'update'"):
        count_kernel(kernel)
    vector = count_kernel(kernel, instruction_counts={"update": {"flop.add.f32": 1}})
    assert vector.evaluate(n=N)["flop.add.f32"] == N


def test_supplied_counts_take_the_place_of_a_refused_expression() -> None:
    element = Variable("z")[Variable("i")]
    smaller = lp.Assignment("z[i]", Min((element, 2 * element)), id="insn")
    kernel = made("i<n", [smaller], "z c64 n; n i32", split="i:16")
    with pytest.raises(UnsupportedExpressionError, match="instruction_counts"):
        count_kernel(kernel)
    vector = count_kernel(kernel, instruction_counts={"insn": {"flop.special.f32.sqrt": 1}})
    assert vector.evaluate(n=N)["flop.special.f32.sqrt"] == N


def test_an_array_that_unknown_code_accesses_has_no_footprint() -> None:
    instructions = [_c_code("z[i] = x[3*i];", "x"), "y[i] = x[2*i] {id=plain}"]
    kernel = made("i<n", instructions, "x,y,z f32 3*n; n i32", split="i:16")
    with pytest.raises(UnsupportedExpressionError, match=r"'x'.*footprint.*'raw'"):
        count_kernel(kernel, instruction_counts={"raw": {}})


@pytest.mark.parametrize(
    ("supplied", "error", "message"),
    [
        ({"other": {}}, CountingError, r"'other', which is no instruction \(it has: plain, raw\)"),
        ({"raw": {"flop.add.f32": -1}}, CountingError, "at least zero"),
        ({"raw": {"flop.add.f32": float("inf")}}, CountingError, "at least zero"),
        ({"raw": {"flop.add.f32": "many"}}, CountingError, "at least zero"),
        ({"raw": {"flop.plus.f32": 1}}, PropertyNameError, "no property name"),
        ({"raw": {"gmem.min.32.stride1": 1}}, PropertyNameError, "derived"),
        ({"raw": {"launches": 1}}, CountingError, "per launch"),
        ({"raw": {"groups": 1}}, CountingError, "per work group"),
    ],
)
def test_supplied_counts_are_checked(supplied: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        count_kernel(_raw(), instruction_counts=supplied)


def _gather() -> Any:
    text = "y[i] = x[index[i]] + x[2*index[i]] + w[index[i]]"
    return made("i<n", text, "x,w,y f32 n; index i32 n; n i32", split="i:16")


def _loads(vector: PropertyVector) -> dict[str, int]:
    return {
        name.removeprefix("gmem.load.32."): int(value)
        for name, value in vector.evaluate(n=N).items()
        if name.startswith("gmem.load.32")
    }


def test_an_address_read_from_data_is_indirect_without_a_statistic() -> None:
    vector = count_kernel(_gather())
    assert _loads(vector) == {"indirect": 3 * N, "stride1": 3 * N}
    assert vector.is_exact


def test_the_caller_states_the_pattern_of_an_array() -> None:
    vector = count_kernel(_gather(), statistics={"x": "1of2"})
    assert _loads(vector) == {"indirect": N, "1of2": 2 * N, "stride1": 3 * N}
    assert vector["gmem.load.32.1of2"].reason == "the caller's access pattern for 'x'"
    assert vector["gmem.load.32.indirect"].exact
    assert vector["gmem.load.32.stride1"].exact


def test_the_pattern_of_one_access_wins_over_that_of_its_array() -> None:
    access = "x[2*index[i_inner + i_outer*16]]"
    vector = count_kernel(_gather(), statistics={"x": "stride1", access: "uniform"})
    assert _loads(vector) == {"indirect": N, "uniform": N, "stride1": 4 * N}
    assert not vector["gmem.load.32.stride1"].exact


def test_scattered_stores_take_patterns_too() -> None:
    kernel = made("i<n", "y[index[i]] = x[i]", "x,y f32 n; index i32 n; n i32", split="i:16")
    assert count_kernel(kernel).evaluate(n=N)["gmem.store.32.indirect"] == N
    vector = count_kernel(kernel, statistics={"y": "stride1"})
    assert vector.evaluate(n=N)["gmem.store.32.stride1"] == N
    assert not vector["gmem.min.32.stride1"].exact


def test_a_pattern_of_what_is_known_is_refused() -> None:
    with pytest.raises(CountingError, match=r"'index' says nothing .*\(addresses in x, w\)"):
        count_kernel(_gather(), statistics={"index": "uniform"})


def test_every_class_that_can_be_stated_is_a_property() -> None:
    assert {property_unit(f"gmem.load.32.{name}") for name in ACCESS_CLASSES} == {"access"}


def _branching() -> Any:
    return made(
        "i<n",
        """
        for i
            <> k = index[i] {id=key}
            if k > 3
                y[i] = 2*x[i] {id=first, dep=key}
                w[i] = 3*x[i] {id=second, dep=key}
            end
            z[i] = x[i] + 1 {id=last}
        end
        """,
        "x,w,y,z f32 n; index i32 n; n i32",
        split="i:16",
    )


@pytest.mark.parametrize(
    ("statistics", "multiplications"),
    [
        ({"first": 0.25, "second": 0.25}, N // 2),
        ({"*": 0.25}, N // 2),
        ({"fir??": 0.5, "sec*": 0.25}, N // 2 + N // 4),
        ({"*": 0.25, "second": 1}, N + N // 4),  # the name goes before patterns
    ],
)
def test_probabilities_by_instruction(statistics: Any, multiplications: int) -> None:
    vector = count_kernel(_branching(), statistics=statistics)
    assert vector.evaluate(n=N)["flop.mul.f32"] == multiplications
    assert not vector["flop.mul.f32"].exact
    assert vector["flop.add.f32"].exact


def test_the_text_of_a_condition_names_it_everywhere() -> None:
    with pytest.raises(DataDependentControlFlowError, match=r"'first'.*statistics=\{") as caught:
        count_kernel(_branching())
    assert caught.value.statistics is not None
    assert len(caught.value.statistics) == 1
    assert repr(caught.value.statistics) in str(caught.value)
    vector = count_kernel(_branching(), statistics=caught.value.statistics)
    assert vector.evaluate(n=N)["flop.mul.f32"] == N


@pytest.mark.parametrize(
    ("statistics", "message"),
    [
        ({"noth*": 0.5}, r"'noth\*' says nothing"),
        ({"nothing": 0.5}, r"'nothing' says nothing .*name one of these"),
        ({"jj": 3.0}, "no loop of the kernel"),
        ({"v": "stride1"}, r"'v' says nothing"),
        ({"x": "stride2"}, r"'stride2'; pass one of uniform, stride1"),
        ({"x": -0.5}, "at least zero"),
        ({"x": float("nan")}, "at least zero"),
        ({"x": None}, "at least zero"),
        ({"x": True}, "at least zero"),
    ],
)
def test_statistics_are_checked(statistics: Any, message: str) -> None:
    with pytest.raises(CountingError, match=message) as caught:
        count_kernel(_gather(), statistics=statistics)
    assert any(f"'{name}'" in str(caught.value) for name in statistics)


def test_mean_trip_counts_make_only_what_is_in_the_loop_inexact() -> None:
    kernel = made(
        ["i<n", "j<length"],
        """
        for i
            <> length = starts[i + 1] - starts[i] {id=length}
            z[i] = sum(j, x[j]) + 1 {dep=length}
        end
        """,
        "starts i32 n+1; x,z f32 n; n i32",
        split="i:16",
    )
    vector = count_kernel(kernel, statistics={"j": 12.5})
    counts = vector.evaluate(n=N)
    assert counts["flop.add.f32"] == N * 12.5 + N
    assert counts["gmem.load.32.uniform"] == N * 12.5
    assert vector["flop.add.f32"].reason == "the caller's statistic for 'j'"
    assert vector["gmem.load.32.stride1"].exact
    assert vector["groups"].exact


@pytest.mark.parametrize(
    ("text", "expected"),
    [("j=12.5", ("j", 12.5)), ("x=stride1", ("x", "stride1")), ("k >= 3=0.5", ("k >= 3", 0.5))],
)
def test_the_command_line_takes_statistics_of_each_kind(text: str, expected: Any) -> None:
    assert statistic(text) == expected


def test_the_command_line_refuses_other_statistics() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="no access pattern"):
        statistic("x=stride2")
