r"""Work, span and transactions of a kernel as polynomials in a size, and what follows from them.

Ma, Chamberlain & Agrawal (2014) bound the steps of an algorithm by :math:`\max(T_1/P, T_\infty,
M L/(\mathcal{T} P))`, Eq. (1), with formulas in the problem size such as their Eq. (10). Here they
come from a kernel's counts, in the one size that has no value. Counts at multiples of what kernel
and device cut it into (tiles, groups, lines) give polynomials exactly (Newton's forward
differences); two further multiples confirm them, and conditions on the size hold alike for all
larger ones, or there is no formula.

Left out: the factor of the last wave, Eq. (3), which falls towards 1; groups fill the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import chain, pairwise
from math import lcm

from countperf.counting.programs import KernelProgram
from countperf.devices.parameters import DeviceParameters
from countperf.errors import ModelNotApplicableError, ParameterError
from countperf.mechanistic import from_kernel as profiling
from countperf.mechanistic.occupancy import resident_groups_of
from countperf.mechanistic.profile import ProfiledKernel
from countperf.mechanistic.tmm import StepBound, Term, with_latency_steps
from countperf.symbolic.isl_sets import guards_of
from countperf.symbolic.kernel_sets import assumptions_of
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import ONE, ZERO, QuasiPolynomial
from countperf.text import Printed, Result, ShortRepr, columns_of, extract, point_text, wrap_note

_FIRST, _LAST_FIRST = 2, 64
"""Multiples of which one is the first with formulas: loops have several iterations there."""
_MAX_POWER = 6
_DENSE, _RATIO, _LARGEST = 256, 1.02, 2**40
"""Sizes that are compared: so many multiples, then growing by a ratio up to the largest."""


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
    """Formulas of a kernel's steps in the size that is free."""

    kernel: str
    device: str
    described: DeviceParameters
    held: Mapping[str, int]  # sizes that have a value
    size: str  # name of the free one
    multiple: int  # what it is a multiple of
    first: int  # the least for which the formulas hold
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

    def bound(self, n: int) -> StepBound:
        """Return the steps at a size, Eq. (1) of each program, and the term that gives most."""
        self.described.require("latency_steps", model="tmm")
        terms = (self.terms(program).items() for program in self.programs)
        largest: list[tuple[Fraction, Term]] = [
            max((Fraction(t.evaluate({self.size: n})), name) for name, t in of) for of in terms
        ]
        return StepBound(steps=float(sum(steps for steps, _ in largest)), which=max(largest)[1])

    def bounds(self) -> list[tuple[int, str]]:
        """Return the term that gives the steps, from which size on."""
        sizes = spread_sizes(self.multiple, self.first)
        return find_changes(lambda n: self.bound(n).which, sizes, self.multiple)

    def crossovers(self, other: StepFormulas) -> list[tuple[int, str]]:
        """Return which of two kernels takes fewer steps, from which size on; "" for both alike."""

        def fewer(n: int) -> str:
            mine, theirs = self.bound(n).steps, other.bound(n).steps
            return "" if mine == theirs else self.kernel if mine < theirs else other.kernel

        step = lcm(self.multiple, other.multiple)
        return find_changes(fewer, spread_sizes(step, max(self.first, other.first)), step)

    def lay_out(self, other: StepFormulas | None = None) -> Printed:
        """Give formulas, what they grow as, what bounds steps, and which kernel takes fewer."""
        if other is not None:
            shown, changes = [self.lay_out(), other.lay_out()], self.crossovers(other)
            return Printed(
                parts=shown,
                notes=[f"fewer steps: {_from(self.size, changes)}"],
                facts={
                    "kernels": [part.object() for part in shown],
                    "fewer_steps": [{"from": size, "kernel": name} for size, name in changes],
                },
            )
        rows = [
            {
                "program": program.name if self.programs[1:] else None,
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
        per_core = ", ".join(f"{program.work_items_per_core:g}" for program in self.programs)
        filling = ", ".join(str(program.filling_groups) for program in self.programs)
        latency = self.described.latency_steps
        bounds = self.bounds() if latency is not None else []
        sizes = f"{self.size} = {self.first}, {self.first + self.multiple}, ..."
        named = (f"{self.kernel} on {self.device}", sizes, point_text(self.held))
        return Printed(
            head=[", ".join(filter(None, named))],
            rows=rows,
            columns=columns_of("program quantity formula grows_as"),
            notes=[
                wrap_note(
                    f"steps: the largest of T_1/P, T_inf and M L/(T P); P = {self.num_cores} cores,"
                    f" T = {per_core} work items per core, L ="
                    f" {'unknown' if latency is None else f'{latency:g}'}; with less than {filling}"
                    " groups (B_r), T is smaller and steps of memory are more"
                ),
                *([f"- bound by {_from(self.size, bounds)}"] if bounds else []),
            ],
            facts={
                **extract(self, "kernel", "device", "held", "size", "multiple", "first"),
                "num_cores": self.num_cores,
                "filling_groups": [program.filling_groups for program in self.programs],
                "bounds": [{"from": size, "bound": term} for size, term in bounds],
            },
            name="formulas",
        )


def spread_sizes(step: int, first: int) -> list[int]:
    """Return multiples of a step from the first on, dense, then ever further apart."""
    sizes = [-(-first // step) * step + step * number for number in range(_DENSE)]
    while sizes[-1] < _LARGEST:
        sizes.append(int(sizes[-1] * _RATIO) // step * step)
    return sizes


def find_changes(
    label: Callable[[int], str], sizes: Sequence[int], step: int
) -> list[tuple[int, str]]:
    """Return where a label changes, to a step; of changes between neighbors some are missed."""
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
    profiler: profiling.KernelProfiler, held: Mapping[str, int], *, label: str = ""
) -> StepFormulas:
    """Return the formulas of a kernel in the size that is not held at a value."""
    counts, device = _Counts(profiler, held), profiler.device
    cores = device.require_int("cores_per_compute_unit", model="tmm")
    units = device.require_int("num_compute_units", model="tmm")
    programs: list[ProgramSteps] = []
    for number, (profiled, times) in enumerate(counts.at(0, 1)):
        profiling.require_registers(profiled, device)
        active = profiled.launch.active_groups
        resident = active or resident_groups_of(profiled, device).active_groups
        programs.append(
            ProgramSteps(
                name=profiled.profile.name,
                work=counts.formula(number, "work"),
                span=counts.find_formula(number, "span"),
                transactions=counts.formula(number, "transactions"),
                groups=counts.formula(number, "groups"),
                work_items_per_core=resident * profiled.launch.work_items_per_group / cores,
                filling_groups=resident * units * times,
            )
        )
    return StepFormulas(
        kernel=label or profiler.kernel,
        device=device.slug,
        described=with_latency_steps(device),
        held=dict(held),
        size=counts.size,
        multiple=counts.multiple,
        first=counts.first * counts.multiple,
        programs=tuple(programs),
    )


class _Counts:
    """Counts of a kernel at multiples of what its free size is cut into."""

    def __init__(self, profiler: profiling.KernelProfiler, held: Mapping[str, int]) -> None:
        self.profiler, self.held = profiler, held
        domains = profiler.programs[0].domains
        free = sorted(domains.sizes - held.keys() - domains.defaults.keys())
        if len(free) != 1:
            message = (
                f"formulas of {profiler.kernel} are in one size, but free are"
                f" {', '.join(free) or 'none'}; give values of all sizes but one"
            )
            raise ParameterError(message, parameter="parameters")
        (self.size,) = free
        bound = {name: QuasiPolynomial.constant(value) for name, value in held.items()}
        bound |= {k: v.substitute(bound) for k, v in domains.defaults.items() if k not in held}
        counts = [count.substitute(bound) for each in profiler.programs for count in _counts(each)]
        terms = [*chain.from_iterable(count.terms for count in counts)]
        assumed = guards_of(assumptions_of(profiler.programs[0].kernel))
        guards = {guard for term in terms for guard in (*term.nonnegative, *term.zero)}
        guards |= {-guard for term in terms for guard in term.zero}
        if len(assumed) == 1:  # no alternatives
            guards |= {guard.substitute(bound) for guard in assumed[0][0]}
        parts = chain((t.value for t in terms), guards, *(side for a in assumed for side in a))
        cuts = [(f.numerator, f.denominator) for part in parts for f in part.floors()]
        cuts += _find_cuts(profiler)
        self.multiple = lcm(*(by for cut, by in cuts if self.size in cut.names()))
        self.first = _FIRST
        while differ := [guard for guard in guards if self._changes(guard)]:
            self.first += 1
            if self.first > _LAST_FIRST:
                raise self._refusal(f"counts are no polynomials: they change at {differ[0]} = 0")
        self.at = cache(self._launch)

    def _changes(self, guard: QuasiPolynomial) -> bool:
        """Return whether a condition is another one where the size is far larger."""
        near, far = (guard.evaluate(self._sizes(point)) >= 0 for point in (0, _LARGEST))
        return near != far

    def _sizes(self, point: int) -> dict[str, int]:
        return {self.size: self.multiple * (self.first + point)}

    def _refusal(self, why: str) -> ModelNotApplicableError:
        message = (
            f"kernel '{self.profiler.kernel}', size {self.size}: {why}; give the size a value, and"
            " ask for the time there"
        )
        return ModelNotApplicableError(message, parameter="parameters")

    def _launch(self, point: int, longest: int) -> tuple[tuple[ProfiledKernel, int], ...]:
        """Return launches so many multiples beyond the first, with graphs up to a length."""
        sampled = replace(self.profiler, max_instructions=longest)
        return sampled.launches_at({**self.held, **self._sizes(point)})

    def formula(self, number: int, field: str) -> QuasiPolynomial:
        """Return a count of all launches of a program as a polynomial; refuse what is none."""
        if (found := self.find_formula(number, field)) is None:
            raise self._refusal(f"{field} is no polynomial")
        return found

    def find_formula(self, number: int, field: str) -> QuasiPolynomial | None:
        """Return the polynomial through counts, if two further ones confirm it."""
        longest = profiling.MAX_INSTRUCTIONS if field == "span" else 1
        steps = QuasiPolynomial.name(self.size) / self.multiple - self.first
        result, basis, is_confirmed = ZERO, ONE, False
        differences: list[Fraction] = []  # of all orders, of the last counts
        for point in range(_MAX_POWER + 3):
            profiled, times = self.at(point, longest)[number]
            graph = profiled.profile.idg
            if field == "span" and (graph is None or len(graph.nodes) >= longest):
                return None
            value = profiled.launch.num_groups
            if field != "groups":
                value = profiled.profile.require(field, model="tmm")
            latest = [Fraction(value * times).limit_denominator(10**6)]
            for before in differences:
                latest.append(latest[-1] - before)
            differences = latest
            if not latest[-1] and is_confirmed:
                return result
            is_confirmed = not latest[-1]
            result = result + basis * latest[-1]
            basis = basis * (steps - point) / (point + 1)  # the binomial coefficient
        return None


def _counts(program: KernelProgram) -> Iterator[PiecewiseQuasiPolynomial]:
    """Yield the counts of groups, and of whatever work items execute."""
    yield program.launches * program.grid.work_groups
    for statement in program.statements:
        for node in statement.nodes:
            yield program.domains.executions(statement.within, node.cases, program.grid)


def _find_cuts(profiler: profiling.KernelProfiler) -> Iterator[tuple[QuasiPolynomial, int]]:
    """Yield what lines of memory and groups cut into parts, and how large these are."""
    line_bits = 8 * profiling.memory_shape(profiler.device).line_bytes
    for program in profiler.programs:
        for access in program.accesses:
            if access.access.address_space == "global" and access.address is not None:
                yield access.address, max(1, line_bits // access.access.bits)
        for axis, extent in program.grid.groups.items():
            yield from ((t.value, program.grid.items.get(axis, 1)) for t in extent.terms)


def _from(size: str, changes: Sequence[tuple[int, str]]) -> str:
    return ", ".join(f"{what or 'both alike'} from {size} = {n} on" for n, what in changes)


def _decimal(formula: QuasiPolynomial) -> str:
    """Write a polynomial with decimal coefficients, ``0.004167 n^3``."""
    terms = [(f"{float(c):.4g}", QuasiPolynomial({m: 1})) for m, c in formula.terms.items()]
    return " + ".join(c if name.is_constant else f"{c} {name}" for c, name in terms).replace(
        "*", " "
    )
