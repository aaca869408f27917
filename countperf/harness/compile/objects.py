"""Object files that an OpenCL runtime for CPUs makes of kernels, from a process of its own.

They are kept between processes by all that they are made from: generated code, shapes of groups,
runtime and processor. ``COUNTPERF_OBJECT_CACHE`` names the folder, or is ``off``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pickle
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from loopy.diagnostic import LoopyError
from pytools.persistent_dict import WriteOncePersistentDict

from countperf.caches import (
    OBJECT_FILES,
    OBJECTS,
    cache_folder,
    give_a_cache,
    tell_not_kept,
)
from countperf.counting.automatic import offset_parameters
from countperf.errors import CountperfError, DeviceError, KernelBuildError, ParameterError
from countperf.harness.compile.build import (
    CACHE,
    INTEL,
    OUTCOMES,
    POCL,
    UNITS,
    fewest_groups,
)
from countperf.harness.compile.launches import HostCode
from countperf.harness.description import with_argument_types
from countperf.harness.device import Device
from countperf.harness.icd import INTEL_LIBRARY, find_drivers
from countperf.machine_code.interpreter import Program
from countperf.machine_code.object_file import INSTALL_ADVICE, find_objdump, program_of

_ANY_SHAPE = "0-0-0"
_MESSAGE_LIMIT = 800
_LONGEST_S = 300.0  # for each kernel that is built and launched
_RUNTIME_SETTINGS = ("POCL_", "CL_", "OCL_", "CPU_")
Programs = dict[str, Program]
"""The code of kernels, by name."""
Objects = list[tuple[str, bytes]]
"""Names and contents of object files."""


@lru_cache(maxsize=16)
def find_library(name: str) -> Path | None:
    """Return a library that Intel's runtime links kernels against, from beside its driver."""
    for driver in find_drivers().files:
        path = Path(driver.library)
        if path.name == INTEL_LIBRARY and (path.parent / name).is_file():
            return path.parent / name
    return None


def programs_of(objects: Objects) -> Programs:
    """Return the code in objects by the names of kernels."""
    programs: dict[str, Program] = {}
    with tempfile.TemporaryDirectory(prefix="countperf-objects-") as folder:
        for name, content in objects:
            path = Path(folder) / name
            path.write_bytes(content)
            program = program_of(path, find_library)
            names = [path.stem] if path.suffix == ".so" else program.entries
            programs |= dict.fromkeys(names, program)
    return programs


@lru_cache(maxsize=4)
def _database(folder: Path) -> Any:
    return WriteOncePersistentDict(
        "countperf-objects", container_dir=str(folder), safe_sync=False, in_mem_cache_size=0
    )


def _kept() -> Any:
    """Return the database of objects; None if nothing is kept."""
    if os.environ.get(OBJECTS) == "off":
        return None
    give_a_cache(OBJECT_FILES)
    return _database(cache_folder("countperf/objects", OBJECTS))


@contextlib.contextmanager
def _going_on() -> Generator[None]:
    """Warn of a database that fails, such as a damaged one, and go on without it."""
    try:
        yield
    except (sqlite3.Error, OSError, pickle.UnpicklingError, EOFError) as error:
        tell_not_kept("the cache of object files", error)


def key_of(unit: Any, parameters: Mapping[str, int], device: Device) -> str | None:
    """Return the name under which a kernel's objects are kept; None if they are not."""
    try:
        code = HostCode.of(unit)
        launches = code.launches(parameters)
    except (CountperfError, LoopyError, KeyError, TypeError, ValueError):
        return None
    parts = [
        *(device.identity.model_dump_json(), code.code.source),
        *(repr(unit.default_entrypoint.options.build_options),),
        *(
            repr((e.kernel, e.group_shape, fewest_groups(e.groups, e.group_shape)))
            for e in launches
        ),
        *(f"{n}={v}" for n, v in sorted(os.environ.items()) if n.startswith(_RUNTIME_SETTINGS)),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def compile_many(
    units: Sequence[tuple[Any, Mapping[str, int]]],
    device: Device,
) -> tuple[Programs | KernelBuildError, ...]:
    """Compile many kernels in one process, and read the objects of each."""
    return tuple(
        objects if isinstance(objects, KernelBuildError) else programs_of(objects)
        for objects in objects_of(units, device)
    )


def objects_of(
    units: Sequence[tuple[Any, Mapping[str, int]]], device: Device
) -> list[Objects | KernelBuildError]:
    """Compile many kernels in one process, but for those whose objects are kept."""
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
    database: Any = None
    with _going_on():
        database = _kept()
    if database is None:
        return _compiled(units, device)
    keys = [key_of(unit, parameters, device) for unit, parameters in units]
    objects: list[Any] = [None] * len(keys)
    for position, key in enumerate(keys):
        with _going_on():
            objects[position] = database.get(key) if key else None
    new = [position for position, known in enumerate(objects) if known is None]
    for position, made in zip(new, _compiled([units[p] for p in new], device), strict=True):
        objects[position] = made
        if keys[position] and not isinstance(made, KernelBuildError):
            with _going_on():
                database.store_if_not_present(keys[position], made)
    return objects


def _compiled(
    units: Sequence[tuple[Any, Mapping[str, int]]], device: Device
) -> list[Objects | KernelBuildError]:
    """Compile kernels in a process."""
    if not units:
        return []
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
        compiled = [_outcome(json.loads(line)) for line in lines]
    missing = KernelBuildError(f"the process that builds and launches kernels ended with {end}")
    return [*compiled, *[missing] * (len(units) - len(compiled))]


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


def _outcome(line: Mapping[str, Any]) -> Objects | KernelBuildError:
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
    return [(path.name, path.read_bytes()) for path in paths]
