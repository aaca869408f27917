r"""Work, span and transactions of a kernel as polynomials in its sizes, and what follows from them.

Ma, Chamberlain & Agrawal (2014) bound the steps of an algorithm by :math:`\max(T_1/P, T_\infty,
M L/(\mathcal{T} P))`, Eq. (1), with formulas in the problem size such as their Eq. (10). Here they
come from a kernel's counts:

1. Free sizes are multiples of what kernel and device cut them into: tiles, groups, lines.
2. No formula has higher powers than the symbolic counts of operations, accesses and groups.
3. Counts at as many points as there are coefficients give these exactly (Newton's forward
   differences). A further point confirms them, and conditions on sizes hold alike for all larger
   sizes; or there is no formula.

Left out: the factor of the last wave, Eq. (3), which falls towards 1; groups fill the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain, pairwise, product
from math import comb, lcm, prod
from typing import TypeVar

from countperf.counting.programs import KernelProgram
from countperf.devices.parameters import DeviceParameters
from countperf.errors import ModelNotApplicableError, ParameterError
from countperf.mechanistic.from_kernel import (
    MAX_INSTRUCTIONS,
    KernelProfiler,
    memory_shape,
    missing_registers,
)
from countperf.mechanistic.occupancy import program_occupancy
from countperf.mechanistic.profile import ProfiledKernel
from countperf.mechanistic.tmm import StepBound, Term
from countperf.symbolic.isl_counts import guards_of
from countperf.symbolic.kernel_sets import assumptions_of
from countperf.symbolic.piecewise import Piece, PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import ONE, ZERO, QuasiPolynomial
from countperf.text import Printed, Result, ShortRepr, columns_of, picked, point_text, wrap_note

_FIRST, _LAST_FIRST = 2, 64
"""Multiples of which one is the first with formulas: loops have several iterations there."""
_DENSE, _RATIO, _LARGEST = 256, 1.02, 2**40
"""Sizes that are compared: so many multiples, then growing by a ratio up to the largest."""

_Powers = tuple[int, ...]
_Label = TypeVar("_Label", bound=str)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramSteps(ShortRepr):
    """Formulas of one device program, all its launches together."""

    name: str
    work: QuasiPolynomial  # T_1, operations
    span: QuasiPolynomial | None  # T_inf, instructions; None if it is not known
    transactions: QuasiPolynomial  # M
    groups: QuasiPolynomial  # B_r
    work_items_per_core: float  # script T, where groups fill the device
    filling_groups: int  # groups that fill it


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepFormulas(Result):
    """Formulas of a kernel's steps, in the sizes that are free."""

    kernel: str
    device: str
    described: DeviceParameters
    held: Mapping[str, int]  # sizes that have a value
    multiples: Mapping[str, int]  # by free size, what it is a multiple of
    first: int  # multiple from which on the formulas hold
    programs: tuple[ProgramSteps, ...]

    __repr__ = Result.__str__

    @property
    def num_cores(self) -> int:
        """Cores of all compute units, P."""
        units = self.described.require_int("num_compute_units", model="tmm")
        return units * self.described.require_int("cores_per_compute_unit", model="tmm")

    def terms(self, program: ProgramSteps) -> dict[Term, QuasiPolynomial]:
        """Return the terms of Eq. (1) that are known, in steps: T_1/P, T_inf, M L/(T P)."""
        terms: dict[Term, QuasiPolynomial] = {"work": program.work / self.num_cores}
        if program.span is not None:
            terms["span"] = program.span
        if self.described.latency_steps is not None:
            overlapped = Fraction(program.work_items_per_core) * self.num_cores
            latency = Fraction(self.described.latency_steps)
            terms["memory"] = program.transactions * (latency / overlapped)
        return terms

    def bound(self, sizes: Mapping[str, int]) -> StepBound:
        """Return the steps at sizes, Eq. (1) of each program, and the term that gives most."""
        self.described.require("latency_steps", model="tmm")
        largest: list[tuple[Fraction, Term]] = [
            max((Fraction(term.evaluate(sizes)), name) for name, term in self.terms(each).items())
            for each in self.programs
        ]
        _, which = max(largest)
        return StepBound(steps=float(sum(steps for steps, _ in largest)), which=which)

    def only(self) -> tuple[str, int]:
        """Return the free size and what it is a multiple of; refuse none, and several."""
        if len(self.multiples) != 1:
            message = (
                f"steps of {self.kernel} are compared over one size, but free are"
                f" {', '.join(self.multiples) or 'none'}; give values of all sizes but one"
            )
            raise ParameterError(message, parameter="parameters")
        return next(iter(self.multiples.items()))

    def bounds(self) -> list[tuple[int, Term]]:
        """Return the term that gives the steps, from which size on."""
        name, step = self.only()
        return _changes(lambda n: self.bound({name: n}).which, step, self.first * step)

    def filled_from(self) -> int | None:
        """Return from which size on groups fill the device; None if they never do."""
        name, step = self.only()

        def filled(n: int) -> str:
            few = [p for p in self.programs if p.groups.evaluate({name: n}) < p.filling_groups]
            return "" if few else "filled"

        size, is_filled = _changes(filled, step, self.first * step)[-1]
        return size if is_filled else None

    def crossovers(self, other: StepFormulas) -> list[tuple[int, str]]:
        """Return which of two kernels takes fewer steps, from which size on; "" for both alike.

        Beyond the first 256 multiples, changes within 2 % of each other may be missed.
        """
        (mine, step), (theirs, another) = self.only(), other.only()

        def fewer(n: int) -> str:
            left, right = self.bound({mine: n}).steps, other.bound({theirs: n}).steps
            return "" if left == right else self.kernel if left < right else other.kernel

        first = max(self.first * step, other.first * another)
        return _changes(fewer, lcm(step, another), first)

    def lay_out(self, other: StepFormulas | None = None) -> Printed:
        """Give formulas, what they grow as, what bounds steps, and which kernel takes fewer."""
        if other is not None:
            shown, changes = [self.lay_out(), other.lay_out()], self.crossovers(other)
            return Printed(
                parts=shown,
                notes=[f"fewer steps: {_from(self, changes)}"],
                facts={
                    "kernels": [part.object() for part in shown],
                    "fewer_steps": [{"from": size, "kernel": name} for size, name in changes],
                },
            )
        rows = [
            {
                "program": program.name,
                "quantity": name,
                "formula": str(formula),
                "grows_as": _decimal(growth(formula)),
            }
            for program in self.programs
            for name, formula in (
                *(("T_1, operations", program.work), ("T_inf, instructions", program.span)),
                *(("M, transactions", program.transactions), ("B_r, groups", program.groups)),
                *((f"steps: {name}", term) for name, term in self.terms(program).items()),
            )
            if formula is not None
        ]
        sizes = [
            f"{name} = {self.first * by}, {(self.first + 1) * by}, ..."
            for name, by in self.multiples.items()
        ]
        per_core = ", ".join(f"{program.work_items_per_core:g}" for program in self.programs)
        latency = self.described.latency_steps
        known = "unknown" if latency is None else f"{latency:g}"
        bounds = self.bounds() if latency is not None and len(self.multiples) == 1 else []
        filled = self.filled_from() if len(self.multiples) == 1 else None
        return Printed(
            head=[
                ", ".join(
                    [
                        f"{self.kernel} on {self.device}",
                        *sizes,
                        *filter(None, [point_text(self.held)]),
                    ]
                )
            ],
            rows=rows,
            columns=columns_of(
                f"{'program ' if self.programs[1:] else ''}quantity formula grows_as"
            ),
            notes=[
                wrap_note(
                    f"steps: the largest of T_1/P, T_inf and M L/(T P); P = {self.num_cores} cores,"
                    f" T = {per_core} work items per core, L = {known}"
                ),
                *([wrap_note(_filling(self, filled))] if len(self.multiples) == 1 else []),
                *([f"- bound by {_from(self, bounds)}"] if bounds else []),
            ],
            facts={
                **picked(self, "kernel", "device", "held", "multiples", "first", "num_cores"),
                "filled_from": filled,
                "bounds": [{"from": size, "bound": term} for size, term in bounds],
            },
            name="formulas",
        )


