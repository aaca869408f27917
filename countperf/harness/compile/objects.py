"""Object files that an OpenCL runtime for CPUs makes of kernels, from a process of its own."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from countperf.counting.automatic import offset_parameters
from countperf.errors import DeviceError, KernelBuildError, ParameterError
from countperf.harness.compile.build import CACHE, INTEL, OUTCOMES, POCL, UNITS
from countperf.harness.compile.object_cache import keep, kept, key_of
from countperf.harness.description import with_argument_types
from countperf.harness.device import Device
from countperf.harness.icd import INTEL_LIBRARY, find_drivers
from countperf.machine_code.interpreter import Program
from countperf.machine_code.objdump import INSTALL_ADVICE, find_objdump
from countperf.machine_code.object_file import program_of

_ANY_SHAPE = "0-0-0"
_MESSAGE_LIMIT = 800
_LONGEST_S = 300.0  # for each kernel that is built and launched
Programs = dict[str, Program]
"""The code of kernels, by name."""


@lru_cache(maxsize=16)
def find_library(name: str) -> Path | None:
    """Return a library that Intel's runtime links kernels against, from beside its driver."""
    for driver in find_drivers().files:
        path = Path(driver.library)
        if path.name == INTEL_LIBRARY and (path.parent / name).is_file():
            return path.parent / name
    return None


def programs_of(objects: Sequence[Path]) -> Programs:
    """Return the code in objects by the names of kernels."""
    programs: dict[str, Program] = {}
    for path in objects:
        program = program_of(path, find_library)
        names = [path.stem] if path.suffix == ".so" else program.entries
        programs |= dict.fromkeys(names, program)
    return programs


def compile_many(
    units: Sequence[tuple[Any, Mapping[str, int]]],
    device: Device,
) -> tuple[Programs | KernelBuildError, ...]:
    """Compile many kernels in one process, and read the objects of each.

    What was compiled before is taken from `countperf.harness.compile.object_cache`.
    """
    if device.identity.platform not in (POCL, INTEL):
        raise DeviceError(
            f"{device.label} ({device.identity.platform}) does not keep its machine code: name a"
            " device of PoCL's or of Intel's runtime",
            device=device.label,
        )
    if find_objdump() is None:
        raise DeviceError(f"no objdump found: {INSTALL_ADVICE}")
    for unit, parameters in units:
        _check(unit, parameters)
    keys = [key_of(unit, parameters, device) for unit, parameters in units]
    old = [kept(key) for key in keys]
    new = [position for position, paths in enumerate(old) if paths is None]
    made = _compiled([units[p] for p in new], [keys[p] for p in new], device)
    compiled = dict(zip(new, made, strict=True))
    return tuple(
        compiled[position] if paths is None else programs_of(paths)
        for position, paths in enumerate(old)
    )


def _compiled(
    units: Sequence[tuple[Any, Mapping[str, int]]],
    keys: Sequence[str | None],
    device: Device,
) -> tuple[Programs | KernelBuildError, ...]:
    """Compile kernels in a process, and keep what comes of it."""
    if not units:
        return ()
    with tempfile.TemporaryDirectory(prefix="countperf-compiled-") as name:
        folder = Path(name)
        (folder / CACHE).mkdir()
        (folder / UNITS).write_bytes(_packed(device, units))
        command = [sys.executable, "-P", "-m", "countperf.harness.compile.build", str(folder)]
        try:
            result = subprocess.run(
                command,
                capture_output=True,
                text=True,
                check=False,
                errors="replace",
                timeout=_LONGEST_S * len(units),
            )
            end = f"status {result.returncode}: {result.stderr.strip()[-_MESSAGE_LIMIT:]}"
        except subprocess.TimeoutExpired as error:
            end = f"no result after {error.timeout:.0f} s"
        outcomes = folder / OUTCOMES
        lines = outcomes.read_text(encoding="utf-8").splitlines() if outcomes.exists() else []
        compiled = [_outcome(json.loads(line), key) for line, key in zip(lines, keys, strict=False)]
    missing = KernelBuildError(f"the process that builds and launches kernels ended with {end}")
    return (*compiled, *[missing] * (len(units) - len(compiled)))


def _check(t_unit: Any, parameters: Mapping[str, int]) -> None:
    entry = with_argument_types(t_unit).default_entrypoint
    scalars = {arg.name: arg.dtype for arg in entry.args if not hasattr(arg, "dim_tags")}
    sizes = {name for name, dtype in scalars.items() if dtype.numpy_dtype.kind in "iu"}
    missing = sorted(sizes - set(parameters) - offset_parameters(entry))
    if missing:
        raise ParameterError(
            f"kernel {entry.name!r}: no value for parameter {', '.join(missing)} (given:"
            f" {', '.join(parameters) or 'none'}); the code is that of a launch: pass"
            f" {missing[0]}=64, for example",
            parameter=missing[0],
        )


def _packed(device: Device, units: Sequence[tuple[Any, Mapping[str, int]]]) -> bytes:
    try:
        return pickle.dumps((device.label, [(unit, dict(sizes)) for unit, sizes in units]))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        names = ", ".join(repr(unit.default_entrypoint.name) for unit, _ in units)
        raise KernelBuildError(
            f"kernel {names} cannot be handed to another process: {error}; what it is made with,"
            " such as functions, has to be in a module"
        ) from error


def _outcome(line: Mapping[str, Any], key: str | None) -> Programs | KernelBuildError:
    if line["problem"]:
        return KernelBuildError(line["problem"])
    # beside what was launched there may be code for groups of any shape
    paths = [
        Path(each) for each in line["objects"] if not Path(each).parent.name.startswith(_ANY_SHAPE)
    ]
    if not paths:
        return KernelBuildError(
            "the runtime left no compiled code: PoCL 3.1 and Intel's of 2026 do"
        )
    keep(key, paths)
    return programs_of(paths)
