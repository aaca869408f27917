"""Each memory access of a kernel in its place: address, strides, executions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import loopy as lp
from loopy.kernel.data import IlpBaseTag, UnrollTag

from countperf.counting.accesses import Address, address_of
from countperf.counting.automatic import offset_of
from countperf.counting.device_programs import DeviceProgram, RegionOutline
from countperf.counting.instructions import (
    Instruction,
    Part,
    Tallied,
    computing,
    supplied_operations,
    tally,
)
from countperf.counting.keys import Case, Grid, MemoryAccess
from countperf.counting.operations import InstructionCounter
from countperf.counting.places import Place
from countperf.counting.preparation import PreparedKernel
from countperf.counting.sizes import SizeParameters
from countperf.counting.strides import AxisKind, AxisStride, strides_of
from countperf.display import ShortRepr
from countperf.symbolic.affine import NotAffineError, ToQuasiPolynomial
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import QuasiPolynomial

PROBABILITY = "the probability of a condition"
"""How a probability that the caller states is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessAnalysis(ShortRepr):
    """A memory access of one instruction."""

    program: int  # device program
    instruction: str  # id of the instruction
    access: MemoryAccess  # array, address space, direction, bits of an element, subscript
    repeats: int  # how often the access stands in the instruction
    executions: PiecewiseQuasiPolynomial  # executions by all work items, repeats included
    # offset from the start of the memory that the array lies in, elements; in loop variables and
    # parameters
    address: QuasiPolynomial | None
    index: Address | None  # the same by subscript, without an offset of the array
    # along local axes, group axes, loops from the outermost to the innermost, and copies
    strides: tuple[AxisStride, ...]
    is_estimate: str  # which of the caller's statistics enter; empty if everything is exact
    place: Place = field(repr=False, compare=False)  # where it is executed
    sizes: SizeParameters = field(repr=False, compare=False)  # of the kernel

    @property
    def label(self) -> str:
        """The access in words, for messages."""
        return f"kernel '{self.sizes.kernel}', instruction '{self.instruction}', {self.text}"

    @property
    def text(self) -> str:
        """The access as ``load a[i, k]``."""
        index = ", ".join(map(str, self.access.index))
        subscript = f"[{index}]" if self.access.index else ""
        return f"{self.access.direction} {self.access.array}{subscript}"

    def checked(self, parameters: Mapping[str, Any]) -> dict[str, int]:
        """Return the size parameters as integers, checked; see `SizeParameters.checked`."""
        return self.sizes.checked(parameters)


