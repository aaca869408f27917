"""Offsets and automatic strides: what need not be given, and what it is then."""

from __future__ import annotations

from typing import Any

import loopy as lp
import numpy as np
import pytest
from loopy.symbolic import parse
from loopy.tools import LoopyKeyBuilder

import countperf
from countperf.counting.accesses import AssumedOrder
from countperf.counting.analysis import with_transactions
from countperf.counting.taxonomy import VIEWS
from countperf.counting.vector import PropertyVector
from countperf.devices.opencl import OpenClTarget
from countperf.devices.targets import NvidiaCudaTarget
from countperf.errors import ParameterError
from tests.kernels import made


def doubled(offset: Any, more: str = "") -> Any:
    x = lp.GlobalArg("x", np.float32, shape="n", offset=offset)
    return made("i<n", "z[i] = 2*x[i]", f"z f32 n; n{more} i32", x, split="i:32")


@pytest.mark.parametrize(
    ("unit", "name"),
    [
        (doubled(lp.auto), "x_offset"),
        (doubled("off", ",off"), "off"),
        (doubled(3), None),
        (doubled(parse("n-1")), None),
    ],
)
@pytest.mark.parametrize("view", VIEWS)
def test_what_only_says_where_an_array_lies_need_not_be_given(
    unit: Any, name: str | None, view: Any
) -> None:
    vector = countperf.count_kernel(unit, view=view)
    assert set(vector.parameters) - set(vector.defaults) == {"n"}
    for sizes in ({"n": 64}, {"n": 64, name: 1} if name else {"n": 64}):
        counts = vector.evaluate(sizes)
        assert counts["gmem.load.32.stride1"] == counts["gmem.store.32.stride1"] == 64
    assert PropertyVector.from_document(vector.to_document()) == vector
    sizes = np.array([64, 128])
    np.testing.assert_array_equal(vector.evaluate(n=sizes)["gmem.store.32.stride1"], sizes)
    with pytest.raises(ParameterError, match="no value for parameter n"):
        vector.evaluate()


def test_an_offset_decides_how_many_lines_are_touched() -> None:
    def lines(unit: Any, **sizes: int) -> Any:
        vector = with_transactions(countperf.count_kernel(unit), unit, ["transactions.32x128"])
        return vector.evaluate(sizes)["transactions.32x128.load"]

    # a group loads 128 byte: one line, or two where they begin in the middle of one
    automatic = doubled(lp.auto)
    assert lines(automatic, n=64) == lines(automatic, n=64, x_offset=32) == 2
    assert lines(automatic, n=64, x_offset=16) == lines(doubled(16), n=64) == 4


def test_what_decides_no_count_is_not_asked_for() -> None:
    unit = made("i<n", "z[i] = k*x[i]", "x,z i32 n; n,k i32")
    assert countperf.count_kernel(unit).evaluate(n=8)["launches"] == 1


def test_an_offset_that_bounds_a_loop_has_to_be_given() -> None:
    x = lp.GlobalArg("x", np.float32, shape="n", offset="off")
    assumptions = "n >= 1 and off >= 0"
    unit = made("off<=i<n", "z[i] = 2*x[i]", "z f32 n; n,off i32", x, assumptions=assumptions)
    with pytest.raises(ParameterError, match="no value for parameter off"):
        countperf.count_kernel(unit).evaluate(n=8)


@pytest.mark.parametrize("kept", [AssumedOrder, NvidiaCudaTarget, OpenClTarget])
def test_keys_of_loopys_cache_change_when_a_class_moves(
    kept: type[Any],
) -> None:
    """Entries on disk are pickles, which name the module that a class was in."""
    moved = type(kept.__name__, (kept,), {"__module__": "elsewhere", "__qualname__": kept.__name__})
    arguments = {"module": "elsewhere"} if kept is AssumedOrder else {}
    assert AssumedOrder().module == AssumedOrder.__module__
    assert LoopyKeyBuilder()(moved(**arguments)) != LoopyKeyBuilder()(kept())
    assert LoopyKeyBuilder()(kept()) == LoopyKeyBuilder()(kept())
