#!/usr/bin/env python3
"""Draw kernels whose data decide a subscript; compare the check before launches with the truth.

    scripts/check_random_launches.py 400 --seed 2

The truth is what a device computes: a kernel that stores the subscript, and reads nothing by it,
runs on PoCL. Exit status 1 if a kernel that leaves its array would be launched. Kernels that stay
inside and are refused are counted and listed.
"""

from __future__ import annotations

import argparse
import random
import sys
import warnings
from typing import Any

import loopy as lp
import numpy as np
import pyopencl as cl

from countperf.devices.binding import check_accesses, resolve_arguments
from countperf.devices.description import describe_kernel
from countperf.devices.discovery import find_device
from countperf.errors import CountperfError

N = 64
_TYPES = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64)
_BINARY = ("+", "-", "*", "&", "|", "^")


def _expression(chance: random.Random, depth: int) -> str:
    """Return a subscript over the arrays a and b and the loop i."""
    if depth == 0:
        return chance.choice(("a[i]", "b[i]", "a[i]", "b[i]", "i", str(chance.randint(0, 70))))
    one, other = _expression(chance, depth - 1), _expression(chance, chance.randrange(depth))
    kinds = {
        "binary": f"({one} {chance.choice(_BINARY)} {other})",
        "shift": f"({one} {chance.choice(('<<', '>>'))} {chance.randint(0, 6)})",
        "divided": f"({one} {chance.choice(('//', '%'))} {chance.randint(1, 80)})",
        "abs": f"abs({one})",
        "through": f"a[{one} % {N}]",
        "chosen": f"({one} if {other} > {chance.randint(0, 9)} else {chance.randrange(N)})",
    }
    return kinds[chance.choice(sorted(kinds))]


def _kernel(instruction: str, inputs: dict[str, Any]) -> Any:
    stored = "at" if instruction.startswith("at") else "x,z"
    arrays = [lp.GlobalArg(name, inputs[name].dtype, shape=(N,)) for name in "ab"]
    held = lp.GlobalArg(stored, np.int64 if stored == "at" else np.float32, shape=(N,))
    domain = f"{{ [i]: 0 <= i < {N} }}"
    unit = lp.make_kernel(domain, instruction, [*arrays, held], lang_version=(2018, 2))
    return lp.split_iname(unit, "i", 16, outer_tag="g.0", inner_tag="l.0")


def _data(chance: random.Random, dtype: Any) -> Any:
    """Return values inside the array, near its ends, or of the whole type."""
    limits = np.iinfo(dtype)
    low, high = chance.choice(((0, N - 1), (0, N), (-1, N - 1), (0, 7), (limits.min, limits.max)))
    low, high = max(low, int(limits.min)), min(high, int(limits.max))
    return np.array([chance.randint(low, high) for _ in range(N)], dtype)


def main() -> int:
    """Draw the kernels and print what disagrees."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kernels", type=int)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    chance = random.Random(options.seed)
    context = cl.Context([find_device("pocl:0").handle])
    outside = missed = refused = skipped = 0
    for _ in range(options.kernels):
        text = _expression(chance, chance.randint(1, 3))
        inputs = {name: _data(chance, chance.choice(_TYPES)) for name in "ab"}
        try:
            with cl.CommandQueue(context) as queue:  # the device computes the subscripts
                at = _kernel(f"at[i] = {text}", inputs)(queue, **inputs, out_host=True)[1][0]
        except (TypeError, NotImplementedError, lp.LoopyError, cl.Error):  # for the expression
            skipped += 1
            continue
        is_outside = bool(((at < 0) | (at >= N)).any())
        outside += is_outside
        given = {**inputs, "x": np.ones(N, np.float32)}
        kernel = describe_kernel(_kernel(f"z[i] = x[{text}]", inputs))
        try:
            check_accesses(kernel, resolve_arguments(kernel, {}, given), given)
            said = ""
        except CountperfError as error:
            said = " ".join(str(error).split())
        if bool(said) != is_outside:
            missed += is_outside
            refused += not is_outside
            types = [str(inputs[name].dtype) for name in "ab"]
            print("launched outside:" if is_outside else "refused inside:", text, *types, said)
    print(
        f"{options.kernels} kernels (seed {options.seed}), {skipped} of them none for Loopy:"
        f" {outside} leave their array, {missed} of these"
        f" would be launched; {refused} are refused inside"
    )
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
