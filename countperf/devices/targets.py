"""Code that Loopy generates for a device, and what its host function launches, in Python.

It is called without Loopy's executor, which looks at every argument again at each run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from cgen.cuda import CudaConstant
from constantdict import constantdict
from genpy import Assign, Function, Statement, Suite
from loopy.diagnostic import LoopyError, LoopyTypeError
from loopy.kernel import KernelState
from loopy.kernel.data import AddressSpace, ValueArg
from loopy.kernel.function_interface import CallableKernel, ScalarCallable
from loopy.schedule.tools import get_kernel_arg_info, get_subkernel_arg_info
from loopy.target.c.c_execution import DEF_EVEN_DIV_FUNCTION
from loopy.target.cuda import CUDACASTBuilder, CudaTarget
from loopy.target.opencl import opencl_symbol_mangler
from loopy.target.python import PythonASTBuilderBase
from loopy.types import NumpyType, to_unsigned_dtype
from pymbolic.mapper.stringifier import PREC_NONE

from countperf.counting.frontend.schedule import generate_code
from countperf.devices.description import DeviceKernel
from countperf.errors import KernelBuildError

_LAUNCH, _ALLOCATE, _NUMPY = "_lpy_launch", "_lpy_allocate", "_lpy_np"

_LAUNCHED = re.compile(rf"{_LAUNCH}\('(\w+)'")

Shape = tuple[int, int, int]


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
        write = self.get_expression_to_code_mapper(codegen_state)
        return [
            Assign(name, f"{_ALLOCATE}({write(variable.nbytes, PREC_NONE, type_context='i')})")
            for name, variable in sorted(codegen_state.kernel.temporary_variables.items())
            if variable.address_space == AddressSpace.GLOBAL
            and not variable.base_storage
            and variable.initializer is None
        ]

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
    dtype = kernel.index_dtype
    if name not in kernel.all_inames():
        described: Any = kernel.get_var_descriptor(name)
        dtype = described.dtype
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
        calls: list[tuple[str, Sequence[int], Sequence[int], Sequence[Any]]] = []
        self.host(lambda *call: calls.append(call), allocate, **arguments)
        return [
            GeneratedLaunch(name, tuple(map(int, groups)), tuple(map(int, shape)), tuple(given))
            for name, groups, shape, given in calls
        ]


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

        These are NumPy scalars (1 where no size is given), names of arrays, None for temporaries.
        """
        given = {name: name for name in self.kernel.arguments} | self.kernel.numbers(parameters)
        return [
            (launch.kernel, _three(launch.groups), _three(launch.shape), [*launch.arguments])
            for launch in self.code.launches(given, lambda _: None)
            if all(launch.groups)
        ]


def _three(extents: Sequence[int]) -> Shape:
    first, second, third = (*extents, 1, 1)[:3]
    return first, second, third


# --- CUDA: what is mended for loopy 2025.2
#
# - functions: Loopy cannot infer types of some, and its helpers for integers are host functions;
#   results have the types of its OpenCL target (names: CUDA Math API, "Mathematical Functions");
# - kernels that need several launches, of which only the first is generated;
# - arrays that launches share, which are declared like kernels, and arguments in constant memory,
#   which CUDA does not have: both are plain pointers;
# - 64-bit compare-and-swap, which wants ``unsigned long long``;
# - infinities and NaN, whose types Loopy does not know, and for which NVRTC has no macros.

_FLOAT_FUNCTIONS: Mapping[str, int] = {
    **dict.fromkeys(
        (
            *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "sin", "sinh"),
            *("tan", "tanh", "exp", "exp2", "exp10", "expm1", "log", "log2", "log10", "log1p"),
            *("sqrt", "rsqrt", "cbrt", "ceil", "floor", "trunc", "round", "rint", "fabs"),
            *("erf", "erfc", "tgamma", "lgamma"),
        ),
        1,
    ),
    **dict.fromkeys(("atan2", "copysign", "fmax", "fmin", "fmod", "hypot", "pow"), 2),
    "fma": 3,
}
_FLOAT_FORMS = {"abs": "fabs", "max": "fmax", "min": "fmin"}
_ANY_TYPE_FUNCTIONS = {"abs": 1, "isnan": 1, "max": 2, "min": 2, "clamp": 3}
_ARGUMENTS = {**_FLOAT_FUNCTIONS, **_ANY_TYPE_FUNCTIONS, "mad": 3}  # ``mad`` is ``fma``

_HELPERS = {
    "max": "{type} {name}({type} a, {type} b) {{ return a > b ? a : b; }}",
    "min": "{type} {name}({type} a, {type} b) {{ return a < b ? a : b; }}",
    "abs": "{result} {name}({type} a) {{ return a < 0 ? -({result}) a : ({result}) a; }}",
    "isnan": "{result} {name}({type} a) {{ return a != a; }}",
    "clamp": (
        "{type} {name}({type} a, {type} low, {type} high)"
        " {{ return a < low ? low : (a > high ? high : a); }}"
    ),
}

_UNSIGNED_ABS = "{result} {name}({type} a) {{ return a; }}"
_HELPER_QUALIFIER = "inline __device__"