def _changes(label: Callable[[int], _Label], step: int, first: int) -> list[tuple[int, _Label]]:
    """Return where a label changes over multiples of a step, with what it becomes."""
    sizes = [-(-first // step) * step + step * number for number in range(_DENSE)]
    while sizes[-1] < _LARGEST:
        sizes.append(int(sizes[-1] * _RATIO) // step * step)
    found = [(sizes[0], label(sizes[0]))]
    for low, high in pairwise(sizes):
        before, after = found[-1][1], label(high)
        while after != before and high - low > step:
            middle = (low + high) // 2 // step * step
            low, high = (middle, high) if label(middle) == before else (low, middle)
        if after != before:
            found.append((high, label(high)))
    return found


def growth(formula: QuasiPolynomial) -> QuasiPolynomial:
    """Return the terms of the highest degree: what a polynomial grows as."""
    degrees = {m: sum(power for _, power in m) for m in formula.terms}
    most = max(degrees.values(), default=0)
    return QuasiPolynomial({m: c for m, c in formula.terms.items() if degrees[m] == most})


def step_formulas(
    profiler: KernelProfiler, held: Mapping[str, int], *, label: str = ""
) -> StepFormulas:
    """Return the formulas of a kernel in the sizes that are not held at a value."""
    points, device = _Points(profiler, held), profiler.device
    cores = device.require_int("cores_per_compute_unit", model="tmm")
    programs: list[ProgramSteps] = []
    units = device.require_int("num_compute_units", model="tmm")
    for number, (profiled, times) in enumerate(points.at((0,) * len(points.names))):
        if profiler.lacks_registers(profiled.profile):
            raise missing_registers(profiled.profile.name, device)
        resident = program_occupancy(profiled, device).residency.active_groups
        resident = profiled.launch.active_groups or resident
        counts = {name: points.formula(number, name) for name in ("work", "transactions", "groups")}
        programs.append(
            ProgramSteps(
                name=profiled.profile.name,
                span=points.span(number),
                work_items_per_core=resident * profiled.launch.work_items_per_group / cores,
                filling_groups=resident * units * times,
                **counts,
            )
        )
    return StepFormulas(
        kernel=label or profiler.kernel,
        device=device.slug,
        described=device,
        held=dict(held),
        multiples=points.multiples,
        first=points.first,
        programs=tuple(programs),
    )


class _Points:
    """Profiles of a kernel at points of its free sizes, and polynomials through them."""

    def __init__(self, profiler: KernelProfiler, held: Mapping[str, int]) -> None:
        self.profiler, self.held = profiler, held
        domains = profiler.programs[0].domains
        self.names = tuple(sorted(domains.sizes - held.keys() - domains.defaults.keys()))
        bound = {name: QuasiPolynomial.constant(value) for name, value in held.items()}
        bound |= {k: v.substitute(bound) for k, v in domains.defaults.items() if k not in held}
        # by program: terms of the counts of groups, and of all that is executed
        terms = [[c.substitute(bound).terms for c in _counts(each)] for each in profiler.programs]
        self.powers = [_powers(chain.from_iterable(some), self.names) for some in terms]
        self.group_powers = [_powers(groups, self.names)[-1] for groups, *_ in terms]
        every = [term for some in terms for of in some for term in of]
        assumed = guards_of(assumptions_of(profiler.programs[0].kernel))
        equal = {guard for term in every for guard in term.zero}
        guards = {guard for term in every for guard in term.nonnegative}
        guards |= equal | {-guard for guard in equal}
        if len(assumed) == 1:  # no alternatives
            guards |= {guard.substitute(bound) for guard in assumed[0][0]}
        parts = chain(
            (term.value for term in every), guards, *(side for a in assumed for side in a)
        )
        cuts = [*_cuts(profiler, parts)]
        self.multiples = {n: lcm(*(by for cut, by in cuts if n in cut.names())) for n in self.names}
        self.first = _FIRST
        while differ := [guard for guard in guards if self._changes(guard)]:
            self.first += 1
            if self.first > _LAST_FIRST:
                raise self._refusal(f"counts are no polynomials: they change at {differ[0]} = 0")
        self._launches: dict[tuple[_Powers, int], Sequence[tuple[ProfiledKernel, int]]] = {}

    def _changes(self, guard: QuasiPolynomial) -> bool:
        """Return whether a condition is another one where some size is far larger."""
        points = product((0, _LARGEST), repeat=len(self.names))
        return len({guard.evaluate(self._sizes(p)) >= 0 for p in points}) > 1

    def at(self, point: _Powers, longest: int = 1) -> Sequence[tuple[ProfiledKernel, int]]:
        """Return launches so many multiples beyond the first, with graphs up to a length."""
        if (point, longest) not in self._launches:
            sampled, sizes = replace(self.profiler, max_instructions=longest), self._sizes(point)
            self._launches[point, longest] = sampled.launches_at({**self.held, **sizes})
        return self._launches[point, longest]

    def _sizes(self, point: _Powers) -> dict[str, int]:
        steps = zip(self.names, point, strict=True)
        return {name: self.multiples[name] * (self.first + step) for name, step in steps}

    def _refusal(self, why: str) -> ModelNotApplicableError:
        names = ", ".join(self.names)
        message = (
            f"kernel '{self.profiler.kernel}', sizes {names}: {why}; give values of more sizes"
        )
        return ModelNotApplicableError(message, parameter="parameters")

    def formula(self, number: int, field: str) -> QuasiPolynomial:
        """Return a count of a program as a polynomial; refuse what is none."""
        found = self._through(number, field, self.powers[number])
        if found is None:
            raise self._refusal(f"{field} is no polynomial")
        return found

    def span(self, number: int) -> QuasiPolynomial | None:
        """Return the span; None if a sub-group has too many instructions, or it is no polynomial.

        A sub-group executes what all of them do over their number, which its powers follow.
        """
        groups = self.group_powers[number]
        fewer = {
            tuple(max(0, p - g) for p, g in zip(powers, groups, strict=True))
            for powers in self.powers[number]
        }
        (profiled, _) = self.at(self._last(fewer), MAX_INSTRUCTIONS)[number]
        if len(profiled.profile.require("idg", model="tmm").nodes) >= MAX_INSTRUCTIONS:
            return None
        return self._through(number, "span", sorted(fewer))

    def _value(self, point: _Powers, number: int, field: str) -> Fraction:
        """Return a count of all launches of a program at a point."""
        profiled, times = self.at(point, MAX_INSTRUCTIONS if field == "span" else 1)[number]
        groups = profiled.launch.num_groups if field == "groups" else None
        of_launch = groups or profiled.profile.require(field, model="tmm")
        return Fraction(of_launch * times).limit_denominator(10**6)

    def _last(self, powers: Iterable[_Powers]) -> _Powers:
        """Return a point beyond all those that give coefficients, another one for each size."""
        return tuple(max(p) + 1 + i for i, p in enumerate(zip(*powers, strict=True)))

    def _through(
        self, number: int, field: str, powers: Sequence[_Powers]
    ) -> QuasiPolynomial | None:
        """Return the polynomial of some powers through counts, if a further one confirms it."""
        result = ZERO
        for power in powers:
            difference, basis = Fraction(0), ONE
            for point in product(*(range(p + 1) for p in power)):
                sign = (-1) ** (sum(power) - sum(point))
                value = self._value(point, number, field)
                difference += sign * prod(map(comb, power, point)) * value
            for name, p in zip(self.names, power, strict=True):
                steps = QuasiPolynomial.name(name) / self.multiples[name] - self.first
                for step in range(p):  # the binomial coefficient of steps and p
                    basis = basis * (steps - step) / (step + 1)
            result = result + basis * difference
        last = self._last(powers)
        is_right = result.evaluate(self._sizes(last)) == self._value(last, number, field)
        return result if is_right else None


def _counts(program: KernelProgram) -> Iterator[PiecewiseQuasiPolynomial]:
    """Yield the counts of groups, and of whatever work items execute."""
    yield program.launches * program.grid.work_groups
    for statement in program.statements:
        for node in statement.nodes:
            yield program.domains.executions(statement.within, node.cases, program.grid)


def _cuts(
    profiler: KernelProfiler, counts: Iterable[QuasiPolynomial]
) -> Iterator[tuple[QuasiPolynomial, int]]:
    """Yield what is cut into parts, and how large they are."""
    for count in counts:
        yield from ((floor.numerator, floor.denominator) for floor in count.floors())
    line_bits = 8 * memory_shape(profiler.device).line_bytes
    for program in profiler.programs:
        for access in program.accesses:
            if access.access.address_space == "global" and access.address is not None:
                yield access.address, max(1, line_bits // access.access.bits)
        for axis, extent in program.grid.groups.items():
            yield from ((t.value, program.grid.items.get(axis, 1)) for t in extent.terms)


def _powers(terms: Iterable[Piece], names: Sequence[str]) -> list[_Powers]:
    """Return the powers of sizes in terms, and all that divide them, floors smoothed."""
    found: set[_Powers] = {(0,) * len(names)}
    for term in terms:
        smooth = term.value
        while smooth.floors():
            smooth = smooth.map_atoms(
                lambda atom: None if isinstance(atom, str) else atom.numerator / atom.denominator
            )
        for monomial in smooth.terms:
            powers = dict(monomial)
            found |= set(product(*(range(powers.get(name, 0) + 1) for name in names)))
    return sorted(found)


def _filling(of: StepFormulas, size: int | None) -> str:
    name, _ = of.only()
    if size is None:
        return "groups never fill the device, as T assumes: steps of memory are more"
    return f"groups fill the device from {name} = {size} on; below, steps of memory are more"


def _from(of: StepFormulas, changes: Sequence[tuple[int, str]]) -> str:
    name, _ = of.only()
    return ", ".join(f"{what or 'both alike'} from {name} = {size} on" for size, what in changes)


def _decimal(formula: QuasiPolynomial) -> str:
    """Write a polynomial with decimal coefficients, ``0.004167 n^3``."""
    terms = [(f"{float(c):.4g}", QuasiPolynomial({m: 1})) for m, c in formula.terms.items()]
    return " + ".join(c if name.is_constant else f"{c} {name}" for c, name in terms).replace(
        "*", " "
    )
