"""Trial run on a device, and its copy bandwidth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from countperf.errors import KernelBuildError
from countperf.harness.backend import Session
from countperf.harness.clock import Clock, EventClock
from countperf.harness.device import Device
from countperf.harness.registry import backend_of, open_session

_SOURCE = """
KERNEL trial(GLOBAL const float *in, GLOBAL float *out)
{ int i = GLOBAL_ID; out[i] = 2 * in[i] + i; }
KERNEL copy(GLOBAL const F4 *in, GLOBAL F4 *out)
{ int i = GLOBAL_ID; out[i] = in[i]; }
"""
_TRIAL_ITEMS = 256
_COPY_BYTES = 32 * 2**20
_COPY_GROUP = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Outcome of a trial run on a device."""

    works: bool  # a one-line kernel was built and run, and its numbers were right
    reason: str = ""  # if not: what happened, and what to do about it
    advice: str = ""


def try_device(device: Device) -> Trial:
    """Build and run a one-line kernel and look at its numbers."""
    backend = backend_of(device)
    try:
        right = _run_trial(backend.open(device))
    except (KernelBuildError, *backend.failures()) as error:
        reason = str(error)
        return Trial(works=False, reason=reason, advice=advise(reason, device))
    if right:
        return Trial(works=True)
    reason = "a one-line kernel gave wrong numbers"
    return Trial(works=False, reason=reason, advice=advise(reason, device))


def advise(reason: str, device: Device) -> str:
    """Say what to do about a device that failed its trial for that reason."""
    return backend_of(device).advise(reason, device)


def _run_trial(session: Session) -> bool:
    # built anew: a binary from an earlier day proves nothing about the compiler
    program = session.load(_SOURCE, fresh=True)
    values = np.arange(_TRIAL_ITEMS, dtype=np.float32)[::-1].copy()
    source, target = session.upload(values), session.allocate(values.nbytes)
    program.launch("trial", _TRIAL_ITEMS // _COPY_GROUP, _COPY_GROUP, (source, target))
    result = session.download(target, values.dtype, values.size)
    return np.array_equal(result, 2 * values + np.arange(_TRIAL_ITEMS, dtype=np.float32))


def measure_copy_bandwidth(device: Device, clock: Clock | None = None, runs: int = 6) -> float:
    """Measure roughly how fast a device copies within its memory."""
    clock = clock or EventClock()
    session = open_session(device)
    size = min(_COPY_BYTES, device.limits.max_allocation_bytes // 4)
    groups = size // (16 * _COPY_GROUP)
    copied = 16 * groups * _COPY_GROUP
    arguments = (session.allocate(copied), session.allocate(copied))
    program = session.load(_SOURCE)

    def run() -> float:
        return clock.time_run(lambda: program.launch("copy", groups, _COPY_GROUP, arguments)).time_s

    return 2 * copied / min(run() for _ in range(runs))
