"""Profiles of Loopy kernels, with the registers that nvcc gives them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from countperf.errors import DeviceError, KernelBuildError
from countperf.hardware.library import load_device
from countperf.hardware.parameters import DeviceParameters
from countperf.harness.nvcc import compile_for, find_nvcc
from countperf.mechanistic.from_kernel import KernelProfiler
from countperf.mechanistic.from_kernel import profile_kernel as profile_declared

_DECLARED = ("registers_per_work_item", "occupancy", "active_groups")


def profile_kernel(
    kernel: Any, device: DeviceParameters | str | Path, **options: Any
) -> KernelProfiler:
    """Profile a Loopy kernel for the mechanistic models.

    Parameters
    ----------
    kernel : loopy.TranslationUnit
        With one entry point.
    device : DeviceParameters, str or Path
        A device, its slug in the catalogue, or the path of its TOML file.
    **options
        As of `countperf.mechanistic.from_kernel.profile_kernel`. If none of
        ``registers_per_work_item``, ``occupancy`` and ``active_groups`` is given although the
        device's registers limit its occupancy, ``nvcc`` says how many registers the kernel takes,
        where it is installed and compiles for the device's compute capability.

    Returns
    -------
    KernelProfiler
        Its profiles ask for the registers if nobody knows them.

    Raises
    ------
    CountingError
        The kernel cannot be counted.
    DeviceError, DocumentError
        There is no such device, or its file is damaged.
    """
    described = device if isinstance(device, DeviceParameters) else load_device(device)
    if all(options.get(name) is None for name in _DECLARED):
        options = {**options, "registers_per_work_item": compiled_registers(kernel, described)}
    return profile_declared(kernel, described, **options)


def compiled_registers(kernel: Any, device: DeviceParameters) -> dict[str, int] | None:
    """Return the registers of a work item by device program, as ``nvcc`` allocates them."""
    if device.registers_per_compute_unit is None or device.compute_capability is None:
        return None
    if find_nvcc() is None:
        return None
    try:
        compiled = compile_for(kernel, device.compute_capability)
    except (KernelBuildError, DeviceError):
        return None
    return {name: resources.registers for name, resources in compiled.items()}
