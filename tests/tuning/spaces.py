"""Small search spaces; functions of this module, so that other processes can import them."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import loopy as lp
import numpy as np
from numpy.typing import NDArray

from countperf.tuning import Choice, SearchSpace

N = 512


def build_double(group: int, each: int, fetch: bool) -> Any:
    """Double a vector: some elements to an item; the fetch is refused by Loopy where each is 8."""
    unit = lp.make_kernel(
        "{[i]: 0<=i<n}",
        "out[i] = 2*a[i]",
        [lp.GlobalArg("a,out", np.float32, shape="n"), lp.ValueArg("n", np.int32)],
        name="double_it",
        assumptions=f"n mod {group * each} = 0 and n >= {group * each}",
        lang_version=(2018, 2),
    )
    if fetch and each == 8:
        raise ValueError("no fetch of eight")
    unit = lp.split_iname(unit, "i", group * each, outer_tag="g.0", inner_iname="block")
    return lp.split_iname(unit, "block", group, outer_iname="each", inner_tag="l.0")


def inputs(random: np.random.Generator, sizes: Mapping[str, int]) -> dict[str, Any]:
    return {"a": random.random(sizes["n"], dtype=np.float32)}


def doubled(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, NDArray[Any]]:
    del sizes
    return {"out": 2 * arguments["a"]}


def is_planar(choice: Choice) -> bool:
    return bool(choice["x"] != choice["y"])


DOUBLE = SearchSpace(
    name="double",
    parameters={"group": [16, 32, 64], "each": [1, 2, 8], "fetch": [False, True]},
    build=build_double,
    sizes={"n": N},
    make_arguments=inputs,
    reference=doubled,
)


def build_choosy(tile: int) -> Any:
    """Double the elements of a vector that exceed a width, on which the condition depends."""
    return lp.make_kernel(
        "{[i]: 0<=i<n}",
        f"if a[i] > {tile}\n out[i] = 2*a[i]\nend",
        [lp.GlobalArg("a,out", np.float32, shape="n"), lp.ValueArg("n", np.int32)],
        name="choosy",
        assumptions="n >= 1",
        lang_version=(2018, 2),
    )


def chances(choice: Choice) -> Mapping[str, float]:
    return {f"a[i] > {choice['tile']}": 1 / int(choice["tile"])}


CHOOSY = SearchSpace(
    name="choosy", parameters={"tile": [16, 64]}, build=build_choosy, sizes={"n": N}
)


def make_space(**changes: Any) -> SearchSpace:
    fields: dict[str, Any] = {
        "name": "toy",
        "parameters": {"x": range(12), "y": [1, 2, 4, 8], "kind": ["plain", "fancy"]},
        **{"build": dict, "sizes": {"n": 64}, "make_arguments": inputs, "reference": doubled},
    }
    return SearchSpace(**{**fields, **changes})


def build_or_fail(caller: int, group: int, how: str) -> Any:
    """Double a vector, in groups of 32 only after something that builders should not do.

    In the process that calls it does nothing of the kind, but in those that are sent it.
    """
    if group == 32 and os.getpid() != caller:
        match how:
            case "end":
                os._exit(7)
            case "leave":
                sys.exit("no more")
            case "crash":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "sleep":
                time.sleep(1000)
            case "hold":  # the interpreter, as endless calls of isl do
                len(str(7 ** (1 << 26)))
            case _:
                pass
    return build_double(group, 1, False)


FAILING = replace(
    DOUBLE,
    name="failing",
    parameters={"group": [32, 16, 64], "how": ["hold", "sleep", "end", "leave", "crash", "well"]},
    build=partial(build_or_fail, os.getpid()),
    sizes={"n": 4096},
)
