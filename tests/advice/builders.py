"""Names in which lines of the tables are written: makers of kernels, files and fits."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import loopy as lp
import numpy as np
from pymbolic import parse

import countperf
from countperf.api.evaluation import measurements_of_table
from countperf.devices.binding import check_accesses, default_inputs, resolve_arguments
from countperf.devices.description import describe_kernel
from countperf.measuring.tables import read_times
from tests.kernels import arguments_of, in_groups
from tests.kernels import made as made_kernel
from tests.measuring.test_tables import MY_KERNELS
from tests.models.fitting.builders import KERNELS, TRUE_WEIGHTS, MadeUpKernel
from tests.models.fitting.builders import measure as made


def kernel(
    code: Any,
    arguments: str = "x,y,z f32 n",
    *more: Any,
    domain: Any = "{ [i] : 0 <= i < n }",
    sizes: str = "n i32",
    name: str = "k",
    vec: str = "",
    **options: Any,
) -> Any:
    """Make a kernel with one loop over `n`; of `vec`, the last axis of its arrays is a vector."""
    arrays = arguments_of(arguments)
    if vec:
        domain = "{ [i, j] : 0 <= i < n and 0 <= j < 4 }"
        arrays = [
            arg.copy(dim_tags="N0,vec") if len(getattr(arg, "shape", ())) > 1 else arg
            for arg in arrays
        ]
    tags = {"j": vec} if vec else None
    known: dict[str, Any] = {"name": name, "assumptions": "", "tags": tags, **options}
    return made_kernel(domain, code, "", *arrays, *more, *arguments_of(sizes), **known)


def rows(body: str, *domains: str) -> Any:
    """Make a kernel whose loop ``j`` runs over the elements of row ``i``."""
    return kernel(
        f"for i\n <> length = starts[i + 1] - starts[i] {{id=length}}\n {body}\nend",
        "y f64 n; v f64 q; w f64 q,q; starts i32 n+1",
        domain=["{ [i] : 0 <= i < n }", "{ [j] : 0 <= j < length }", *domains],
        sizes="n,q i32",
    )


def assign(expression: Any, arguments: str = "x,y,z f32 n", *more: Any, **options: Any) -> Any:
    """Make a kernel whose one instruction assigns an expression to ``z[i]``."""
    written = parse(expression) if isinstance(expression, str) else expression
    return kernel([lp.Assignment("z[i]", written, id="insn")], arguments, *more, **options)


class Twice(lp.ScalarCallable):
    """A function of users that Loopy knows once it is registered."""

    def with_types(self, arg_id_to_dtype: Any, clbl_inf_ctx: Any) -> Any:
        """Give the result the type of the argument."""
        types = {0: arg_id_to_dtype[0], -1: arg_id_to_dtype[0]}
        return self.copy(name_in_target="twice", arg_id_to_dtype=types), clbl_inf_ctx


SUM = "for j\n y[i] = y[i] + v[j] {id=add, dep=length}\n end"
IF = "for j\n if v[j] > 0\n y[i] = y[i] + v[j] {id=add, dep=length}\n end\n end"


PAIR = np.dtype([("first", np.float32), ("second", np.float32)])


def array(name: str, dtype: Any, shape: str = "n", **options: Any) -> Any:
    """Declare an array that `arguments_of` has no text for."""
    return lp.GlobalArg(name, dtype, shape=shape, **options)


def square(code: str, arguments: str, *more: Any, extent: int = 4, **options: Any) -> Any:
    """Make a kernel with an inner loop ``j`` of constant length."""
    domain = f"{{ [i, j] : 0 <= i < n and 0 <= j < {extent} }}"
    return kernel(code, arguments, *more, domain=domain, **options)


def table(content: str, kernels: str = "my.py", **options: Any) -> Any:
    """Read a table of times of `my.py`."""
    path = write("table.csv", content)
    return measurements_of_table(path, kernels=kernels, device="nvidia-titan-x", **options)


def tuner(row: dict[str, Any], **fields: Any) -> Any:
    """Read a cache of Kernel Tuner with one configuration."""
    cache = {"tune_params_keys": ["x"], "cache": {"1": row}, **fields}
    return read_times(write("cache.json", cache))


def groups(unit: Any, items: int = 32) -> Any:
    """Split the loop over `n` into groups of work items."""
    return in_groups(unit, f"i:{items}")


DEPENDENT = tuple(k for k in KERNELS if "gmem.load.32.stride1" not in k.counts)
EMPTY = {"launches": 1}
ALIKE = tuple(
    MadeUpKernel(name=family, family=family, counts={"flop.add.f32": f"[n] -> {{ {k}n }}"})
    for k, family in enumerate("abcd", start=1)
)
CHEAP = {**TRUE_WEIGHTS, "gmem.store.32.stride1": -2e-12}
"""Weights of which a fit finds one that is negative."""


def bound(
    unit: Any, inputs: Any = None, statistics: Any = None, *, unchecked: bool = False, **sizes: Any
) -> Any:
    """Make a kernel's inputs and find where they lie, as before a launch; no device is needed."""
    described = describe_kernel(unit)
    rng = np.random.default_rng(3)
    given = default_inputs(described, rng, sizes, inputs, statistics)
    bindings = resolve_arguments(described, sizes, given)
    for name, laid in bindings.placements.items():
        if name in given:
            laid.contents(np.asarray(given[name]))
    if not unchecked:
        check_accesses(described, bindings, given)
    return bindings


