"""Object files that an OpenCL runtime for CPUs makes of kernels, kept by all they are made from."""

from __future__ import annotations

import hashlib
import os
import pickle
import tempfile
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyopencl as cl

from countperf.caches import OBJECT_FILES, OBJECTS, cache_folder, give_a_cache, tell_not_kept
from countperf.caches import POCL as POCL_CACHE
from countperf.counting.accesses import offset_parameters
from countperf.devices.binding import bind_arguments
from countperf.devices.description import describe_kernel, with_argument_types
from countperf.devices.device import INTEL_LIBRARY, Device, find_drivers
from countperf.devices.discovery import discover, select_device
from countperf.devices.opencl import OpenCLSession, retarget
from countperf.devices.targets import Launches, generate_for_target
from countperf.devices.workers import Pool
from countperf.errors import CountperfError, DeviceError, KernelBuildError, ParameterError
from countperf.machine_code.interpreter import MachineProgram
from countperf.machine_code.machine_state import KernelLaunch
from countperf.machine_code.object_file import program_of
from countperf.machine_code.tools import OBJDUMP_ADVICE, find_objdump
from countperf.store import write_atomically

POCL = "Portable Computing Language"
INTEL = "Intel(R) OpenCL"  # platforms whose code can be read

_ELF = b"\x7fELF"
_WIDE_GRID = 65536
"""Work items along an axis: PoCL makes other code for grids that are narrower along every axis."""


class HostCode(Launches):
    """The launches of a translation unit through OpenCL."""

    @classmethod
    @lru_cache(maxsize=32)
    def of(cls, unit: Any) -> HostCode:
        """Generate the code of a translation unit, once for its key and for what is followed."""
        unit = retarget(unit)
        return cls(generate_for_target(unit), describe_kernel(unit))

    def launches(self, parameters: Mapping[str, int]) -> tuple[KernelLaunch, ...]:
        """Return what is launched at given sizes, with arguments as code takes them."""
        return tuple(
            KernelLaunch(
                kernel=kernel,
                arguments=tuple(
                    a.tobytes() if isinstance(a, np.generic) else None for a in arguments
                ),
                groups=groups,
                group_shape=shape,
                arrays={k: name for k, name in enumerate(arguments) if type(name) is str},
            )
            for kernel, groups, shape, arguments in self.list_launches(parameters)
        )


# --- A process of its own builds kernels
#
# PoCL compiles at the first launch, here of few groups and arrays full of zeros; it reads the name
# of its cache once in a process. Intel's runtime hands out the object within the program's binary.


class _Apart(OpenCLSession):
    """A session in which no two units share what was compiled."""

    folder: Path
    number = 0
    program: cl.Program

    def build(
        self, source: str, options: Sequence[str] = (), *, cache_folder: Path | None = None
    ) -> cl.Program:
        """Build with an option that no other unit has."""
        apart = (*options, f"-DCOUNTPERF_UNIT={self.number}")
        program = super().build(
            source, apart, cache_folder=cache_folder or self.folder / "binaries"
        )
        self.program = program
        return program


@lru_cache(maxsize=1)
def _open_session(label: str, folder: Path) -> _Apart:
    os.environ[POCL_CACHE] = str(folder / "cache")
    session = _Apart(select_device(label, discover().devices))
    session.folder = folder
    return session


def build_unit(
    label: str, folder: Path, number: int, unit: Any, parameters: Mapping[str, int]
) -> Objects:
    """Build and launch a unit; return names and contents of the objects that were made."""
    session = _open_session(label, folder)
    session.number = number
    before = {*folder.rglob("*.so")}
    try:
        kernel = session.build_kernel(unit, choose_groups=fewest_groups)
        if session.device.identity.platform == INTEL:
            binary = cast("list[bytes]", session.program.get_info(cl.program_info.BINARIES))[0]
            start = binary.find(_ELF, len(_ELF))  # the object is a section of another ELF file
            if start < 0:
                raise DeviceError(
                    "the runtime's binary holds no machine code: Intel's of 2026 does"
                )
            return [(f"{number}.o", binary[start:])]
        given = dict.fromkeys(set(kernel.scalars) - kernel.optional, 1) | dict(parameters)
        kernel.launch(bind_arguments(session, kernel, given).arguments)
        session.finish()
    except cl.Error as error:
        raise KernelBuildError(str(error), stage="run") from error
    # beside what was launched there may be code for groups of any shape
    made = sorted({*folder.rglob("*.so")} - before)
    paths = [path for path in made if not path.parent.name.startswith(_ANY_SHAPE)]
    if not paths:
        raise KernelBuildError(
            "the runtime left no compiled code: PoCL 3.1 and Intel's of 2026 do", stage="run"
        )
    return [(path.name, path.read_bytes()) for path in paths]


