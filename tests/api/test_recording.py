"""Recording what Loopy launches; numbers of launches and counts are found by hand."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any

import loopy as lp
import numpy as np
import pytest
from loopy.diagnostic import LoopyError

import countperf
from countperf.api.timing import find_sizes
from countperf.devices.discovery import discover
from countperf.errors import CountingError
from tests.kernels import made
from tests.models.builders import make_weights

pytestmark = [
    # codepy uses what pytools deprecates; pyopencl warns of how it caches
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="Loopy compiles C by gcc"),
]

WEIGHTS = make_weights({"launches": 1e-5, "flop.add.f64": 1e-10})


def _made(domains: str | list[str], instructions: str, arguments: Sequence[Any] = ("...",)) -> Any:
    """Make a kernel in C, which needs no OpenCL device."""
    name = "ragged" if len(arguments) > 1 else "rows"
    target, version = lp.ExecutableCTarget(), (2018, 2)
    return lp.make_kernel(
        domains, instructions, [*arguments], name=name, target=target, lang_version=version
    )


def _rows() -> Any:
    """Sum rows; types and sizes are those of the launch."""
    return _made("{ [i,j] : 0 <= i < n and 0 <= j < m }", "z[i] = sum(j, x[i, j])")


def _ragged() -> Any:
    return _made(
        ["{ [i] : 0 <= i < n }", "{ [j] : 0 <= j < len }"],
        "for i\n<> len = lens[i]\nz[i] = sum(j, x[i, j])\nend",
        [
            lp.GlobalArg("lens", np.int32, shape="n"),
            lp.GlobalArg("x", np.float64, shape="n,m"),
            lp.GlobalArg("z", np.float64, shape="n"),
            lp.ValueArg("n,m", np.int32),
        ],
    )


def test_launches_are_counted_and_predicted_at_their_sizes() -> None:
    rows = _rows().executor()
    with countperf.recording(weights=WEIGHTS, incomplete_ok=True) as log:
        for _ in range(3):
            rows(x=np.ones((20, 30)))
        _, (sums,) = rows(x=np.ones((4, 7)))
        _rows().executor()(x=np.ones((20, 30)))  # the same kernel, made anew
    rows(x=np.ones((20, 30)))  # after the end
    assert list(sums) == [7.0] * 4
    frame = log.to_frame()
    assert list(frame["parameters"]) == ["m = 30, n = 20", "m = 7, n = 4"]
    assert list(frame["launches"]) == [4, 1]
    # an addition for each element
    assert frame["predicted_s"].tolist() == pytest.approx([1e-5 + 600e-10, 1e-5 + 28e-10])
    assert frame["total_s"].tolist() == [4 * frame["predicted_s"][0], frame["predicted_s"][1]]
    assert "5 launches" in repr(log)
    assert len(repr(log).splitlines()) <= 25
    assert "<table>" in log._repr_html_()  # pyright: ignore[reportPrivateUsage]


def test_kernels_that_cannot_be_counted_are_rows_with_the_reason_and_statistics_mend_them() -> None:
    inputs = {"x": np.ones((5, 8)), "lens": np.full(5, 3, np.int32)}
    with countperf.recording(weights=WEIGHTS, incomplete_ok=True) as log:
        _, (sums,) = _ragged().executor()(**inputs)
    assert list(sums) == [3.0] * 5
    (row,) = log.rows
    assert row["launches"] == 1
    assert "predicted_s" not in row
    assert "statistics={'j':" in row["reason"]
    with countperf.recording(
        weights=WEIGHTS, incomplete_ok=True, statistics={"ragged": {"j": 3}}
    ) as log:
        _ragged().executor()(**inputs)
    (row,) = log.rows
    assert row["parameters"] == {"n": 5, "m": 8}
    assert row["predicted_s"] == pytest.approx(1e-5 + 15e-10)


def test_the_program_is_not_disturbed() -> None:
    rows = _rows().executor()
    with countperf.recording() as log, pytest.raises(LoopyError):
        rows()  # its own error, and no row
    assert log.rows == []

    class Broken:
        @property
        def shape(self) -> Any:
            raise ValueError("broken")

    with countperf.recording() as log:
        log.note(rows, None, {"x": Broken()})
    assert "a launch was not noted: ValueError: broken" in repr(log)


@pytest.mark.device
def test_launches_on_a_device_are_recorded() -> None:
    cl: Any = pytest.importorskip("pyopencl")
    devices = discover().devices
    if not devices:
        pytest.skip("no OpenCL device")
    context = cl.Context([devices[0].handle])
    unit = _rows().copy(target=lp.PyOpenCLTarget())
    with countperf.recording(weights=WEIGHTS, incomplete_ok=True) as log:
        unit.executor(context)(cl.CommandQueue(context), x=np.ones((20, 30), np.float32))
    (row,) = log.rows
    assert row["launches"] == 1


def test_recordings_may_lie_inside_each_other() -> None:
    rows = _rows().executor()
    with countperf.recording() as outer:
        rows(x=np.ones((2, 3)))
        with countperf.recording() as inner:
            rows(x=np.ones((2, 3)))
    assert [row["launches"] for row in (*outer.rows, *inner.rows)] == [2, 1]
    assert "no OpenCL device" in inner.rows[0]["reason"]  # C, and no weights are named


def test_sizes_are_found_from_shapes_as_loopy_does() -> None:
    unit = made("i<n", "z[i] = x[2*i] + y[i + k]", "x f32 2*n+2; y f32 n+k; z f32 n; n,k i32")
    # 2n + 2 = 12 and n + k = 8
    assert find_sizes(unit, {}, {"x": (12,), "y": (8,)}) == {"n": 5, "k": 3}
    assert find_sizes(unit, {"k": 2}, {"y": (8,)}) == {"n": 6, "k": 2}
    assert find_sizes(unit, {}, {"y": (8,)}) == {}
    with pytest.raises(CountingError, match=r"no value of n makes"):
        find_sizes(unit, {}, {"x": (13,)})
