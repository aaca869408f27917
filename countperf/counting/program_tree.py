"""The schedule of a device program as a tree of loops, statements and barriers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import loopy as lp
from loopy.schedule import (
    Barrier,
    CallKernel,
    EnterLoop,
    LeaveLoop,
    ReturnFromKernel,
    RunInstruction,
)

from countperf.counting.statements import Statement, StatementReader
from countperf.display import ShortRepr
from countperf.errors import UnsupportedExpressionError


@dataclass(frozen=True, slots=True)
class BarrierItem(ShortRepr):
    """A barrier that the work items of a group wait at."""


@dataclass(frozen=True, slots=True)
class LoopItem(ShortRepr):
    """A loop of the schedule."""

    name: str  # its loop variable
    body: tuple[Item, ...]  # what it repeats, in order


Item: TypeAlias = LoopItem | Statement | BarrierItem


def statements_of(items: tuple[Item, ...]) -> Iterator[Statement]:
    """Yield the statements of items and of the loops among them."""
    for item in items:
        if isinstance(item, Statement):
            yield item
        elif isinstance(item, LoopItem):
            yield from statements_of(item.body)


def program_tree(kernel: Any, name: str, reader: StatementReader) -> tuple[Item, ...]:
    """Return what a work item of a device program executes, in order."""
    open_bodies: list[list[Item]] = []
    inside = False
    for item in kernel.linearization:
        match item:
            case CallKernel():
                inside = item.kernel_name == name
                if inside:
                    open_bodies = [[]]
            case EnterLoop() if inside:
                open_bodies.append([])
            case LeaveLoop() if inside and len(open_bodies) > 1:
                body = tuple(open_bodies.pop())
                open_bodies[-1].append(LoopItem(item.iname, body))
            case RunInstruction() if inside:
                instruction = kernel.id_to_insn[item.insn_id]
                statement = _statement(kernel, instruction, reader)
                if statement is not None:
                    open_bodies[-1].append(statement)
            case Barrier(synchronization_kind="local") if inside:
                open_bodies[-1].append(BarrierItem())
            case ReturnFromKernel() if inside:
                break
            case _:
                pass
    return tuple(open_bodies[0])


def _statement(kernel: Any, instruction: Any, reader: StatementReader) -> Statement | None:
    if isinstance(instruction, lp.BarrierInstruction | lp.NoOpInstruction):
        return None
    if not isinstance(instruction, lp.Assignment | lp.CallInstruction) or (
        isinstance(instruction, lp.Assignment) and instruction.atomicity
    ):
        raise UnsupportedExpressionError(
            f"kernel '{kernel.name}', instruction '{instruction.id}': no profile of a "
            f"{type(instruction).__name__} that is no plain assignment; write it as assignments",
            kernel=kernel.name,
            where=instruction.id,
        )
    return reader.read(instruction)
