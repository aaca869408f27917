"""Execution counts of a compiled group's instructions, found by single-stepping it.

A program in C (``native_stepping.c``, compiled with ``cc``) loads a shared object of PoCL 3.1,
calls the function of a group as PoCL does, and has the processor stop behind every instruction
(``ptrace``). Nothing is shared with the code that follows instructions, but for the description of
the launch, and where arrays lie: at the same addresses, so that whatever depends on alignment or
overlap is decided alike. Arrays hold zeros.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from countperf.devices.compile.compiled_kernel import CompiledKernel, kernel_of
from countperf.devices.compile.objects import objects_of, programs_of
from countperf.devices.device import Device
from countperf.errors import KernelBuildError
from countperf.machine_code.machine_state import KernelLaunch, pocl_group
from countperf.machine_code.object_file import entry_of

_SOURCE = Path(__file__).with_suffix(".c")
_ARRAYS = 0x2000_0000_0000
_APART = 1 << 36
_ROOM = 1 << 34
"""Bytes of an array on either side of where it begins; only what is touched takes memory."""
_LOCAL_ARRAYS = 8
"""Arrays that may be handed over behind the arguments: those in local memory."""
_PATIENCE_S = 300


_MOST_STEPS = 2_000_000


class SteppingError(Exception):
    """The group cannot be run, or takes too many steps."""


@cache
def stepper() -> Path:
    """Compile the program that steps."""
    compiler = shutil.which("cc")
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        raise SteppingError("only processes of Linux on x86-64 are stepped through")
    if compiler is None:
        raise SteppingError("there is no C compiler: install gcc or clang")
    program = Path(tempfile.mkdtemp(prefix="countperf-stepping-")) / "stepper"
    command = [compiler, "-O2", "-o", str(program), str(_SOURCE), "-ldl"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        raise SteppingError(f"{' '.join(command)}: {made.stderr.strip()}")
    return program


def step_through(path: Path, launch: KernelLaunch, number: Sequence[int]) -> Counter[int]:
    """Run a group of a kernel that PoCL compiled."""
    arguments = [*launch.arguments, *[None] * _LOCAL_ARRAYS]
    lines = [f"{path} _pocl_kernel_{launch.kernel}_workgroup {_MOST_STEPS}"]
    lines += [" ".join(map(str, each)) for each in (number, launch.groups, (0, 0, 0))]
    lines += [" ".join(map(str, launch.group_shape)), str(len(arguments))]
    for place, value in enumerate(arguments):
        if value is None:
            lines.append(f"array {_ARRAYS + place * _APART} {_ROOM} {_ROOM}")
        else:
            lines.append(f"value {len(value)} {' '.join(map(str, value))}")
    text, program = "\n".join((*lines, "")), str(stepper())
    try:
        run = subprocess.run(
            [program], input=text, capture_output=True, text=True, check=False, timeout=_PATIENCE_S
        )
    except subprocess.TimeoutExpired as error:
        raise SteppingError(f"not done after {_PATIENCE_S} s") from error
    if run.returncode:
        raise SteppingError(run.stderr.strip() or f"ended with status {run.returncode}")
    rows = (line.split() for line in run.stdout.splitlines())
    return Counter({int(place): int(count) for place, count in rows if place != "outside"})


@dataclass(frozen=True, slots=True)
class Steppable:
    """A kernel that PoCL compiled, and the shared object of each of the device's kernels."""

    kernel: CompiledKernel
    objects: Mapping[str, Path]

    def groups(self, sizes: Mapping[str, int]) -> list[tuple[KernelLaunch, tuple[int, int, int]]]:
        """Return launches, each with a group in the middle and with the last one."""
        found: list[tuple[KernelLaunch, tuple[int, int, int]]] = []
        for launch in self.kernel.host.launches(sizes):
            x, y, z = launch.groups
            numbers = ((x // 2, y // 2, z // 2), (x - 1, y - 1, z - 1))
            found += [(launch, number) for number in dict.fromkeys(numbers)]
        return found

    def compare(
        self, launch: KernelLaunch, number: tuple[int, int, int]
    ) -> tuple[int, list[tuple[str, int, int]]]:
        """Step through a group and follow it; return steps, and what is executed otherwise."""
        program = self.kernel.programs[launch.kernel]
        entry = entry_of(program, launch.kernel, launch.group_shape)
        executed = program.follow_function(entry, pocl_group(launch, number))
        native = step_through(self.objects[launch.kernel], launch, number)
        lines = {line.address: line for line in program.lines}
        followed = {program.lines[place].address: count for place, count in executed.items()}
        found = [
            (str(lines[address]), native[address], followed.get(address, 0))
            for address in sorted({*native, *followed})
            if native[address] != followed.get(address, 0)
        ]
        return native.total(), found


def compiled_for_stepping(
    units: Sequence[tuple[Any, Mapping[str, int]]], device: Device, folder: Path
) -> list[Steppable | str]:
    """Compile kernels with PoCL and keep the objects in a folder."""
    found: list[Steppable | str] = []
    pairs = zip(units, objects_of(units, device), strict=True)
    for number, ((unit, _), objects) in enumerate(pairs):
        if isinstance(objects, KernelBuildError):
            found.append(str(objects))
            continue
        paths = [folder / f"{number}" / name for name, _ in objects]
        for path, (_, content) in zip(paths, objects, strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        kernel = kernel_of(unit, programs_of(objects), device.identity)
        found.append(Steppable(kernel, {path.stem: path for path in paths}))
    return found
