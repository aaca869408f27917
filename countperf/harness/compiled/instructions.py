"""Instructions that a kernel's groups execute, by class: properties that a compiler decides.

The code that an OpenCL runtime compiled is read and followed (`execution`) for a group in the
middle, at given sizes; nothing runs. Counts are those of all groups, if all were like that one.

=======================  ==========================================================================
property                 instructions
=======================  ==========================================================================
``code.all``             all
``code.arithmetic_*``    additions, products, fused ones, comparisons, roundings; ``scalar`` or
                         ``vector``, as in the next three
``code.div_*``           divisions, and so on for ``sqrt`` and ``special``; with the type
``code.iop_*``           integer operations; ``code.idiv``: divisions
``code.load_*``          loads; ``scalar``, ``vector`` (of other than whole registers: by bits),
                         ``constant``; and ``code.store_*``
``code.spill_load_*``    of places on the stack, ``integer`` or ``vector``; ``code.spill_store_*``
``code.gather``          and ``code.gather_lanes``: elements of them; ``code.scatter`` likewise
``code.shuffle_lane``    permutations within 128 bits; ``code.shuffle_cross``: of all lanes
others                   ``insert``, ``extract``, ``broadcast``, ``convert``, ``mask``, ``move``,
                         ``branch``, ``call``, ``other``
``code.cycles``          cycles of a processor of reference (`throughput`); ``cycles_loop``, those
                         of innermost loops; ``cycles_throughput``, if nothing waited for results;
                         ``cycles_operations``, micro operations
``late.crowded.load``    loads that come back too late for a cache, since their lines crowd a set
                         (`crowding`); and ``late.crowded.store``
``late.stack.load``      bytes that are kept on the stack for each item, as far as the stack is
                         beyond a cache; and ``late.stack.store``
=======================  ==========================================================================
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from countperf.errors import CountingError, KernelBuildError
from countperf.harness.arrays import ArrayArgument
from countperf.harness.compiled.crowding import (
    beyond_cache,
    crowded,
    directions_of,
    is_on_stack,
)
from countperf.harness.compiled.execution import STACK, Program
from countperf.harness.compiled.groups import intel_group, middle_group, pocl_group
from countperf.harness.compiled.launches import KernelLaunch, launches_of
from countperf.harness.compiled.listing import entry_of
from countperf.harness.compiled.machine import Machine
from countperf.harness.compiled.objects import INTEL, POCL, compile_objects
from countperf.harness.compiled.throughput import Analyzed, Block, Cycles, cycles_of
from countperf.harness.compiled.x86 import classify
from countperf.harness.description import describe_kernel
from countperf.harness.devices import Device
from countperf.harness.scalars import as_scalar

ROOT = "code"
"""What the names of these properties begin with."""

LATE = "late"
"""What those begin with that say what comes back late."""

CYCLES = f"{ROOT}.cycles"
"""Cycles on the processor of reference."""

_GROUPS: Mapping[str, Callable[[KernelLaunch, Sequence[int]], Machine]] = {
    POCL: pocl_group,
    INTEL: intel_group,
}
_SIMPLE = ("add", "mul", "fma", "minmax", "compare", "round")
_CROSS = re.compile(r"v?p?erm(?!il)|vperm|valign|vshuf[fi]|vpmov|vinsert|vextract")
_WIDTHS = {"x": 128, "y": 256, "z": 512}
_VECTORS = re.compile(r"%([xyz])mm")
_WIDE_ELEMENTS = re.compile(r"(?:q|qps|qpd|dpd)$")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CompiledKernel:
    """The compiled code of a translation unit, to be followed at any sizes.

    Attributes
    ----------
    platform : str
        Of the OpenCL runtime.
    programs : Mapping from str to Program
        The code of each of the device's kernels.
    host_code, host_function : str
        What launches them.
    scalars : Mapping from str to numpy.dtype
        Arguments that are no arrays.
    arrays : tuple of str
        Those that are.
    offsets : frozenset of str
        Scalars that only say where arrays begin; 0 by default.
    strided : tuple of ArrayArgument
        Arrays with strides that Loopy leaves to the caller; C order by default.
    analyzed : dict
        Cycles of blocks that were analyzed already.
    """

    platform: str
    programs: Mapping[str, Program]
    host_code: str
    host_function: str
    scalars: Mapping[str, np.dtype[Any]]
    arrays: tuple[str, ...]
    offsets: frozenset[str] = frozenset()
    strided: tuple[ArrayArgument, ...] = ()
    analyzed: Analyzed = field(default_factory=dict[Block, Cycles])

    def numbers(self, parameters: Mapping[str, int]) -> dict[str, Any]:
        """Return the scalar arguments at given sizes, as the code takes them."""
        values: dict[str, Any] = dict.fromkeys(self.scalars, 1)
        values |= dict.fromkeys(self.offsets, 0)
        for array in self.strided:
            for name in array.automatic:
                values.pop(name, None)
        values |= {name: parameters[name] for name in self.scalars if name in parameters}
        for array in self.strided:
            values |= array.chosen_strides(array.extents(values), values)
        return {name: as_scalar(dtype, values[name], name) for name, dtype in self.scalars.items()}

    def counts(self, parameters: Mapping[str, int]) -> dict[str, int]:
        """Follow a group of each launch; return instructions of all groups, by property name.

        Parameters
        ----------
        parameters : mapping from str to int
            Values of all integer arguments; other scalars are 1, for what they are decides nothing.

        Raises
        ------
        CountingError
            A loop depends on data, or a group executes too many instructions to be followed.
        """
        found: Counter[str] = Counter()
        arguments = dict.fromkeys(self.arrays) | self.numbers(parameters)
        for launch in launches_of(self.host_code, self.host_function, arguments):
            if not launch.number_of_groups:
                continue
            program = self.programs.get(launch.kernel)
            if program is None:
                raise CountingError(f"there is no code of kernel {launch.kernel!r}")
            machine = _GROUPS[self.platform](launch, middle_group(launch))
            entry = entry_of(program, launch.kernel, launch.group_shape)
            try:
                executed = program.executed(entry, machine)
            except CountingError as error:
                raise CountingError(
                    f"the compiled code of {launch.kernel!r} cannot be followed: {error}; predict"
                    " with a model that does not read it"
                ) from error
            for place, count in executed.items():
                line = program.lines[place]
                for name, number in properties_of(line.mnemonic, line.operands):
                    found[name] += number * count * launch.number_of_groups
            for name, number in late_of(program, executed, machine.accessed).items():
                found[name] += number * launch.number_of_groups
            for name, number in cycles_of(program, executed, self.analyzed).items():
                found[f"{ROOT}.{name}"] += number * launch.number_of_groups
        return dict(sorted((name, number) for name, number in found.items() if number))


def late_of(
    program: Program, executed: Mapping[int, int], accessed: Mapping[int, int]
) -> Counter[str]:
    """Return what a group accesses that comes back too late for a first-level cache.

    Parameters
    ----------
    program : Program
        Its code.
    executed : mapping from int to int
        How often each line is.
    accessed : mapping from int to int
        Where lines accessed memory when they were executed first.
    """
    shares = crowded((block for block, _ in program.straight(executed)), accessed)
    beyond = beyond_cache(accessed, STACK)
    found: Counter[str] = Counter()
    for number, address in accessed.items():
        line, count = program.lines[number], executed[number]
        for direction, size, goes_along in directions_of(line.mnemonic, line.operands):
            if number in shares:
                found[f"{LATE}.crowded.{direction}"] += round(shares[number] * count)
            if goes_along and is_on_stack(address, STACK):
                found[f"{LATE}.stack.{direction}"] += round(beyond * size * count)
    return found


def read_compiled(
    units: Sequence[tuple[Any, Mapping[str, int]]], device: Device
) -> tuple[CompiledKernel | KernelBuildError, ...]:
    """Compile kernels with an OpenCL runtime for CPUs, and read their code.

    Parameters
    ----------
    units : sequence of (loopy.TranslationUnit, mapping from str to int)
        Kernels with one entry point whose argument types are known, and values of their integer
        arguments: PoCL compiles for a launch, and launches each once, with arrays of zeros.
    device : Device
        A processor that PoCL or Intel's runtime runs kernels on.

    Returns
    -------
    tuple of CompiledKernel or KernelBuildError
        In the same order; an error for a kernel that could not be compiled.

    Raises
    ------
    DeviceError
        The runtime is another one, the processors are not x86-64, or there is no ``objdump``.
    KernelBuildError
        A kernel cannot be handed to another process.
    """
    import loopy as lp

    from countperf.counting.copies import generated

    found: list[CompiledKernel | KernelBuildError] = []
    for (unit, _), objects in zip(units, compile_objects(units, device), strict=True):
        if objects.problem:
            found.append(KernelBuildError(objects.problem))
            continue
        if not isinstance(unit.target, lp.PyOpenCLTarget):
            unit = unit.copy(target=lp.PyOpenCLTarget())
        code, kernel = generated(unit), describe_kernel(unit, _no_launch)
        found.append(
            CompiledKernel(
                platform=device.identity.platform,
                programs=objects.programs,
                host_code=code.host_code(),
                host_function=code.host_programs[kernel.name].name,
                scalars=kernel.scalars,
                arrays=tuple(kernel.arguments),
                offsets=kernel.offsets,
                strided=tuple(part for part in kernel.arguments.values() if part.automatic),
            )
        )
    return tuple(found)


def _no_launch(_: Mapping[str, Any]) -> list[Any]:
    return []


@lru_cache(maxsize=2**15)
def properties_of(mnemonic: str, operands: str) -> tuple[tuple[str, int], ...]:
    """Return what executing an instruction counts as, by property name.

    Parameters
    ----------
    mnemonic, operands : str
        In AT&T's syntax, without prefixes and comments.

    Examples
    --------
    >>> properties_of("vaddps", "(%rdi),%ymm0,%ymm1")
    (('code.all', 1), ('code.arithmetic_vector', 1), ('code.load_vector', 1))
    """
    widths = [_WIDTHS[each] for each in _VECTORS.findall(operands)]
    names: list[tuple[str, int]] = [("all", 1)]
    for kind in classify(mnemonic, operands):
        if kind in ("gather", "scatter"):
            bits = 64 if _WIDE_ELEMENTS.search(mnemonic) else 32
            names += [(kind, 1), (f"{kind}_lanes", max(widths) // bits)]
        else:
            names.append((_named(kind, mnemonic), 1))
    return tuple((f"{ROOT}.{name}", number) for name, number in names)


def _named(kind: str, mnemonic: str) -> str:
    parts = kind.split(".")
    match parts[0]:
        case "flop":
            unit = "scalar" if parts[3] == "1" else "vector"
            name = "arithmetic" if parts[1] in _SIMPLE else f"{parts[1]}_{parts[2]}"
            return f"{name}_{unit}"
        case "load" | "store":
            unit = "scalar" if parts[1] == "integer" else parts[1]
            return f"{parts[0]}_{unit}"
        case "spill":
            return f"spill_{parts[1]}_{'integer' if parts[2] == 'integer' else 'vector'}"
        case "shuffle":
            return f"shuffle_{'cross' if _CROSS.match(mnemonic) else 'lane'}"
        case _:
            return "_".join(parts)
