"""Small Loopy kernels to run on a real device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import loopy as lp
import numpy as np
from numpy.typing import NDArray
from pymbolic import Variable

from countperf.measurements import KernelCase

GROUP = 16


def _size(name: str = "n") -> Any:
    return lp.ValueArg(name, np.int32)


@cache
def row_sums() -> Any:
    """Sum the rows of a column-major matrix, times a scalar, onto what is there already."""
    unit = lp.make_kernel(
        "{[i,j]: 0<=i<n and 0<=j<m}",
        "out[2*i] = out[2*i] + sum(j, a[i,j]*factor)",
        [
            lp.GlobalArg("a", np.float32, shape="n,m", order="F"),
            lp.GlobalArg("out", np.float32, shape="2*n"),
            lp.ValueArg("factor", np.float32),
            _size(),
            _size("m"),
        ],
        name="row_sums",
        lang_version=(2018, 2),
    )
    unit = lp.split_iname(unit, "i", GROUP, outer_tag="g.0", inner_tag="l.0")
    return lp.assume(unit, f"n mod {GROUP} = 0 and n >= {GROUP}")


@cache
def double(group: int = GROUP) -> Any:
    """Double the elements of a vector."""
    unit = lp.make_kernel(
        "{[i]: 0<=i<n}",
        "out[i] = 2*a[i]",
        [
            lp.GlobalArg("a", np.float32, shape="n"),
            lp.GlobalArg("out", np.float32, shape="n"),
            _size(),
        ],
        name="double_it",
        lang_version=(2018, 2),
    )
    unit = lp.split_iname(unit, "i", group, outer_tag="g.0", inner_tag="l.0")
    return lp.assume(unit, f"n mod {group} = 0 and n >= {group}")


@cache
def two_launches() -> Any:
    """Add one, wait for all groups, and reverse: two launches, with a global temporary."""
    unit = lp.make_kernel(
        "{[i,j]: 0<=i,j<n}",
        """
        tmp[i] = a[i] + 1    {id=first}
        ... gbarrier         {id=wait, dep=first}
        out[j] = tmp[n-1-j]  {dep=wait}
        """,
        [
            lp.GlobalArg("a", np.float32, shape="n"),
            lp.GlobalArg("out", np.float32, shape="n"),
            lp.TemporaryVariable(
                "tmp", np.float32, shape=(Variable("n"),), address_space=lp.AddressSpace.GLOBAL
            ),
            _size(),
        ],
        name="two_launches",
        lang_version=(2018, 2),
    )
    for iname in "ij":
        unit = lp.split_iname(unit, iname, GROUP, outer_tag="g.0", inner_tag="l.0")
    return lp.assume(unit, f"n mod {GROUP} = 0 and n >= {GROUP}")


def _vector(random: np.random.Generator, parameters: Mapping[str, int]) -> dict[str, Any]:
    return {"a": random.random(parameters["n"], dtype=np.float32)}


def _doubled(
    arguments: Mapping[str, Any], parameters: Mapping[str, int]
) -> dict[str, NDArray[Any]]:
    del parameters
    return {"out": 2 * arguments["a"]}


def make_loopy_case(
    kernel: str = "double", build: Callable[[], Any] = double, **changes: Any
) -> KernelCase:
    """Make a case of `double`, or of another kernel with the same arguments."""
    fields: dict[str, Any] = {
        "name": f"{kernel}/n=1024",
        "kernel": kernel,
        "family": kernel,
        "variant": "plain",
        "group_shape": (GROUP, 1),
        "element_type": "f32",
        "build": build,
        "parameters": {"n": 1024},
        "make_arguments": _vector,
        "reference": _doubled,
        "tolerance": 1e-6,
        "purpose": "measurement",
        "global_memory_bytes": 8 * 1024,
        "check_parameters": {"n": 64},
    }
    return KernelCase(**{**fields, **changes})


def _matrix(random: np.random.Generator, parameters: Mapping[str, int]) -> dict[str, Any]:
    n, m = parameters["n"], parameters["m"]
    return {
        "a": np.asfortranarray(random.random((n, m), dtype=np.float32)),
        "out": np.ones(2 * n, np.float32),
        "factor": np.float32(0.5),
    }


def _row_sums(
    arguments: Mapping[str, Any], parameters: Mapping[str, int]
) -> dict[str, NDArray[Any]]:
    del parameters
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
