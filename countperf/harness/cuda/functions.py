"""The functions of kernels as CUDA spells them, for f32, f64 and integers.

Loopy 2025.2 lists ``rsqrt`` and ``atan2`` for CUDA but cannot infer their types (the method has
another name than the one that is called), and its helpers for integers are host functions, which
nvcc refuses on the device. Results have the types that Loopy's OpenCL target gives them, so that
the same kernel computes the same on both.

Source: CUDA Math API, "Single Precision Mathematical Functions", "Double Precision Mathematical
Functions".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from constantdict import constantdict
from loopy.diagnostic import LoopyError, LoopyTypeError
from loopy.kernel.function_interface import ScalarCallable
from loopy.types import NumpyType, to_unsigned_dtype

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
            return self.copy(arg_id_to_dtype=_constant(given)), clbl_inf_ctx  # types come later
        types = [given[position].numpy_dtype for position in range(number)]
        common = np.dtype(np.result_type(*types))
        if self.name in _FLOAT_FUNCTIONS and number == 1 and common.kind in "iu":
            common = np.dtype(np.float32)  # as on OpenCL
        name, result = self._spelling(common)
        signature = {-1: NumpyType(result)}
        signature.update({position: NumpyType(common) for position in range(number)})
        specialized = self.copy(name_in_target=name, arg_id_to_dtype=_constant(signature))
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


def _constant(mapping: dict[int, Any]) -> Any:
    return constantdict(mapping)


def cuda_functions() -> dict[str, CudaFunction]:
    """Return the functions by the names under which kernels call them."""
    return {name: CudaFunction(name=name) for name in _ARGUMENTS}
