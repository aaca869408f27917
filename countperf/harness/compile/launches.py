"""Launches of a translation unit at given sizes, found without a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import loopy as lp
import numpy as np

from countperf.harness.cuda.target import CudaCode, HostBuilder, code_of
from countperf.harness.description import Kernel, describe_kernel
from countperf.machine_code.machine_state import KernelLaunch

Shape = tuple[int, int, int]


class _NotedTarget(lp.PyOpenCLTarget):
    """OpenCL C, and a host function that tells what it launches."""

    # as of `NvidiaCudaTarget`
    hash_fields = (*lp.PyOpenCLTarget.hash_fields, "__module__")

    def get_host_ast_builder(self) -> Any:
        """Return what writes the host function."""
        return HostBuilder(self)


@dataclass(frozen=True, slots=True)
class Launches:
    """The launches of a translation unit, at any sizes."""

    code: CudaCode
    kernel: Kernel  # its arguments

    def noted(self, parameters: Mapping[str, int]) -> list[tuple[str, Shape, Shape, list[Any]]]:
        """Return kernel, groups, shape of a group and arguments of launches that have groups.

        Arguments are NumPy scalars, names of arrays, and None for temporaries; scalars that are no
        parameters are 1.
        """
        launches: list[tuple[str, Shape, Shape, list[Any]]] = []

        def note(kernel: str, grid: Sequence[int], shape: Sequence[int], arguments: Any) -> None:
            if all(int(extent) for extent in grid):
                launches.append((kernel, three(grid), three(shape), [*arguments]))

        arrays = {name: name for name in self.kernel.arguments}
        numbers = self.kernel.numbers(parameters)
        self.code.host(note, lambda _: None, **(arrays | numbers))
        return launches


class HostCode(Launches):
    """The launches of a translation unit through OpenCL."""

    @classmethod
    def of(cls, unit: Any) -> HostCode:
        """Generate the code of a translation unit."""
        unit = unit.copy(target=_NotedTarget())
        return cls(code_of(unit), describe_kernel(unit, lambda _: []))

    def launches(self, parameters: Mapping[str, int]) -> tuple[KernelLaunch, ...]:
        """Return what is launched at given sizes, with arguments as code takes them."""
        return tuple(
            KernelLaunch(
                kernel=kernel,
                arguments=tuple(
                    each.tobytes() if isinstance(each, np.generic) else None for each in arguments
                ),
                groups=groups,
                group_shape=shape,
                arrays={k: name for k, name in enumerate(arguments) if type(name) is str},
            )
            for kernel, groups, shape, arguments in self.noted(parameters)
        )


def three(extents: Sequence[int]) -> tuple[int, int, int]:
    """Return extents along three axes; 1 where there is none."""
    first, second, third = (*(int(extent) for extent in extents), 1, 1)[:3]
    return first, second, third
