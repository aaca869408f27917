"""Each memory access of a kernel in its place: address, strides, executions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import loopy as lp
from loopy.kernel.data import IlpBaseTag, UnrollTag

from countperf.counting.accesses import Address, Layout, address_of, layout_of
from countperf.counting.automatic import offset_of
from countperf.counting.domains import Domains
from countperf.counting.grid import Grid
from countperf.counting.keys import Case, MemoryAccess, Operation
from countperf.counting.operations import InstructionCounter
from countperf.counting.places import Place
from countperf.counting.regions import RegionOutline
from countperf.counting.schedule import DeviceProgram
from countperf.counting.sizes import SizeParameters
from countperf.counting.strides import AxisKind, AxisStride, strides_of
from countperf.display import ShortRepr
from countperf.symbolic.affine import ALWAYS, NotAffineError, ToQuasiPolynomial
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import Number, QuasiPolynomial

PROBABILITY = "the probability of a condition"
"""How a probability that the caller states is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessAnalysis(ShortRepr):
    """A memory access of one instruction."""

    # device program, and region among those of the program
    program: int
    region: int
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

    def stride(self, kind: str, which: int | str) -> AxisStride:
        """Return the stride along ``("local", 0)``, ``("group", 1)`` or ``("loop", "k")``."""
        for found in self.strides:
            if found.kind == kind and which == (found.iname if found.axis is None else found.axis):
                return found
        raise KeyError(f"{self.label}: no {kind} {which}")


class AccessAnalyzer:
    """State that the analyses of all instructions of a kernel have in common."""

    def __init__(self, kernel: Any, domains: Domains, tallies: InstructionCounter) -> None:
        self.kernel = kernel
        self.domains = domains
        self.tallies = tallies
        self.sizes = SizeParameters.of(kernel, domains.sizes, domains.defaults)
        self.layouts: dict[tuple[str, int], Layout] = {}
        self.memo: dict[Any, Any] = {}
        self.copied = _copied_inames(kernel)
        self.changing = _private_scalars(kernel)
        self.to_opaque = ToQuasiPolynomial(
            lambda name: name in domains.inames or name in domains.sizes or name in self.changing
        )

    def accesses(
        self, program: DeviceProgram, outline: RegionOutline, grid: Grid
    ) -> list[AccessAnalysis]:
        """Analyze the accesses of one region."""
        result: list[AccessAnalysis] = []
        for instruction_id in outline.instruction_ids:
            instruction = self.kernel.id_to_insn[instruction_id]
            if isinstance(instruction, lp.BarrierInstruction | lp.NoOpInstruction):
                continue
            predicates, probability = self.domains.predicate_conditions(instruction)
            tested = self.tallies.tally_predicates(instruction) if instruction.predicates else {}
            kinds = self.kinds(program, outline, instruction_id)
            for tally, share in (
                (tested, Fraction(1)),
                (self.tallies.tally(instruction), probability),
            ):
                for (key, cases), number in tally.items():
                    if isinstance(key, Operation):
                        continue
                    conditions = predicates + tuple(
                        case  # the source's view has no first iterations
                        for case in cases
                        if isinstance(case, Case) and case.alternatives != ALWAYS
                    )
                    place = self.place(outline, instruction, conditions, grid, kinds)
                    result.append(
                        self.access(outline, instruction, key, place, kinds, number, share)
                    )
        return [found for found in result if found.executions]

    def place(
        self,
        outline: RegionOutline,
        instruction: Any,
        conditions: tuple[Case, ...],
        grid: Grid,
        kinds: Mapping[str, AxisKind],
    ) -> Place:
        """Return where an instruction, or a part of it, is executed."""
        return Place(
            domains=self.domains,
            within=self.tallies.loops_around(instruction),
            cases=conditions,
            grid=grid,
            loops=(*outline.around, *outline.loops[instruction.id]),
            own_loops=frozenset(name for name, kind in kinds.items() if kind == "loop"),
            memo=self.memo,
        )

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
        self,
        outline: RegionOutline,
        instruction: Any,
        access: MemoryAccess,
        place: Place,
        kinds: dict[str, AxisKind],
        number: Any,
        share: Number,
    ) -> AccessAnalysis:
        """Analyze one access."""
        domains = self.domains
        address = address_of(
            access, self.layout(access.array, access.component_of), domains.to_address
        )
        counted, _ = domains.trip_statistics(place.within)
        estimates = [f"the mean trip count of '{n}'" for n in sorted(place.within - counted)]
        if share != 1 or isinstance(number, Fraction):
            estimates.append(PROBABILITY)
        offset = None if address is None else self.offset(access.array)
        return AccessAnalysis(
            program=outline.program,
            region=outline.index,
            instruction=instruction.id,
            access=access,
            repeats=int(number) or 1,
            executions=domains.executions(place.within, place.cases, place.grid).scale(
                number * share
            ),
            address=None if address is None or offset is None else address.flat + offset,
            index=address,
            strides=strides_of(
                place,
                address
                or address_of(
                    access, self.layout(access.array, access.component_of), self.to_opaque
                ),
                kinds,
                self.changing,
            ),
            is_estimate=" and ".join(estimates),
            place=place,
            sizes=self.sizes,
        )

    def variable(self, array: str) -> Any:
        """Return the argument or temporary of a name."""
        found = self.kernel.arg_dict.get(array)
        return self.kernel.temporary_variables[array] if found is None else found

    def layout(self, array: str, component_of: int = 0) -> Layout:
        """Return the layout of an array, or of the components of its vectors."""
        key = array, component_of
        if key not in self.layouts:
            self.layouts[key] = layout_of(
                self.kernel, self.variable(array), self.domains.to_polynomial, component_of
            )
        return self.layouts[key]

    def offset(self, array: str) -> QuasiPolynomial | None:
        """Return where an array begins in its memory, elements; None if that is not known."""
        try:
            return self.domains.to_polynomial(offset_of(self.variable(array)))
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
