"""Trying a device for real, and its copy bandwidth."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from countperf.errors import KernelBuildError
from countperf.harness.clock import Clock, EventClock
from countperf.harness.devices import INSTALL_ADVICE, Device
from countperf.harness.session import Session

_SOURCE = """
kernel void trial(global const float *in, global float *out)
{ size_t i = get_global_id(0); out[i] = 2 * in[i] + i; }
kernel void copy(global const float4 *in, global float4 *out)
{ size_t i = get_global_id(0); out[i] = in[i]; }
"""
_TRIAL_ITEMS = 256
_COPY_BYTES = 32 * 2**20
_COPY_GROUP = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Whether a device works.

    Attributes
    ----------
    works : bool
        A one-line kernel was built and run, and its numbers were right.
    reason, advice : str
        If not: what happened, and what to do about it.
    """

    works: bool
    reason: str = ""
    advice: str = ""


def try_device(device: Device) -> Trial:
    """Build and run a one-line kernel and look at its numbers.

    Parameters
    ----------
    device : Device
        Device to try.

    Returns
    -------
    Trial
        Whether it works.
    """
    import pyopencl as cl

    try:
        right = _run_trial(Session.open(device))
    except (KernelBuildError, cl.Error) as error:
        reason = str(error)
        return Trial(works=False, reason=reason, advice=advise(reason, device))
    if right:
        return Trial(works=True)
    reason = "a one-line kernel gave wrong numbers"
    return Trial(works=False, reason=reason, advice=advise(reason, device))


def advise(reason: str, device: Device) -> str:
    """Say what to do about a device that failed its trial for that reason."""
    if "unknown target CPU" in reason and device.label.startswith("pocl:"):
        return (
            "PoCL's compiler does not know this processor, a fault of PyPI's"
            " pocl-binary-distribution on new processors: 'pip uninstall pocl-binary-distribution'"
            f" and {INSTALL_ADVICE}"
        )
    if "OUT_OF_HOST_MEMORY" in reason or "OUT_OF_RESOURCES" in reason:
        return "free memory on the machine or the device, and try again"
    return f"update or reinstall the driver of {device.identity.platform}, or {INSTALL_ADVICE}"


def _run_trial(session: Session) -> bool:
    import numpy as np
    import pyopencl as cl

    with tempfile.TemporaryDirectory(prefix="countperf-trial-") as folder:
        # a folder of its own: a binary from an earlier day proves nothing about the compiler
        program = session.build(_SOURCE, cache_folder=Path(folder))
    values = np.arange(_TRIAL_ITEMS, dtype=np.float32)[::-1].copy()
    source, target = session.upload(values), session.allocate(values.nbytes)
    cl.Kernel(program, "trial")(session.queue, values.shape, (_COPY_GROUP,), source, target)
    found = session.download(target, values.dtype, values.size)
    return np.array_equal(found, 2 * values + np.arange(_TRIAL_ITEMS, dtype=np.float32))


def measure_copy_bandwidth(device: Device, clock: Clock | None = None, runs: int = 6) -> float:
    """Measure roughly how fast a device copies within its memory.

    Parameters
    ----------
    device : Device
        A device that works.
    clock : Clock, optional
        By default the device's event timer.
    runs : int, optional
        The fastest of so many counts.

    Returns
    -------
    float
        Bytes read plus bytes written per second, byte/s.
    """
    import pyopencl as cl

    clock = clock or EventClock()
    session = Session.open(device)
    size = min(_COPY_BYTES, device.limits.max_allocation_bytes // 4)
    items = size // (16 * _COPY_GROUP) * _COPY_GROUP
    source, target = session.allocate(16 * items), session.allocate(16 * items)
    kernel = cl.Kernel(session.build(_SOURCE), "copy")
    kernel.set_args(source, target)

    def launch() -> list[cl.Event]:
        return [cl.enqueue_nd_range_kernel(session.queue, kernel, (items,), (_COPY_GROUP,))]

    return 2 * 16 * items / min(clock.time_run(launch).time_s for _ in range(runs))
