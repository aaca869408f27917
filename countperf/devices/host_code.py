"""Code that Loopy generates for a device, and what its host function launches.

The host function is Python, for OpenCL as for CUDA: it works out grid, group and arguments of each
launch and hands them to whoever launches. It is called directly, without Loopy's executor, which
would look at every argument again at each run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from genpy import Assign, Function, Statement, Suite
from loopy.kernel.data import AddressSpace, ValueArg
from loopy.schedule.tools import get_kernel_arg_info, get_subkernel_arg_info
from loopy.target.c.c_execution import DEF_EVEN_DIV_FUNCTION
from loopy.target.python import PythonASTBuilderBase
from pymbolic.mapper.stringifier import PREC_NONE

from countperf.counting.frontend.copies import generate_code
from countperf.devices.description import DeviceKernel
from countperf.errors import KernelBuildError

_LAUNCH, _ALLOCATE, _NUMPY = "_lpy_launch", "_lpy_allocate", "_lpy_np"

_LAUNCHED = re.compile(rf"{_LAUNCH}\('(\w+)'")

Shape = tuple[int, ...]


class HostBuilder(PythonASTBuilderBase):
    """Writes ``host(launch, allocate, **arguments)``."""

    def get_function_definition(
        self,
        codegen_state: Any,
        codegen_result: Any,
        schedule_index: int,
        function_decl: Any,
        function_body: Any,
    ) -> Any:
        """Write the head of the function."""
        del schedule_index, function_decl
        names = get_kernel_arg_info(codegen_state.kernel).passed_arg_names
        name = codegen_result.current_program(codegen_state).name
        return Function(name, [_LAUNCH, _ALLOCATE, *names], Suite([function_body]))

    def get_temporary_decls(self, codegen_state: Any, schedule_index: int) -> Any:
        """Write the allocation of arrays that launches share."""
        del schedule_index
        mapper = self.get_expression_to_code_mapper(codegen_state)
        declared: list[Any] = []
        for name, variable in sorted(codegen_state.kernel.temporary_variables.items()):
            if variable.address_space != AddressSpace.GLOBAL or variable.base_storage:
                continue
            if variable.initializer is None:
                size = mapper(variable.nbytes, PREC_NONE, type_context="i")
                declared.append(Assign(name, f"{_ALLOCATE}({size})"))
        return declared

    def get_kernel_call(
        self, codegen_state: Any, subkernel_name: str, gsize: Any, lsize: Any
    ) -> Any:
        """Write a launch."""
        kernel = codegen_state.kernel
        mapper = self.get_expression_to_code_mapper(codegen_state)
        passed = get_subkernel_arg_info(kernel, subkernel_name).passed_names
        values = "".join(f"{_as_argument(kernel, name)}, " for name in passed)
        grid, group = (
            mapper(tuple(shape) or (1,), PREC_NONE, type_context="i") for shape in (gsize, lsize)
        )
        return Statement(f"{_LAUNCH}({subkernel_name!r}, {grid}, {group}, ({values}))")


def _as_argument(kernel: Any, name: str) -> str:
    """Write the argument of a launch, of the type that the kernel declares."""
    if name in kernel.all_inames():
        return f"{_NUMPY}.{np.dtype(kernel.index_dtype.numpy_dtype).name}({name})"
    described: Any = kernel.get_var_descriptor(name)
    dtype: Any = described.dtype
    if not isinstance(described, ValueArg) or dtype.numpy_dtype.names:
        return name
    return f"{_NUMPY}.{np.dtype(dtype.numpy_dtype).name}({name})"


@dataclass(frozen=True, slots=True)
class GeneratedLaunch:
    """A launch of a kernel."""

    kernel: str  # its name
    groups: tuple[int, ...]  # along each axis
    shape: tuple[int, ...]  # of a group
    arguments: tuple[Any, ...]  # NumPy scalars, and what stands for arrays


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedCode:
    """A translation unit as CUDA, or as OpenCL."""

    source: str  # CUDA C, or OpenCL C
    kernels: tuple[str, ...]  # the kernels in it, in the order of their launches
    host: Any  # from what launches, what allocates, and arguments by name

    def launches(
        self, arguments: Mapping[str, Any], allocate: Callable[[int], Any]
    ) -> list[GeneratedLaunch]:
        """Return what is launched with arguments; `allocate` makes arrays that launches share."""
        launches: list[GeneratedLaunch] = []

        def note(kernel: str, groups: Sequence[int], shape: Sequence[int], given: Any) -> None:
            extents, items = tuple(map(int, groups)), tuple(map(int, shape))
            launches.append(GeneratedLaunch(kernel, extents, items, tuple(given)))

        self.host(note, allocate, **arguments)
        return launches


def generate_for_target(unit: Any) -> GeneratedCode:
    """Generate the code of a translation unit whose target has a `HostBuilder`."""
    code, kernel = generate_code(unit), unit.default_entrypoint.name
    host = code.host_code()
    namespace: dict[str, Any] = {_NUMPY: np}
    exec(DEF_EVEN_DIV_FUNCTION, namespace)  # a name that Loopy's code relies on
    try:
        exec(host, namespace)
    except SyntaxError as error:
        raise KernelBuildError(
            f"kernel {kernel!r}: the host function that Loopy generates is no Python"
            f" ({error.msg}: {(error.text or '').strip()}); give another name to what is called"
            " like a word of Python's"
        ) from error
    return GeneratedCode(
        source=code.device_code(),
        kernels=tuple(dict.fromkeys(_LAUNCHED.findall(host))),  # without functions that they call
        host=namespace[code.host_programs[kernel].name],
    )


@dataclass(frozen=True, slots=True)
class Launches:
    """The launches of a translation unit, at any sizes."""

    code: GeneratedCode
    kernel: DeviceKernel  # its arguments

    def list_launches(
        self, parameters: Mapping[str, int]
    ) -> list[tuple[str, Shape, Shape, list[Any]]]:
        """Return kernel, groups, shape of a group and arguments of launches that have groups.

        Arguments are NumPy scalars, names of arrays, and None for temporaries; scalars that are no
        parameters are 1.
        """
        given = {name: name for name in self.kernel.arguments} | self.kernel.numbers(parameters)
        return [
            (
                launch.kernel,
                (*launch.groups, 1, 1)[:3],
                (*launch.shape, 1, 1)[:3],
                [*launch.arguments],
            )
            for launch in self.code.launches(given, lambda _: None)
            if all(launch.groups)
        ]
