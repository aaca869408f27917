"""Arrays that do not simply fill a buffer: right numbers, and not a byte written elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import loopy as lp
import numpy as np
import pymbolic
import pytest
from numpy.typing import NDArray

from countperf.devices.binding import bind_arguments
from countperf.devices.device import Device
from countperf.devices.opencl import OpenCLSession
from countperf.errors import MeasurementError
from tests.devices.layout_kernels import F4, I4, LAID, PITCHED, plane, scaled
from tests.kernels import made

if TYPE_CHECKING:
    import pyopencl as cl

_MARGIN = 4096  # a multiple of what any device aligns parts of buffers to
_CANARY = 0xA5


class GuardedSession(OpenCLSession):
    """A session whose buffers lie between bytes that no kernel may touch."""

    _wholes: list[tuple[cl.Buffer, int]]

    def allocate(self, size: int) -> cl.Buffer:
        return self._guarded(np.zeros(max(4, size), np.uint8))

    def upload(self, array: NDArray[Any]) -> cl.Buffer:
        return self._guarded(np.frombuffer(array.tobytes(order="A"), np.uint8))

    def _guarded(self, content: NDArray[np.uint8]) -> cl.Buffer:
        import pyopencl as cl

        margin = np.full(_MARGIN, _CANARY, np.uint8)
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        whole = cl.Buffer(self.context, flags, hostbuf=np.concatenate([margin, content, margin]))
        if not hasattr(self, "_wholes"):
            self._wholes = []
        self._wholes.append((whole, content.size))
        return whole.get_sub_region(_MARGIN, content.size)

    def touched(self) -> int:
        import pyopencl as cl

        changed = 0
        for whole, size in self._wholes:
            content = np.empty(size + 2 * _MARGIN, np.uint8)
            cl.enqueue_copy(self.queue, content, whole)
            outside = np.concatenate([content[:_MARGIN], content[_MARGIN + size :]])
            changed += int((outside != _CANARY).sum())
        return changed


@pytest.fixture
def session(device: Device) -> GuardedSession:
    return GuardedSession(device)


@pytest.mark.device
@pytest.mark.parametrize("name", LAID)
def test_every_element_is_written_in_its_place_and_nothing_else(
    session: GuardedSession, name: str
) -> None:
    LAID[name].assert_doubled(session)
    assert session.touched() == 0


def test_the_guard_sees_what_is_written_beside_a_buffer(device: Device) -> None:
    session = GuardedSession(device)
    buffer = session.allocate(64)
    program = session.load("KERNEL beside(GLOBAL float *out) { out[16] = 1; out[-1] = 1; }")
    program("beside", 1, 1, [buffer])
    session.finish()
    assert session.touched() > 0


def _indirect() -> Any:
    x = lp.GlobalArg("x", F4, shape=None)
    return made("i<n", "z[i] = x[at[i]]", "at i32 n; z f32 n; n i32", x)


def _beyond(body: str) -> Any:
    unit = made("i<n", body, "x,z f32 n; n i32")
    return lp.set_options(unit, enforce_array_accesses_within_bounds="no_check")


_OVERLAPPING = {"n": 4, "m": 7, "ld": 5, "x": np.arange(28, dtype=F4).reshape(4, 7)}


@pytest.mark.device
@pytest.mark.parametrize(
    ("unit", "given", "said"),
    [
        (scaled({"strides": (-1,)}), {}, "begins 7 elements .* declare an offset that is 7 more"),
        (scaled({"strides": (-1,), "offset": "n-1"}), {}, r"offset=pymbolic.parse\('n-1'\)"),
        (scaled({"offset": -2}), {}, "begins 2 elements before"),
        (plane(PITCHED, {}, ",ld"), _OVERLAPPING, "different elements lie in the same place"),
        (scaled({"offset": "o"}), {}, "not all names in offset"),
        (_indirect(), {}, "argument 'x' has no declared shape, and data decides"),
        (_beyond("z[i] = x[i+1]"), {}, r"load x\[i \+ 1\] addresses element 8 of 'x', .* has 8"),
        (_beyond("z[i-1] = x[i]"), {}, "addresses element -1 of 'z'"),
        (scaled(), {"n": 0}, "which does not hold at n=0"),
        (scaled(), {"n": 2**33}, "declare the argument as np.int64"),
        (scaled(), {"x": np.zeros(9)}, r"of shape \(8,\), not float64"),
    ],
)
def test_what_would_go_outside_is_refused_before_the_launch(
    device: Device, unit: Any, given: Mapping[str, Any], said: str
) -> None:
    session = OpenCLSession(device)
    with pytest.raises((MeasurementError, lp.LoopyError), match=said):
        bind_arguments(session, session.build_kernel(unit), {"n": 8}, given)


_X, _AT = np.arange(20, dtype=F4), np.array([19, 0, 3, 3, 7, 11, 1, 2], I4)
_REVERSED = scaled({"strides": (-1,), "offset": pymbolic.parse("(n - 1)")})


@pytest.mark.device
@pytest.mark.parametrize(
    ("unit", "inputs", "z"),
    [
        (_REVERSED, {"x": np.arange(8.0)}, 2 * np.arange(8.0)),
        (_beyond("z[i] = x[i+1] if i + 1 < n else 0"), {"x": _X[:8]}, [*range(1, 8), 0]),
        (_indirect(), {"x": _X, "at": _AT}, _X[_AT]),
    ],
    ids=["the advised offset", "a condition keeps an access inside", "an array decides a shape"],
)
def test_what_stays_inside_is_computed(
    session: GuardedSession, unit: Any, inputs: Mapping[str, Any], z: Any
) -> None:
    kernel = session.build_kernel(unit)
    bound = bind_arguments(session, kernel, {"n": 8}, inputs)
    kernel.launch(bound.arguments)
    np.testing.assert_array_equal(bound.read("z"), z)
    assert session.touched() == 0


@pytest.mark.device
@pytest.mark.parametrize("factor", [(1, 2, 3, 4), 2.0], ids=["components", "one number"])
def test_scalars_may_be_vectors(session: GuardedSession, factor: Any) -> None:
    import pyopencl as cl

    float4: Any = cl.cltypes.float4  # pyright: ignore[reportAttributeAccessIssue]
    arguments = lp.GlobalArg("x,z", float4, shape="n"), lp.ValueArg("s", float4)
    kernel = session.build_kernel(made("i<n", "z[i] = s*x[i]", "n i32", *arguments))
    numbers = np.arange(40, dtype=F4).reshape(10, 4)
    inputs = {"x": numbers.view(float4).reshape(10), "s": factor}
    bound = bind_arguments(session, kernel, {"n": 10}, inputs)
    kernel.launch(bound.arguments)
    z = bound.read("z").view(F4).reshape(10, 4)
    np.testing.assert_array_equal(z, numbers * np.asarray(factor, F4))
    assert session.touched() == 0