def fewest_groups(groups: tuple[int, ...], group_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the groups of the smallest launch for which PoCL makes the same code: one.

    Where PoCL takes the grid for a wide one (3.1, ``pocl_cmd_max_grid_dim_width``), it stays wide.
    """
    shape = [*group_shape, *[1] * (len(groups) - len(group_shape))]
    extents = [n * items for n, items in zip(groups, shape, strict=False)]
    longest = max(range(len(extents)), key=extents.__getitem__)
    fewest = [min(n, 1) for n in groups]
    if extents[longest] >= _WIDE_GRID - 1:
        fewest[longest] = min(groups[longest], -(-_WIDE_GRID // shape[longest]))
    return tuple(fewest)


_ANY_SHAPE = "0-0-0"
_LONGEST_S = 300.0  # for each kernel that is built and launched
_RUNTIME_SETTINGS = ("POCL_", "CL_", "OCL_", "CPU_")
Objects = list[tuple[str, bytes]]  # names and contents of object files


@lru_cache(maxsize=16)
def find_library(name: str) -> Path | None:
    """Return a library that Intel's runtime links kernels against, from beside its driver."""
    drivers = (Path(driver.library) for driver in find_drivers()[0])
    beside = (path.with_name(name) for path in drivers if path.name == INTEL_LIBRARY)
    return next((path for path in beside if path.is_file()), None)


def programs_of(objects: Objects) -> dict[str, MachineProgram]:
    """Return the code in objects by the names of kernels."""
    programs: dict[str, MachineProgram] = {}
    with tempfile.TemporaryDirectory(prefix="countperf-objects-") as folder:
        for name, content in objects:
            path = Path(folder) / name
            path.write_bytes(content)
            program = program_of(path, find_library)
            names = [path.stem] if path.suffix == ".so" else program.entries
            programs |= dict.fromkeys(names, program)
    return programs


def _read_kept(path: Path | None) -> Objects | None:
    """Return the objects that are kept in a file, if it is there and whole."""
    try:
        return pickle.loads(path.read_bytes()) if path is not None and path.exists() else None
    except Exception as error:  # noqa: BLE001  of a damaged file, pickle raises anything
        tell_not_kept("the cache of object files", error)
        return None


def key_of(unit: Any, parameters: Mapping[str, int], device: Device) -> str | None:
    """Return the name under which a kernel's objects are kept; None if they are not."""
    try:
        code = HostCode.of(unit)
        launches = code.launches(parameters)
    except (CountperfError, KeyError, TypeError, ValueError):
        return None
    shapes = [(e.kernel, e.group_shape, fewest_groups(e.groups, e.group_shape)) for e in launches]
    settings = [f"{n}={v}" for n, v in os.environ.items() if n.startswith(_RUNTIME_SETTINGS)]
    options = repr(unit.default_entrypoint.options.build_options)
    parts = [device.identity.model_dump_json(), code.code.source, options, *map(repr, shapes)]
    return hashlib.sha256("\0".join([*parts, *sorted(settings)]).encode()).hexdigest()


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
        raise DeviceError(f"no objdump found: {OBJDUMP_ADVICE}")
    for unit, parameters in units:
        _check(unit, parameters)
    paths: list[Path | None] = [None] * len(units)
    if os.environ.get(OBJECTS) != "off":
        give_a_cache(OBJECT_FILES)
        folder = cache_folder("countperf/objects", OBJECTS)
        keys = [key_of(unit, parameters, device) for unit, parameters in units]
        paths = [folder / f"{key}.pickle" if key else None for key in keys]
    objects: list[Any] = [_read_kept(path) for path in paths]
    new = [position for position, known in enumerate(objects) if known is None]
    for position, made in zip(new, _compile([units[p] for p in new], device), strict=True):
        objects[position], path = made, paths[position]
        if path is not None and not isinstance(made, KernelBuildError):
            try:
                write_atomically(path, pickle.dumps(made))
            except CountperfError as error:
                tell_not_kept("the cache of object files", error)
    return objects


_compilers = threading.local()


@contextmanager
def keep_compiler() -> Generator[tuple[Pool, Path]]:
    """Have one process compile all kernels of a block, and of blocks in it."""
    if kept := getattr(_compilers, "kept", None):
        yield kept
        return
    with Pool(1) as pool:
        _compilers.kept = pool, Path(pool.folder.name)
        try:
            yield _compilers.kept
        finally:
            _compilers.kept = None


_numbers = count()  # of units, which tell apart what is compiled


def _compile(
    units: Sequence[tuple[Any, Mapping[str, int]]], device: Device
) -> list[Objects | KernelBuildError]:
    """Compile kernels, one after the other, in a process that is replaced when it is lost."""
    compiled: list[Objects | KernelBuildError] = []
    if not units:
        return compiled
    with keep_compiler() as (pool, folder):
        for unit, sizes in units:
            given = device.label, folder, next(_numbers), unit, dict(sizes)
            try:
                compiled.append(pool.submit_within(_LONGEST_S, build_unit, *given).result())
            except KernelBuildError as error:
                compiled.append(error)
            except Exception as error:  # noqa: BLE001  of pickling, drivers, compilers: anything
                kernel = unit.default_entrypoint.name
                said = f"kernel {kernel!r} is not compiled in a process of its own: {error}"
                compiled.append(KernelBuildError(said, stage="run"))
    return compiled


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
