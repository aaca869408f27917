"""Addresses of all work items, pass by pass, from the plain interpreter.

A pass of an instruction is what the items of one group do at the same time: an own loop of the
items (one without barriers that is not unrolled) is in its first, second ... iteration for all of
them; other loops have the same value.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import loopy as lp
from loopy.isl_helpers import static_min_of_pw_aff
from loopy.kernel.data import IlpBaseTag, UnrollTag
from loopy.schedule import Barrier, EnterLoop, LeaveLoop, RunInstruction

from tests.oracles.interpreter import Access, Interpreter, Point

Pass = tuple[Any, ...]
"""Group and iterations."""


@dataclass(slots=True)
class Recorded:
    """Executions, accesses and iterations of the items."""

    # each execution; address None where it is read from data. Passes through different branches
    # of conditional expressions are told apart
    addresses: dict[tuple[str, Access], dict[Pass, list[tuple[int, int | None]]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    # all passes, whether conditions hold or not
    passes: dict[str, set[Pass]] = field(default_factory=lambda: defaultdict(set))
    # points as sorted tuples of (loop variable, value)
    points: dict[tuple[str, Access], dict[Pass, int | None]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    executions: Counter[str] = field(default_factory=Counter[str])  # by all items
    items: dict[str, int] = field(default_factory=dict[str, int])  # size of a group
    # groups that differ only along axes that the instruction does not use
    groups: dict[str, int] = field(default_factory=dict[str, int])

    def is_direct(self, place: tuple[str, Access]) -> bool:
        """True if no address of an access is read from data."""
        return None not in self.points[place].values()

    def sub_groups(self, place: tuple[str, Access], size: int) -> Iterable[list[int]]:
        """Yield the addresses of the active items of each sub-group instruction.

        An access that stands several times in an instruction comes out as often.
        """
        instruction, _ = place
        for executed in self.addresses[place].values():
            repeats = Counter(executed)
            most = max(repeats.values())
            for turn in range(most):
                turns = [pair for pair, number in repeats.items() if number > turn]
                for _, part in itertools.groupby(sorted(turns), key=lambda pair: pair[0] // size):
                    addresses = [address for _, address in part if address is not None]
                    for _ in range(self.groups[instruction]):
                        yield addresses


def lines(addresses: Sequence[int], *, element_bytes: int, line_bytes: int) -> int:
    """Return how many lines have a byte of an element in them."""
    return len(_pieces(addresses, element_bytes, line_bytes))


def _pieces(addresses: Sequence[int], element_bytes: int, size: int) -> set[int]:
    return {
        byte // size
        for address in addresses
        for byte in range(address * element_bytes, (address + 1) * element_bytes)
    }


def conflict_degree(addresses: Sequence[int], *, element_bytes: int, banks: int, width: int) -> int:
    """Return the largest number of distinct words of one bank."""
    words = _pieces(addresses, element_bytes, width)
    return max(Counter(word % banks for word in words).values())


class LaneRecorder(Interpreter):
    """Interprets a kernel and records what each work item does when."""

    def __init__(self, t_unit: Any) -> None:
        super().__init__(t_unit)
        self.scheduled = t_unit.copy(callables_table=self.callables).with_kernel(self.kernel)
        self.recorded = Recorded()
        self.instruction = ""
        self.shape: Mapping[int, int] = {}
        self.grid: Mapping[int, int] = {}
        self.branches: list[tuple[str, Any]] = []
        self.firsts: dict[str, int] = {}
        self.steps: dict[tuple[tuple[str, int], ...], Pass] = {}

    def record(self, parameters: Mapping[str, int]) -> Recorded:
        """Execute the kernel at given sizes."""
        self.recorded = Recorded()
        self.run(parameters)
        return self.recorded

    def _run_instruction(
        self, instruction: Any, groups: Mapping[int, int], shape: Mapping[int, int]
    ) -> None:
        if isinstance(instruction, lp.BarrierInstruction | lp.NoOpInstruction):
            return
        self.instruction = instruction.id
        self.shape, self.grid = shape, groups
        self.recorded.items[instruction.id] = prod(shape.values())
        used = {self.group_axes.get(name) for name in instruction.within_inames}
        self.recorded.groups[instruction.id] = prod(n for k, n in groups.items() if k not in used)
        self._number_steps(instruction)
        super()._run_instruction(instruction, groups, shape)

    def _assign(self, instruction: Any) -> None:
        self.recorded.executions[instruction.id] += self.factor
        super()._assign(instruction)

    def _access(self, direction: str, array: str, index: tuple[Any, ...]) -> None:
        super()._access(direction, array, index)
        access = self._find_access(direction, array, index)
        if access is None:
            return
        place = (self.instruction, access)
        address = self._address(array, index)
        point = tuple(sorted(self.point.items()))
        self.recorded.points[place][point] = address
        executed = self.recorded.addresses[place][(*self.branches, *self.steps[point])]
        executed += [(item, address) for item in self._items()]

    def _if(self, expr: Any, context: str | None) -> Any:
        """Note the branch: what stands in both is two instructions."""
        silent, self.is_silent = self.is_silent, True
        taken = self.value(expr.condition, context).value
        self.is_silent = silent
        self.branches.append((str(expr.condition), taken))
        result = super()._if(expr, context)
        self.branches.pop()
        return result

    def _items(self) -> list[int]:
        """Return the numbers of the items that are at the current point."""
        numbers = [0]
        for axis in sorted(self.shape, reverse=True):
            names = [n for n in self.within if self.local_axes.get(n) == axis]
            own = range(self.shape[axis])
            if names:
                own = [self.point[names[0]] - self._first(names[0])]
            numbers = [number * self.shape[axis] + k for number in numbers for k in own]
        return numbers

    def _first(self, iname: str) -> int:
        """Return the value for the first item of a group, as Loopy's code generator has it."""
        if iname not in self.firsts:
            bounds = self.kernel.get_iname_bounds(iname, constants_only=True)
            low: Any = static_min_of_pw_aff(bounds.lower_bound_pw_aff, constants_only=True)
            self.firsts[iname] = low.get_constant_val().to_python()
        return self.firsts[iname]

    def _number_steps(self, instruction: Any) -> None:
        """Find the pass of each point of an instruction."""
        order, own = self._loops_around(instruction.id)
        within = instruction.within_inames
        points = self.points(within)
        self.steps = {}
        values: dict[tuple[Any, ...], set[int]] = defaultdict(set)

        def outside(point: Point, loop: str) -> tuple[Any, ...]:
            names = {*self.local_axes, *self.group_axes, *order[: order.index(loop)]}
            return (loop, *sorted((n, v) for n, v in point.items() if n in names))

        for point in points:
            for loop in own & within:
                values[outside(point, loop)].add(point[loop])
        iterations = {
            place: {value: k for k, value in enumerate(sorted(found))}
            for place, found in values.items()
        }
        for point in points:
            step = tuple(
                (n, iterations[outside(point, n)][point[n]] if n in own else point[n])
                for n in sorted(within - set(self.local_axes))
            )
            self.steps[tuple(sorted(point.items()))] = step
            self.recorded.passes[instruction.id].add(step)

    def _loops_around(self, instruction_id: str) -> tuple[list[str], set[str]]:
        """Return the loops around an instruction, and those that are the items' own."""
        open_loops: list[tuple[int, str]] = []
        around: list[tuple[int, str]] = []
        with_barrier: set[int] = set()
        for position, item in enumerate(self.kernel.linearization):
            match item:
                case EnterLoop():
                    open_loops.append((position, item.iname))
                case LeaveLoop():
                    open_loops.pop()
                case Barrier(synchronization_kind="local"):
                    with_barrier |= {number for number, _ in open_loops}
                case RunInstruction() if item.insn_id == instruction_id:
                    around = list(open_loops)
                case _:
                    pass
        own = {
            name
            for number, name in around
            if number not in with_barrier
            and not any(
                isinstance(tag, UnrollTag | IlpBaseTag) for tag in self.kernel.inames[name].tags
            )
        }
        return [name for _, name in around], own