def catalogued(*views: Any, device: str = "", **changes: Any) -> str:
    """Write measurements of a kernel of the catalogue, counted in some views."""
    kernel: dict[str, Any] = {"name": "short-launches/axpy/512x1/f32"}
    kernel["counts"] = {"flop.add.f32": "[n] -> { n }"}
    both = tuple(
        MadeUpKernel(**kernel, family="short-launches", view=view, sizes=(2 ** (10 + k),))
        for k, view in enumerate(views or ("structure",))
    )
    tests = [MadeUpKernel(**kernel, family="short-launches", purpose="test", sizes=(2**12,))]
    measured = made([*both, *(tests if device else [])], **changes)
    if device:
        known = countperf.load_weights(device).device
        measured = replace(measured, header=measured.header.model_copy(update={"device": known}))
    measured.write_file("measured.jsonl")
    return "measured.jsonl"


def write(path: str, content: Any) -> str:
    """Write a file of text, or of what JSON can hold."""
    Path(path).write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def names() -> dict[str, Any]:
    """Return the names that lines may use."""
    return {
        **{name: value for name, value in globals().items() if not name.startswith("_")},
        **{name: getattr(countperf, name) for name in countperf.__all__},
        "count": countperf.count_kernel,
    }


TABLE = "kernel,items,n,seconds,GFLOPS\n" + "\n".join(
    f"scale,{items},{n},{4e-6 + 2e-9 * (n // items)},1.5"
    for items in (32, 64)
    for n in (2**k for k in range(10, 15))
)
SPACE = """
import my
from countperf import SearchSpace

def build(items=(32, 64)):
    return my.scale(items)

variants = SearchSpace.from_function(build, sizes={"n": 4096})
"""
MODEL = """format = "countperf-model"
version = 3
name = "mine"
ignored = ["flop.*", "iop.*", "gmem.*"]
[terms]
launch = ["launches", "groups"]
"""


def write_files() -> None:
    """Write what lines take for files of a user."""
    write("my.py", MY_KERNELS)
    write("mine.toml", MODEL)
    write("extra.csv", TABLE)
    write("good.csv", re.sub(",[^,\n]*$", "", TABLE, flags=re.MULTILINE))
    write("space.py", SPACE)
    write("app.txt", "h2d 4e6\nd2h 4e6\n")


def reasons(unit: Any, **options: Any) -> str:
    """Say why counts of a kernel are not exact."""
    return "; ".join(count.reason for count in countperf.count_kernel(unit, **options).values())


def access_of(unit: Any, array: str) -> Any:
    """Return the first access to an array of a kernel that is analyzed."""
    accesses = countperf.analyze_kernel(unit).accesses
    return next(access for access in accesses if access.access.array == array)
