"""The microbenchmarks' kernels, in the dialect of `countperf.harness.device`.

Compilers shall find nothing to leave out: operands come as arguments and differ between work items,
every result depends on the one before, and is stored at the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

UNROLLED = 32
"""Steps of a chain in one turn of its loop."""

CHAINS = 4
"""Independent chains of a work item where throughput is measured."""

_TYPES = {"f32": ("float", np.float32), "f64": ("double", np.float64), "s32": ("int", np.int32)}


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionTest:
    """A class of instructions, and a step of a chain of them."""

    name: str  # of the class, as in `DeviceParameters.classes`
    type: str  # type of the operands: ``f32``, ``f64``, ``s32``
    step: str  # statement that updates ``x`` by ``a`` and ``b``
    instructions: int = 1  # how many instructions of the class a step has
    values: tuple[float, float] = (1.0000001, 0.5)  # of ``a`` and ``b``
    carries: str = ""  # another class of which each step has one instruction besides

    @property
    def c_type(self) -> str:
        """Name of the type in C."""
        return _TYPES[self.type][0]

    def arguments(self) -> tuple[np.generic, np.generic]:
        """Return the operands."""
        dtype = _TYPES[self.type][1]
        return dtype(self.values[0]), dtype(self.values[1])

    @property
    def identifier(self) -> str:
        """Name of the class as part of a name in C."""
        return self.name.replace(".", "_")


_FLOATING = {
    "add": "x = x + a",
    "mul": "x = x * a",
    "fma": "x = fma(x, a, b)",
    "div": "x = a / x",
    "rsqrt": "x = rsqrt(x)",
    "exp": "x = exp(-x)",
    "sin": "x = sin(x + a)",
}


def _floating(kind: str) -> Iterator[InstructionTest]:
    for name, step in _FLOATING.items():
        yield InstructionTest(name=f"{name}.{kind}", type=kind, step=step)


INSTRUCTION_TESTS: tuple[InstructionTest, ...] = (
    *_floating("f32"),
    # an addition and an exclusive or: sums alone would be folded
    InstructionTest(
        name="add.s32", type="s32", step="x = (x ^ a) + b", instructions=2, values=(21845, 13)
    ),
    InstructionTest(name="mul.s32", type="s32", step="x = x * x", values=(5, 2)),
    InstructionTest(name="mad.s32", type="s32", step="x = x * x + a", values=(5, 2)),
    InstructionTest(name="div.s32", type="s32", step="x = a / (x | 1)", values=(2000000011, 3)),
    InstructionTest(
        name="cvt.s32.f32",
        type="s32",
        step="x = (int) (float) (x ^ a)",
        values=(21, 13),
        instructions=2,
    ),
    *_floating("f64"),
    InstructionTest(
        name="cvt.f64.f32",
        type="f64",
        step="x = (double) (float) (x * a)",
        instructions=2,
        values=(0.9999, 0.5),
        carries="mul.f64",
    ),
)
"""The classes that are measured, most wanted first."""


def chain_source(test: InstructionTest, chains: int) -> str:
    """Write a kernel ``chain<chains>_<class>(out, n, a, b)`` of n turns.

    Each turn has `UNROLLED` steps, spread over independent chains.
    """
    names = [f"x{number}" for number in range(chains)]
    steps = [_renamed(test.step, names[number % chains]) for number in range(UNROLLED)]
    return _looped(f"chain{chains}_{test.identifier}", [(test, names, "ab")], steps)


def mix_source(fast: InstructionTest, slow: InstructionTest, ratio: int) -> str:
    """Write a kernel ``mix<ratio>_<slow>(out, n, a, b, c, d)``.

    A turn has four times ``ratio`` instructions of the fast class and one of the slow one, in four
    chains each, as in the source's experiment.
    """
    fast_names, slow_names = ([f"{x}{number}" for number in range(CHAINS)] for x in "xy")
    steps: list[str] = []
    for number in range(CHAINS):
        places = range(number * ratio, (number + 1) * ratio)
        steps += [_renamed(fast.step, fast_names[position % CHAINS]) for position in places]
        steps.append(_renamed(slow.step, slow_names[number], "cd"))
    parts = [(fast, fast_names, "ab"), (slow, slow_names, "cd")]
    return _looped(f"mix{ratio}_{slow.identifier}", parts, steps)


def _renamed(step: str, name: str, operands: str = "ab") -> str:
    names = {"x": name, "a": operands[0], "b": operands[1]}
    return re.sub(r"\b[xab]\b", lambda match: names[match[0]], step)


def _looped(
    name: str, parts: Sequence[tuple[InstructionTest, list[str], str]], steps: Sequence[str]
) -> str:
    """Write a kernel that takes steps in n turns; its variables begin with their operands."""
    kind = parts[0][0].c_type
    operands = "".join(f", {test.c_type} {each}" for test, _, given in parts for each in given)
    declared = "".join(
        f"  {test.c_type} {variable} = {a} + {b} * ({test.c_type}) (LOCAL_ID + {number});\n"
        for test, variables, (a, b) in parts
        for number, variable in enumerate(variables)
    )
    total = " + ".join(
        f"({kind}) {variable}" for _, variables, _ in parts for variable in variables
    )
    body = "".join(f"    {step};\n" for step in steps)
    return (
        f"KERNEL {name}(GLOBAL {kind} *RESTRICT out, int n{operands})\n{{\n{declared}"
        f"  for (int k = 0; k < n; ++k) {{\n{body}  }}\n  out[GLOBAL_ID] = {total};\n}}\n"
    )


COMMON_SOURCE = Path(__file__).with_name("kernels.cl").read_text(encoding="utf-8")
"""Kernels of the clock, barriers, local memory and global memory."""