class CudaFunction(ScalarCallable):
    """A function of one or more numbers, known by the name that OpenCL or C has for it."""

    def with_types(self, arg_id_to_dtype: Any, clbl_inf_ctx: Any) -> Any:
        """Choose CUDA's function for these types of arguments."""
        number = _ARGUMENTS[self.name]
        given = dict(arg_id_to_dtype)
        if any(not isinstance(key, int) or not -1 <= key < number for key in given):
            raise LoopyError(f"{self.name!r} takes {number} argument(s), by position")
        if any(given.get(position) is None for position in range(number)):
            return self.copy(arg_id_to_dtype=constantdict(given)), clbl_inf_ctx  # types come later
        types = [given[position].numpy_dtype for position in range(number)]
        common = np.dtype(np.result_type(*types))
        if self.name in _FLOAT_FUNCTIONS and number == 1 and common.kind in "iu":
            common = np.dtype(np.float32)  # as on OpenCL
        name, result = self._find_spelling(common)
        numbers = dict.fromkeys(range(number), NumpyType(common))
        signature = constantdict({-1: NumpyType(result), **numbers})
        return self.copy(name_in_target=name, arg_id_to_dtype=signature), clbl_inf_ctx

    def _find_spelling(self, dtype: np.dtype[Any]) -> tuple[str, np.dtype[Any]]:
        """Return CUDA's name of the function, and the type of the result."""
        name = "fma" if self.name == "mad" else self.name
        if dtype.kind == "f":
            name = _FLOAT_FORMS.get(name, name)
        is_float = dtype.name in ("float32", "float64")
        if not (is_float if name in _FLOAT_FUNCTIONS else dtype.kind in "iuf"):
            raise LoopyTypeError(f"{self.name!r} does not support type {dtype} on CUDA")
        if name in _FLOAT_FUNCTIONS:
            return name + ("f" if dtype.name == "float32" else ""), dtype
        results = {"isnan": lambda: np.dtype(np.int32), "abs": lambda: to_unsigned_dtype(dtype)}
        return f"lpy_{name}_{dtype.name}", results.get(name, lambda: dtype)()

    def generate_preambles(self, target: Any) -> Any:
        """Define the helper, where CUDA has no such function."""
        name = self.name_in_target or ""
        if not name.startswith("lpy_") or self.arg_id_to_dtype is None:
            return
        unsigned = self.arg_id_to_dtype[0].numpy_dtype.kind == "u"
        helper = _UNSIGNED_ABS if unsigned and self.name == "abs" else _HELPERS[self.name]
        text = helper.format(
            name=name,
            type=target.dtype_to_typename(self.arg_id_to_dtype[0]),
            result=target.dtype_to_typename(self.arg_id_to_dtype[-1]),
        )
        yield f"40_{name}", f"{_HELPER_QUALIFIER} {text}"


def cuda_functions() -> dict[str, CudaFunction]:
    """Return the functions by the names under which kernels call them."""
    return {name: CudaFunction(name=name) for name in _ARGUMENTS}


_SWAP = re.compile(r"atomicCAS\(.*")
_CONSTANTS = """\
#ifdef __CUDACC_RTC__
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#endif"""


class NvidiaCudaTarget(CudaTarget):
    """CUDA C, and a host function in Python that launches it."""

    # Loopy's cache on disk keeps it pickled, under a key that does not say where its class is
    hash_fields = (*CudaTarget.hash_fields, "__module__")
    host_program_name_prefix = "_lpy_host_"
    host_program_name_suffix = ""

    def get_device_ast_builder(self) -> Any:
        """Return what writes CUDA C."""
        return _DeviceBuilder(self)

    def get_host_ast_builder(self) -> Any:
        """Return what writes the host function."""
        return HostBuilder(self)


class _DeviceBuilder(CUDACASTBuilder):
    @property
    def known_callables(self) -> Any:
        return {**super().known_callables, **cuda_functions()}

    def symbol_manglers(self) -> Any:
        return [*super().symbol_manglers(), opencl_symbol_mangler]

    def get_constant_arg_declarator(self, arg: Any) -> Any:
        return self.get_array_arg_declarator(arg, is_written=False)

    def wrap_decl_for_address_space(self, decl: Any, address_space: Any) -> Any:
        if address_space == AddressSpace.GLOBAL:
            return decl  # __global__ is for kernels
        return super().wrap_decl_for_address_space(decl, address_space)

    def wrap_global_constant(self, decl: Any) -> Any:
        return CudaConstant(decl)


def generate_cuda(t_unit: Any) -> GeneratedCode:
    """Generate CUDA for a translation unit."""
    code = generate_for_target(retarget(t_unit))
    # Loopy's helpers are functions of the host, and it swaps 64 bits as a signed number
    source = code.source.replace("static inline", _HELPER_QUALIFIER)
    source = _SWAP.sub(lambda call: call[0].replace("(long", "(unsigned long long"), source)
    return replace(code, source=f"{_CONSTANTS}\n{source}")


def retarget(t_unit: Any) -> Any:
    """Return a translation unit for CUDA, whatever it was made for."""
    if isinstance(t_unit.target, NvidiaCudaTarget):
        return t_unit
    target = NvidiaCudaTarget()
    functions = cuda_functions()
    table: dict[Any, Any] = {}
    for key, known in t_unit.callables_table.items():
        if isinstance(known, CallableKernel):
            kernel: Any = known.subkernel
            if kernel.state > KernelState.CALLS_RESOLVED:
                raise KernelBuildError(
                    f"kernel {kernel.name!r} is preprocessed for {type(t_unit.target).__name__};"
                    " give it as it was before lp.preprocess_program"
                )
            table[key] = known.copy(subkernel=kernel.copy(target=target))
        else:  # resolved for another target, by type inference
            table[key] = functions.get(getattr(known, "name", ""), known)
    return replace(t_unit, callables_table=constantdict(table), target=target)