class AccessAnalyzer:
    """State that the analyses of all instructions of a kernel have in common."""

    def __init__(self, prepared: PreparedKernel, tallies: InstructionCounter) -> None:
        self.kernel = kernel = prepared.kernel
        self.domains = domains = prepared.domains
        self.supplied = prepared.supplied
        self.tallies = tallies
        self.sizes = SizeParameters.of(kernel, domains.sizes, domains.defaults)
        self.memo: dict[Any, Any] = {}
        self._read: dict[str, Instruction] = {}
        self.copied = _copied_inames(kernel)
        self.changing = _private_scalars(kernel)
        self.to_opaque = ToQuasiPolynomial(
            lambda name: name in domains.inames or name in domains.sizes or name in self.changing
        )

    def read(
        self,
        program: DeviceProgram,
        outline: RegionOutline,
        instruction_id: str,
        grid: Grid,
        *,
        can_supply: bool = True,
    ) -> Instruction:
        """Return an instruction in its place, tallied when it is asked for first."""
        read = self._read.get(instruction_id)
        if read is not None:
            return read
        instruction = self.kernel.id_to_insn[instruction_id]
        supplied: Mapping[str, Fraction] = {}
        if instruction_id in self.supplied:
            predicates, probability = self.domains.predicate_conditions(instruction)
            supplied = self.supplied.of(instruction_id)
            operations = supplied_operations(supplied).items()
            parts = tuple(Part(key, predicates, number, probability) for key, number in operations)
            tallied = Tallied(predicates=predicates, probability=probability, parts=parts)
        else:
            tallied = tally(self.domains, self.tallies, instruction, can_supply=can_supply)
        kinds = self.kinds(program, outline, instruction_id)
        place = Place(
            domains=self.domains,
            within=self.tallies.loops_around(instruction),
            cases=tallied.predicates,
            grid=grid,
            loops=(*outline.around, *outline.loops[instruction_id]),
            own_loops=frozenset(name for name, kind in kinds.items() if kind == "loop"),
            memo=self.memo,
        )
        self._read[instruction_id] = read = Instruction(
            loopy=instruction, tallied=tallied, kinds=kinds, place=place, supplied=supplied
        )
        return read

    def accesses(
        self, program: DeviceProgram, outline: RegionOutline, grid: Grid
    ) -> Iterator[AccessAnalysis]:
        """Analyze the accesses of one region."""
        for instruction_id in computing(self.kernel, outline.instruction_ids):
            instruction = self.read(program, outline, instruction_id, grid, can_supply=False)
            for part in instruction.tallied.parts:
                if isinstance(part.key, MemoryAccess):
                    access = self.access(outline, instruction, part.key, part)
                    if access.executions:
                        yield access

    def kinds(
        self, program: DeviceProgram, outline: RegionOutline, instruction_id: str
    ) -> dict[str, AxisKind]:
        """Return the kind of each loop variable around an instruction that is no hardware axis."""
        kinds: dict[str, AxisKind] = {}
        for name in outline.around:
            kinds[name] = "launch loop" if name in program.launch_loops else "barrier loop"
        for name in outline.loops[instruction_id]:
            kinds[name] = "unrolled" if name in self.copied else "loop"
        for name in self.copied:
            kinds.setdefault(name, "unrolled")
        return kinds

    def access(
        self, outline: RegionOutline, read: Instruction, access: MemoryAccess, part: Part
    ) -> AccessAnalysis:
        """Analyze one access."""
        domains = self.domains
        # the source's view has no first iterations
        cases = tuple(case for case in part.conditions if isinstance(case, Case))
        place = replace(read.place, cases=cases)
        address = domains.address(access)
        counted, _ = domains.trip_statistics(place.within)
        estimates = [f"the mean trip count of '{n}'" for n in sorted(place.within - counted)]
        if part.share != 1 or isinstance(part.number, Fraction):
            estimates.append(PROBABILITY)
        offset = None if address is None else self.offset(access.array)
        opaque = address or address_of(access, domains.layout_of(access), self.to_opaque)
        return AccessAnalysis(
            program=outline.program,
            instruction=read.loopy.id,
            access=access,
            repeats=int(part.number) or 1,
            executions=domains.executions(place.within, place.cases, place.grid).scale(part.times),
            address=None if address is None or offset is None else address.flat + offset,
            index=address,
            strides=strides_of(place, opaque, read.kinds, self.changing),
            is_estimate=" and ".join(estimates),
            place=place,
            sizes=self.sizes,
        )

    def offset(self, array: str) -> QuasiPolynomial | None:
        """Return where an array begins in its memory, elements; None if that is not known."""
        try:
            return self.domains.to_polynomial(offset_of(self.domains.variable(array)))
        except NotAffineError:
            return None


def _copied_inames(kernel: Any) -> frozenset[str]:
    return frozenset(
        name
        for name, iname in kernel.inames.items()
        if any(isinstance(tag, IlpBaseTag | UnrollTag) for tag in iname.tags)
    )


def _private_scalars(kernel: Any) -> dict[str, frozenset[str]]:
    """Return the loops in which each private scalar is written."""
    result: dict[str, frozenset[str]] = {}
    for name, variable in kernel.temporary_variables.items():
        if variable.address_space == lp.AddressSpace.PRIVATE and not variable.shape:
            writers = kernel.writer_map().get(name, ())
            result[name] = frozenset[str]().union(
                *(kernel.id_to_insn[writer].within_inames for writer in writers)
            )
    return result
