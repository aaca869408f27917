"""Instructions that a kernel executes on an NVIDIA GPU at given sizes; no GPU is needed.

The kernel is compiled to PTX by nvcc, and sub-groups are followed through it
(`countperf.mechanistic.ptx`): all of the first, the middle and the last work group along each axis.
The middle one stands for those between if the second and the last but one along each axis execute
as much; else all groups are followed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

import numpy as np

from countperf.display import ShortRepr
from countperf.errors import CountingError
from countperf.harness.compile.launches import three
from countperf.harness.cuda.target import CudaCode, generate_cuda
from countperf.harness.description import describe_kernel
from countperf.harness.ptx import compile_ptx
from countperf.harness.scalars import as_scalar
from countperf.machine_code.ptx_unit import LANES
from countperf.mechanistic.ptx import Executed, PtxLaunch, PtxProgram, parse_ptx

_MOST_GROUPS = 4096
"""Groups of a launch that are followed without being asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCounts(ShortRepr):
    """Instructions that all sub-groups of all launches execute."""

    # by class (`countperf.mechanistic.ptx`), once for a sub-group
    instructions: Mapping[str, int]
    lanes: Mapping[str, int]  # the same for each lane whose predicate is true
    sub_groups: int  # sub-groups
    # work groups that were not followed: they are taken to execute what their middle one does
    assumed_groups: int


class CudaLaunches:
    """The launches of a kernel in CUDA, at any sizes."""

    def __init__(self, t_unit: Any, code: CudaCode) -> None:
        self._code = code
        self._description = describe_kernel(t_unit, lambda _: [])

    def at(self, parameters: Mapping[str, int]) -> list[PtxLaunch]:
        """Return the launches, each of the middle group; scalars that are no parameters are 1."""
        scalars = self._description.scalars
        values = {name: parameters.get(name, 1) for name in scalars}
        values |= dict.fromkeys(self._description.offsets, 0)
        numbers = {name: as_scalar(dtype, values[name], name) for name, dtype in scalars.items()}
        launches: list[PtxLaunch] = []

        def note(kernel: str, grid: Sequence[int], shape: Sequence[int], arguments: Any) -> None:
            if prod(int(argument) for argument in grid):
                scalar = tuple(
                    argument if isinstance(argument, np.generic) else None for argument in arguments
                )
                groups = three(grid)
                launches.append(
                    PtxLaunch(
                        kernel=kernel,
                        arguments=scalar,
                        groups=groups,
                        shape=three(shape),
                        group=three([extent // 2 for extent in groups]),
                    )
                )

        arrays = dict.fromkeys(self._description.arguments)
        self._code.host(note, lambda _: None, **(arrays | numbers))
        return launches


class GpuKernel:
    """A kernel compiled to PTX for an NVIDIA GPU, to be followed at any sizes."""

    def __init__(self, t_unit: Any, capability: str = "9.0") -> None:
        code = generate_cuda(t_unit)
        self.launches = CudaLaunches(t_unit, code)
        self.programs = parse_ptx(compile_ptx(code.source, capability, keeps_loops=False))

    def counts(self, parameters: Mapping[str, int], *, every_group: bool = False) -> GpuCounts:
        """Follow sub-groups of each launch; return instructions of all."""
        instructions: Counter[str] = Counter()
        lanes: Counter[str] = Counter()
        sub_groups = assumed = 0
        for launch in self.launches.at(parameters):
            program = self.programs[launch.kernel]
            sub_groups += prod(launch.groups) * -(-prod(launch.shape) // LANES)
            axes = self._chosen(launch, program, every_group=every_group)
            assumed += prod(launch.groups) - prod(map(len, axes))
            for executed, times in self._followed(launch, program, axes):
                for position, instruction in enumerate(program.instructions):
                    if not instruction.name:
                        continue  # free, such as moves
                    for found, number in (
                        (instructions, executed.instructions[position]),
                        (lanes, executed.lanes[position]),
                    ):
                        found[instruction.name] += number * times
                        found["all"] += number * times
        return GpuCounts(
            instructions={name: n for name, n in sorted(instructions.items()) if n},
            lanes={name: n for name, n in sorted(lanes.items()) if n},
            sub_groups=sub_groups,
            assumed_groups=assumed,
        )

    def _chosen(
        self, launch: PtxLaunch, program: PtxProgram, *, every_group: bool
    ) -> list[list[tuple[int, int]]]:
        """Return the numbers of groups to follow along each axis, and for how many each stands."""
        few = [_representatives(extent) for extent in launch.groups]
        if not every_group and self._are_alike(launch, program):
            return few
        if not every_group and prod(launch.groups) > _MOST_GROUPS:
            raise CountingError(
                f"kernel '{launch.kernel}': work groups execute different numbers of instructions,"
                f" and there are {prod(launch.groups)} of them; follow all with every_group=True,"
                " which takes long, or take smaller sizes"
            )
        return [[(place, 1) for place in range(extent)] for extent in launch.groups]

    def _are_alike(self, launch: PtxLaunch, program: PtxProgram) -> bool:
        """Return whether groups between the first and the last execute as much, along each axis."""
        middle = launch.group
        others = [
            (*middle[:axis], place, *middle[axis + 1 :])
            for axis, extent in enumerate(launch.groups)
            for place in {1, extent - 2} - {middle[axis]}
            if extent > 3
        ]
        executed = (
            [
                (each.instructions, each.lanes)
                for each, _ in self._followed(launch, program, [[(k, 1)] for k in group])
            ]
            for group in (middle, *others)
        )
        first = next(executed)
        return all(other == first for other in executed)

    def _followed(
        self, launch: PtxLaunch, program: PtxProgram, axes: Sequence[Sequence[tuple[int, int]]]
    ) -> Iterator[tuple[Executed, int]]:
        """Yield what each sub-group of the chosen groups executes, and how many are like it."""
        for chosen in product(*axes):
            group = three([place for place, _ in chosen])
            times = prod(number for _, number in chosen)
            for number in range(-(-prod(launch.shape) // LANES)):
                yield program.executed(replace(launch, group=group, number=number)), times


def _representatives(extent: int) -> list[tuple[int, int]]:
    """Return numbers of groups along an axis, and for how many each stands."""
    if extent < 3:
        return [(place, 1) for place in range(extent)]
    return [(0, 1), (extent // 2, extent - 2), (extent - 1, 1)]
