"""Small Loopy kernels to run on a real device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import loopy as lp
import numpy as np
from pymbolic import Variable

from countperf.measuring import KernelCase
from tests.kernels import in_groups, made

GROUP = 16


def _whole_groups(group: int) -> str:
    return f"n mod {group} = 0 and n >= {group}"


@cache
def row_sums() -> Any:
    """Sum the rows of a column-major matrix, times a scalar, onto what is there already."""
    return made(
        "{[i,j]: 0<=i<n and 0<=j<m}",
        "out[2*i] = out[2*i] + sum(j, a[i,j]*factor)",
        "out f32 2*n; factor f32; n,m i32",
        lp.GlobalArg("a", np.float32, shape="n,m", order="F"),
        assumptions=_whole_groups(GROUP),
        name="row_sums",
        split=f"i:{GROUP}",
    )


@cache
def double(group: int = GROUP) -> Any:
    """Double the elements of a vector."""
    options: dict[str, Any] = {"assumptions": _whole_groups(group), "name": "double_it"}
    return made("i<n", "out[i] = 2*a[i]", "a,out f32 n; n i32", split=f"i:{group}", **options)


@cache
def two_launches() -> Any:
    """Add one, wait for all groups, and reverse: two launches, with a global temporary."""
    space = lp.AddressSpace.GLOBAL
    held = lp.TemporaryVariable("tmp", np.float32, shape=(Variable("n"),), address_space=space)
    body = "tmp[i] = a[i] + 1 {id=first}\n... gbarrier {id=wait, dep=first}\n"
    body += "out[j] = tmp[n-1-j] {dep=wait}"
    options: dict[str, Any] = {"assumptions": _whole_groups(GROUP), "name": "two_launches"}
    unit = made("{[i,j]: 0<=i,j<n}", body, "a,out f32 n; n i32", held, **options)
    return in_groups(unit, f"i:{GROUP} j:{GROUP}")


def _vector(random: np.random.Generator, parameters: Mapping[str, int]) -> dict[str, Any]:
    return {"a": random.random(parameters["n"], dtype=np.float32)}


def make_loopy_case(
    kernel: str = "double", build: Callable[[], Any] = double, **changes: Any
) -> KernelCase:
    """Make a case of `double`, or of another kernel with the same arguments."""
    fields: dict[str, Any] = {
        **{"name": f"{kernel}/n=1024", "kernel": kernel, "build": build, "tolerance": 1e-6},
        **{"parameters": {"n": 1024}, "check_parameters": {"n": 64}, "make_arguments": _vector},
        "reference": lambda arguments, _: {"out": 2 * arguments["a"]},
    }
    return KernelCase(**{**fields, **changes})


def _matrix(random: np.random.Generator, parameters: Mapping[str, int]) -> dict[str, Any]:
    n, m = parameters["n"], parameters["m"]
    a = np.asfortranarray(random.random((n, m), dtype=np.float32))
    return {"a": a, "out": np.ones(2 * n, np.float32), "factor": np.float32(0.5)}


def _row_sums(arguments: Mapping[str, Any], _: object) -> dict[str, Any]:
    out = np.array(arguments["out"])
    out[::2] += (arguments["a"] * arguments["factor"]).sum(axis=1)
    return {"out": out}


ROW_SUMS = make_loopy_case(
    "row_sums",
    row_sums,
    name="row_sums/n=256,m=64",
    parameters={"n": 256, "m": 64},
    check_parameters={"n": 32, "m": 7},
    make_arguments=_matrix,
    reference=_row_sums,
)
TWO_LAUNCHES = make_loopy_case(
    "two_launches",
    two_launches,
    reference=lambda arguments, _: {"out": arguments["a"][::-1] + 1},
)
