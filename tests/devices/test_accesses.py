"""Subscripts that data decide are checked before a launch; what would crash is not launched."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import loopy as lp
import numpy as np
import pymbolic.primitives as p
import pytest
from loopy.symbolic import TypeCast
from pymbolic import var

from countperf.devices.binding import check_accesses, check_private_arrays, resolve_arguments
from countperf.devices.description import describe_kernel
from countperf.errors import KernelBuildError
from tests.devices.fakes import make_device
from tests.kernels import in_groups, made

N = 64
I1, I4, U4, F4 = np.int8, np.int32, np.uint32, np.float32
TWO = "{ [i, j]: 0 <= i, j < n }"
FEW = "{ [i, j]: 0 <= i < n and 0 <= j < 11 }"
COL = np.arange(N, dtype=I4)

Arrays = Mapping[str, Any]


def _kernel(domain: str, text: Any, arguments: str, *more: Any) -> Any:
    assumptions = "n >= 16 and n mod 16 = 0"
    arguments = f"{arguments}; x,z f32 n; n i32"
    return made(domain, text, arguments, *more, assumptions=assumptions, name="reads")


def _of_column(text: Any, domain: str = "i<n", arguments: str = "", *more: Any) -> Any:
    return _kernel(domain, text, f"col i32 n; {arguments}", *more)


_COL = var("col")[var("i")]


def _read(index: Any) -> Any:
    return lp.Assignment(var("z")[var("i")], var("x")[index])


def _prefetched() -> Any:
    unit = in_groups(_of_column("z[i] = x[col[i]]"), "i:16")
    return lp.add_prefetch(unit, "col", ["i_inner"], default_tag="l.auto")


def _cast() -> Any:
    return _kernel("i<n", [_read(TypeCast(np.int32, var("f")[var("i")]))], "f f32 n")


def _held(space: lp.AddressSpace, shape: Any) -> lp.TemporaryVariable:
    return lp.TemporaryVariable("t", I4, shape=shape, address_space=space)


def _ones(value: int, dtype: Any = I4) -> Any:
    return np.full(N, value, dtype)


ARRAYS = {
    **{"below": COL, "above": COL + 1, "lower": COL - 1, "minus": -COL, "beneath": -COL - 1},
    **{"far": COL + 64, "zeros": 0 * COL, "ones": _ones(1), "least": _ones(-(2**31))},
    **{f"mod {n}": COL % n for n in (8, 20, 22)},
}
_BETWEEN = " {id=w}\n... gbarrier {id=b,dep=w}\n"
_GLOBAL = "", _held(lp.AddressSpace.GLOBAL, "n")
_PRIVATE = "", _held(lp.AddressSpace.PRIVATE, "8")

# Kernels, elements of ``col`` with which they stay inside, and with which they do not; right and
# wrong follow from the subscripts that C computes, by hand; what is computed otherwise than by
# sums, products, quotients, remainders, minima and maxima is refused whatever it is.
OF_COLUMN: list[tuple[str, Any, str, str, *tuple[Any, ...]]] = [
    ("gathered", "z[i] = x[col[i]]", "below", "above,lower"),
    ("scattered", "z[col[i]] = x[i]", "below", "above"),
    ("twice", "z[i] = x[col[col[i]]]", "below", "above"),
    ("scaled", "z[i] = x[3*col[i] + 2]", "mod 20", "mod 22"),
    # the least wraps before the remainder is taken
    ("periodic", "z[i] = x[(col[i] - 1) % n]", "below,above,minus", "least"),
    ("clamped", [_read(p.Min((p.Max((_COL - 1, 0)), var("n") - 1)))], "below,above,minus", ""),
    ("clamped below", [_read(var("max")(_COL, 0))], "below,minus", "above"),
    ("halves", "z[i] = x[col[i] // 2]", "below,far", "minus"),
    ("packed", "z[i] = x[(j*(j + 1)) // 2] + col[i]", "below", "", FEW),
    ("square", "z[i] = x[i*i] + col[i]", "", "below"),
    ("guarded", "z[i] = x[col[i]] {if=col[i] >= 0 and col[i] < n}", "below,above,minus", ""),
    ("guarded above", "z[i] = x[col[i]] {if=col[i] < n}", "above", "minus"),
    ("xor", "z[i] = x[col[i] ^ 1]", "", "below,above"),
    ("right", "z[i] = x[col[i] >> 1]", "", "below"),
    ("abs", "z[i] = x[abs(col[i])]", "", "below,beneath"),
    ("xor of loops", "z[i] = x[i ^ 1] + col[i]", "", "below"),
    ("divided", "z[i] = x[64 // col[i] - 1]", "", "above,below"),
    (
        *("through an argument", f"at[i] = col[i]{_BETWEEN}z[j] = x[at[j]] {{dep=b}}"),
        *("", "below,above", TWO, "at i32 n"),
    ),
    (
        *("through global memory", f"t[i] = 2*col[i]{_BETWEEN}z[j] = x[t[j] // 2] {{dep=b}}"),
        *("", "below,above", TWO, *_GLOBAL),
    ),
    ("through a variable", "<> t = col[i] {id=a}\nz[i] = x[t] {dep=a}", "below", "above"),
    (
        "through two writes",
        "<> t = col[i] {id=a}\nt = 0 {id=b,dep=a,if=i > 3}\nz[i] = x[t] {dep=b}",
        *("", "below"),
    ),
    (
        *("into private memory", "t[col[i]] = 1 {id=w}\nz[i] = x[i] {dep=w}"),
        *("mod 8", "below", "i<n", *_PRIVATE),
    ),
    ("of a sum", "z[i] = x[sum(j, col[j])]", "", "zeros", TWO),
    ("where data say", "z[i] = x[i + 1] {if=col[i] > 0}", "zeros", "ones"),
    ("if data say", "z[i] = x[i + 1] if col[i] > 0 else 0", "zeros", "ones"),
    ("wrapping", "z[i] = x[col[i]*65536*65536]", "", "below"),
]


def _columns(names: str) -> list[Arrays]:
    return [{"col": ARRAYS[name]} for name in names.split(",") if name]


def _pair(a: int, b: int) -> Arrays:
    return {"a": _ones(a, I1), "b": _ones(b, I1)}


def _cases() -> dict[str, tuple[Any, list[Arrays], list[Arrays]]]:
    """Return kernels, arrays with which they stay inside, and arrays with which they do not."""
    kernels: dict[str, tuple[Any, list[Arrays], list[Arrays]]] = {}
    for name, text, right, wrong, *more in OF_COLUMN:
        kernels[name] = _of_column(text, *more), _columns(right), _columns(wrong)
    floats = COL.astype(F4)
    others: dict[str, tuple[Any, list[Arrays], list[Arrays]]] = {
        "prefetched": (_prefetched(), [], [{"col": COL}, {"col": COL + 1}]),
        # 200 in C, -56 in NumPy
        "narrow sum": (
            _kernel("i<n", "z[i] = x[a[i] + b[i] - 192]", "a,b i8 n"),
            *([_pair(100, 100)], [_pair(100, -100)]),
        ),
        "narrow variable": (  # wraps where it is stored
            _kernel("i<n", "<int8> t = a[i] + b[i]\nz[i] = x[t + 56]", "a,b i8 n"),
            *([_pair(-10, 10)], [_pair(100, 100), _pair(100, 0)]),
        ),
        "unsigned": (
            _kernel("i<n", "z[i] = x[a[i] + 1]", "a u32 n"),
            *([{"a": _ones(1, U4)}], [{"a": _ones(63, U4)}]),
        ),
        "below zero unsigned": (
            _kernel("i<n", "z[i] = x[a[i] - 1]", "a u32 n"),
            *([], [{"a": _ones(1, U4)}, {"a": _ones(0, U4)}]),
        ),
        "floating": (_cast(), [], [{"f": floats}, {"f": floats + 1}]),
    }
    return kernels | others


CASES = _cases()
ROWS = [
    pytest.param(name, arrays, right, id=f"{name}-{right}-{number}")
    for name, (_, good, bad) in CASES.items()
    for right, some in ((True, good), (False, bad))
    for number, arrays in enumerate(some)
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "arrays", "is_right"), ROWS)
def test_what_may_leave_an_array_is_refused_and_the_rest_is_not(
    name: str, arrays: Arrays, is_right: bool
) -> None:
    kernel = describe_kernel(CASES[name][0])
    inputs = {"x": np.ones(N, F4), **arrays}
    bindings = resolve_arguments(kernel, {"n": N}, inputs)
    said = r"its array.*nothing was launched.*unchecked="
    with nullcontext() if is_right else pytest.raises(KernelBuildError, match=said):
        check_accesses(kernel, bindings, inputs)


def _with_private(floats: int, items: int) -> Any:
    held = lp.TemporaryVariable("t", F4, shape=(floats,), address_space=lp.AddressSpace.PRIVATE)
    domain = f"{{ [i, j]: 0 <= i < n and 0 <= j < {floats} }}"
    unit = _kernel(domain, "t[j] = x[i] {id=w}\nz[i] = t[0] {dep=w}", "", held)
    return in_groups(unit, f"i:{items}")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("device_type", "floats", "items", "is_right"),
    [
        *(("cpu", 2**10, 16, True), ("cpu", 2**14, 64, True)),  # 4 MiB of 8
        *(("cpu", 2**17, 16, False), ("cpu", 2**22, 1, False)),  # 8 MiB, and more
        *(("gpu", 2**16, 64, True), ("gpu", 2**18, 1, False)),  # 1 MiB
    ],
)
def test_private_arrays_that_overflow_a_stack_are_refused(
    device_type: Any, floats: int, items: int, is_right: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("countperf.devices.binding._stack_bytes", lambda: 2**23)
    kernel = describe_kernel(_with_private(floats, items))
    device = make_device("fake:0", "Abacus")
    identity = device.identity.model_copy(update={"device_type": device_type})
    device, bindings = replace(device, identity=identity), resolve_arguments(kernel, {"n": N})
    said = "the private arrays of"
    with nullcontext() if is_right else pytest.raises(KernelBuildError, match=said):
        check_private_arrays(kernel, device, bindings)
