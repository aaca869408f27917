"""Loopy's CUDA target, with corrections for loopy 2025.2.

What is mended, each from outside and for this target only:

- functions: Loopy lists ``rsqrt`` and ``atan2`` but cannot infer their types, and its helpers for
  integers are host functions, which nvcc refuses; results have the types that Loopy's OpenCL target
  gives them, so that the same kernel computes the same on both;
- integer powers from the third on, whose helper is a host function, which nvcc refuses;
- kernels that need several launches, of which only the first is generated;
- arrays that launches share, which are declared like kernels, and arguments in constant memory,
  which CUDA does not have: both are plain pointers;
- 64-bit compare-and-swap, which wants ``unsigned long long``;
- infinities and NaN, whose types Loopy does not know, and for which NVRTC has no macros.

Source: CUDA Math API, "Single Precision Mathematical Functions", "Double Precision Mathematical
Functions".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from cgen.cuda import CudaConstant
from constantdict import constantdict
from loopy.diagnostic import LoopyError, LoopyTypeError
from loopy.kernel import KernelState
from loopy.kernel.data import AddressSpace
from loopy.kernel.function_interface import CallableKernel, ScalarCallable
from loopy.target.cuda import CUDACASTBuilder, CudaTarget
from loopy.target.opencl import opencl_symbol_mangler
from loopy.types import NumpyType, to_unsigned_dtype

from countperf.devices.host_code import GeneratedCode, HostBuilder, generate_for_target
from countperf.errors import KernelBuildError

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
_OTHER_SPELLINGS = {"mad": "fma"}
_ANY_TYPE_FUNCTIONS = {"abs": 1, "isnan": 1, "max": 2, "min": 2, "clamp": 3}
_FLOAT_FORMS = {"abs": "fabs", "max": "fmax", "min": "fmin"}
_ARGUMENTS = {
    **_FLOAT_FUNCTIONS,
    **_ANY_TYPE_FUNCTIONS,
    **{name: _FLOAT_FUNCTIONS[other] for name, other in _OTHER_SPELLINGS.items()},
}

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

HELPER_QUALIFIER = "inline __device__"
"""Declaration qualifier of a helper function."""


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
        name, result = self._spelling(common)
        signature = {-1: NumpyType(result)}
        signature.update({position: NumpyType(common) for position in range(number)})
        specialized = self.copy(name_in_target=name, arg_id_to_dtype=constantdict(signature))
        return specialized, clbl_inf_ctx

    def _spelling(self, dtype: np.dtype[Any]) -> tuple[str, np.dtype[Any]]:
        """Return CUDA's name of the function, and the type of the result."""
        name = _OTHER_SPELLINGS.get(self.name, self.name)
        if dtype.kind == "f":
            name = _FLOAT_FORMS.get(name, name)
        if name in _FLOAT_FUNCTIONS:
            if dtype.name not in ("float32", "float64"):
                raise LoopyTypeError(f"{self.name!r} does not support type {dtype} on CUDA")
            return name + ("f" if dtype.name == "float32" else ""), dtype
        if dtype.kind not in "iuf":
            raise LoopyTypeError(f"{self.name!r} does not support type {dtype} on CUDA")
        helper = f"lpy_{name}_{dtype.name}"
        if name == "isnan":
            return helper, np.dtype(np.int32)
        if name == "abs":
            return helper, to_unsigned_dtype(dtype)
        return helper, dtype

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
        yield f"40_{name}", f"{HELPER_QUALIFIER} {text}"


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
    source = code.source.replace("static inline", HELPER_QUALIFIER)
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
                message = (
                    f"kernel {kernel.name!r} is preprocessed for {type(t_unit.target).__name__};"
                    " give it as it was before lp.preprocess_program"
                )
                raise KernelBuildError(message)
            table[key] = known.copy(subkernel=kernel.copy(target=target))
        else:  # resolved for another target, by type inference
            table[key] = functions.get(getattr(known, "name", ""), known)
    return replace(t_unit, callables_table=constantdict(table), target=target)
