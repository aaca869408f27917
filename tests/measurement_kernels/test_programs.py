"""Programs against NumPy, and draws that never change."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from functools import partial

import numpy as np

from countperf import count_kernel
from measurement_kernels.arguments import ArrayArgument, Extent, SizeParameter
from measurement_kernels.catalog import entries
from measurement_kernels.programs import Formula, Program, Recurrence

_INDIRECT = ("random-gather", "random-scatter")


def test_draws_never_change() -> None:
    drawn: defaultdict[str, list[str]] = defaultdict(list)
    for each in entries(collection="random", element_type=None):
        assert isinstance(each.builder, partial)
        kind = "random" if each.family not in _INDIRECT else "indirect"
        kind = "blocked" if each.family.startswith("blocked-") else kind
        kind = "even" if each.family.endswith("-even-sizes") else kind
        text = f"{each.name} {each.exponents} {each.exponent_steps} {each.builder.args}"
        text = text.replace(", values=None", "")  # a field that is newer than the draws
        text = text.replace("<function near ", "<function _near ")  # as it was called then
        drawn[kind].append(re.sub(r"(<function \w+) at \w+>", r"\1>", text))
    digests = {
        kind: hashlib.sha256("\n".join(some).encode()).hexdigest()[:16]
        for kind, some in drawn.items()
    }
    assert digests == {
        "random": "0c0f2f3221b05565",
        "indirect": "dd718cf19b3b20a8",
        "blocked": "d677804eeaa74f83",
        "even": "60bc550d00d35322",
    }


def _program(*formulas: Formula | Recurrence, target: tuple[Extent | int, ...]) -> Program:
    return Program(
        name="program",
        loops=(("i", "n"), ("k", 3)),
        formulas=formulas,
        sizes=(SizeParameter(name="n"),),
        arguments=(
            ArrayArgument(name="a", shape=(Extent("n"), 3)),
            ArrayArgument(name="r", shape=target, role="output"),
        ),
    )


def test_a_recurrence_stores_its_parts_first_and_chooses_for_each_element() -> None:
    recurrence = Recurrence(
        target="r[i]",
        states=(("0.0", "s0 + (w if i != k else 0.0)"),),
        loop="k",
        result="s0",
        parts=(("d", "a[i, k] - i"), ("w", "d * d")),
    )
    program = _program(recurrence, target=(Extent("n"),))
    a = np.array([[1.0, 2.0, 8.0], [5.0, 4.0, 3.0]])
    got = program.expected({"a": a}, {"n": 2})
    np.testing.assert_array_equal(got["r"], [4.0 + 64, 16.0 + 4])
    reads = count_kernel(program.unit())["gmem.load.32.uniform"].quantity.evaluate({"n": 8})
    assert reads == 8 * 3  # stored, hence not read again where it is squared
