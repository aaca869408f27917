"""The structure of a kernel that decides how a device runs it, beyond its counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from countperf.counting.access_analysis import AccessAnalysis, AccessAnalyzer
from countperf.counting.footprints import Footprint, footprints_of
from countperf.counting.preparation import PreparedKernel
from countperf.counting.resources import ArrayStorage, storage_of
from countperf.counting.selection import instruction_counter
from countperf.counting.sizes import SizeParameters, require_sizes
from countperf.counting.structure import ProgramAnalysis, analyzed_program
from countperf.counting.transactions import transactions
from countperf.display import ShortRepr
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial

__all__ = ["AccessAnalysis", "KernelAnalysis", "analyze_kernel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelAnalysis(ShortRepr):
    """Structure of a kernel, as `analyze_kernel` returns it.

    Attributes
    ----------
    kernel : str
        Name of the kernel.
    is_estimate : str
        Names for which the caller gave statistics; empty if everything is exact.
    sizes : SizeParameters
        Its size parameters and what it assumes of them.
    programs : tuple of ProgramAnalysis
        Device programs in order of launch.
    accesses : tuple of AccessAnalysis
        All accesses to global and local memory, in order of the schedule.
    footprints : tuple of Footprint
        By array and direction.
    storage : tuple of ArrayStorage
        Private and local arrays.
    """

    kernel: str
    is_estimate: str
    sizes: SizeParameters
    programs: tuple[ProgramAnalysis, ...]
    accesses: tuple[AccessAnalysis, ...]
    footprints: tuple[Footprint, ...]
    storage: tuple[ArrayStorage, ...]

    def transactions(
        self, parameters: Mapping[str, Any], *, line_bytes: int, sub_group_size: int
    ) -> dict[str, int]:
        """Return the transactions of all loads from and stores to global memory.

        Parameters
        ----------
        parameters : mapping from str to int
            Values of all size parameters.
        line_bytes, sub_group_size : int
            See `countperf.counting.transactions.transactions`.

        Returns
        -------
        dict
            ``{"load": number, "store": number}``.

        Raises
        ------
        CountingError, ParameterError
            As for `countperf.counting.transactions.transactions`, for any of the accesses.
        """
        result = {"load": 0, "store": 0}
        for access in self.accesses:
            if access.access.address_space == "global":
                found = transactions(
                    access, parameters, line_bytes=line_bytes, sub_group_size=sub_group_size
                )
                result[access.access.direction] += found.transactions
        return result

    def __str__(self) -> str:
        return (
            f"structure of {self.kernel}: {len(self.programs)} device programs, "
            f"{len(self.accesses)} accesses, {len(self.storage)} private and local arrays"
        )


def analyze_kernel(t_unit: Any, *, statistics: Mapping[str, Any] | None = None) -> KernelAnalysis:
    """Analyze the structure of a Loopy kernel.

    Parameters
    ----------
    t_unit : loopy.TranslationUnit
        With one entry point; preprocessed and scheduled here unless that is done already.
    statistics : mapping from str to number, optional
        What data decides, as for `countperf.count_kernel`.

    Returns
    -------
    KernelAnalysis
        Symbolic in the size parameters.

    Raises
    ------
    CountingError
        The kernel cannot be counted.
    """
    return analyzed(PreparedKernel(t_unit, statistics=statistics))


def analyzed(prepared: PreparedKernel) -> KernelAnalysis:
    """Analyze the structure of a prepared kernel."""
    with prepared.counting():
        analysis = _analyzed(prepared)
    require_sizes(prepared.kernel.name, prepared.domains.sizes, dict(_totals(analysis)))
    return analysis


def analyzed_accesses(prepared: PreparedKernel) -> list[AccessAnalysis]:
    """Analyze the accesses of a prepared kernel alone."""
    analyzer = _analyzer(prepared)
    return [
        access
        for launch in prepared.launches()
        for outline in launch.regions
        for access in analyzer.accesses(launch.program, outline, launch.grid)
    ]


def _analyzer(prepared: PreparedKernel) -> AccessAnalyzer:
    return AccessAnalyzer(prepared, instruction_counter(prepared.domains))


def _totals(analysis: KernelAnalysis) -> Iterator[tuple[str, PiecewiseQuasiPolynomial]]:
    """Yield the counts of an analysis in which no loop variable can stand, by name."""
    for program in analysis.programs:
        yield f"the launches of {program.name}", program.launches
        for axis, groups in enumerate(program.groups):
            yield f"the groups of {program.name} along axis {axis}", groups
        for region in program.regions:
            for each in region.instructions:
                yield f"the executions of {each.id}", each.executions
    for access in analysis.accesses:
        yield access.label, access.executions


def _analyzed(prepared: PreparedKernel) -> KernelAnalysis:
    kernel, domains = prepared.kernel, prepared.domains
    analyzer = _analyzer(prepared)
    accesses: list[AccessAnalysis] = []
    programs: list[ProgramAnalysis] = []
    for launch in prepared.launches():
        for outline in launch.regions:
            accesses += analyzer.accesses(launch.program, outline, launch.grid)
        programs.append(analyzed_program(analyzer, launch))
    return KernelAnalysis(
        kernel=kernel.name,
        is_estimate=", ".join(sorted(prepared.statistics)),
        sizes=analyzer.sizes,
        programs=tuple(programs),
        accesses=tuple(accesses),
        footprints=footprints_of(accesses, domains),
        storage=storage_of(kernel, domains),
    )
