"""The backends by name, and sessions on devices."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from countperf.errors import DeviceError
from countperf.harness.backend import Backend, Session

if TYPE_CHECKING:
    from countperf.harness.device import Device


@cache
def backends() -> Mapping[str, Backend]:
    """Return the backends by name; none of them is imported before it is used."""
    from countperf.harness.cuda.backend import CudaBackend
    from countperf.harness.opencl import OpenClBackend

    known: tuple[Backend, ...] = (OpenClBackend(), CudaBackend())
    return {each.name: each for each in known}


def backend_of(device: Device) -> Backend:
    """Return what runs kernels on a device."""
    try:
        return backends()[device.backend]
    except KeyError:
        message = f"{device.label}: no backend {device.backend!r}; there is {', '.join(backends())}"
        raise DeviceError(message, device=device.label) from None


def open_session(device: Device) -> Session:
    """Open a device with whatever runs kernels on it."""
    return backend_of(device).open(device)
