"""Processors in a given state, programs, and what they make of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from countperf.machine_code.integer_unit import action_of
from countperf.machine_code.interpreter import Line, MachineProgram
from countperf.machine_code.machine_state import (
    REGISTERS,
    UNKNOWN,
    Machine,
    Value,
    join_bytes,
    lanes_of,
)
from countperf.machine_code.vector_unit import vector_action

Words = Sequence[Value]
"""Integers of 32 bits in a vector, None for unknown ones."""


def run(code: str, machine: Machine | None = None, /, **registers: int) -> Machine:
    """Run a few instructions, with values of some 64-bit registers."""
    machine = machine or Machine()
    for name, value in registers.items():
        machine.registers[REGISTERS[f"%{name}"].number] = value
    for line in code.strip().splitlines():
        mnemonic, _, operands = line.strip().partition(" ")
        is_vector = mnemonic[0] == "k" or "mm" in operands
        action = (vector_action if is_vector else action_of)(mnemonic, operands.strip())
        if action is not None:
            action(machine)
    return machine


def put(machine: Machine, number: int, words: Words) -> None:
    """Write a vector register; zeros follow what is given."""
    lanes = [lanes_of(word, 4) for word in (*words, *[0] * (16 - len(words)))]
    machine.vectors[number] = np.concatenate(lanes)


def with_vectors(*vectors: Words) -> Machine:
    machine = Machine()
    for number, words in enumerate(vectors):
        put(machine, number, words)
    return machine


def words_of(machine: Machine, number: int, count: int = 4) -> tuple[Value, ...]:
    """Read a vector register."""
    return tuple(map(join_bytes, machine.vectors[number, : 4 * count].reshape(-1, 4)))


def put_mask(machine: Machine, number: int, value: int, known: int = (1 << 64) - 1) -> None:
    machine.masks[number] = [value >> k & 1 if known >> k & 1 else UNKNOWN for k in range(64)]


def mask_of(machine: Machine, number: int) -> int | None:
    """Read a mask; None if a bit is unknown."""
    bits = machine.masks[number].tolist()
    return None if UNKNOWN in bits else sum(bit << k for k, bit in enumerate(bits))


def value(machine: Machine, name: str) -> Value:
    """Read an integer register."""
    return machine.registers[REGISTERS[f"%{name}"].number]


def program(code: str) -> MachineProgram:
    """Read instructions apart by lines or semicolons, one address each; ``name:`` is a function."""
    lines: list[Line] = []
    entries: dict[str, int] = {}
    for text in code.replace(":", ":;").replace("\n", ";").split(";"):
        word = text.strip()
        if word.endswith(":"):
            entries[word[:-1]] = len(lines)
        elif word:
            mnemonic, _, operands = word.partition(" ")
            lines.append(Line(len(lines), mnemonic, operands.strip()))
    return MachineProgram(lines, entries)


def executed(code: str, most: int = 100_000, **registers: int) -> Counter[int]:
    """Follow function ``f`` with values of some registers; return how often lines are executed."""
    machine = Machine()
    for name, number in registers.items():
        machine.registers[REGISTERS[f"%{name}"].number] = number
    return program(code).follow_function("f", machine, most)
