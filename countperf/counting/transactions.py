"""Counts at sizes of properties of sub-groups, which have no formula.

``transactions.32x128.load`` are the lines of 128 bytes that sub-groups of 32 work items touch in
all loads from global memory, each line once whenever a sub-group executes an access; likewise
``store``; ``transactions.32x128`` are both. How lines are shared depends on how every access lies
in its array, so that there is no formula: the number is found at given sizes, exactly
(`countperf.counting.access_analysis`).

``subgroups.32.launched``, ``.arithmetic``, ``.load``, ``.store``, ``.local``, ``.passes`` and
``.barrier`` are what sub-groups of 32 work items execute (`countperf.counting.programs`);
``distinct.load`` and ``distinct.store`` the distinct bytes of global memory that the kernel
accesses. They are found at given sizes likewise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from countperf.counting.access_analysis import AccessAnalysis, analyze_accesses, lines_moved
from countperf.counting.analysis import Footprint, distinct_bytes, footprints_of
from countperf.counting.counts import DISTINCT, SUB_GROUPS
from countperf.counting.preparation import PreparedKernel
from countperf.counting.programs import KernelProgram, kernel_programs, sub_group_work
from countperf.counting.vector import PropertyVector
from countperf.text import FieldsAlone


@dataclass(frozen=True, kw_only=True, eq=False)
class TransactionCounts(FieldsAlone):
    """A function from sizes to the transactions of a kernel; picklable."""

    kernel: Any
    # which are counted: ``transactions.<work items of a sub-group>x<bytes of a line>``,
    # ``subgroups.<work items of a sub-group>``, ``distinct``
    roots: tuple[str, ...]
    statistics: Mapping[str, Any]  # what data decides, as for `countperf.count_kernel`

    @cached_property
    def _prepared(self) -> PreparedKernel:
        return PreparedKernel(self.kernel, statistics=self.statistics)

    @cached_property
    def _programs(self) -> tuple[KernelProgram, ...]:
        return kernel_programs(self._prepared)

    @cached_property
    def _accesses(self) -> tuple[AccessAnalysis, ...]:
        with self._prepared.counting():
            return analyze_accesses(self._prepared)

    @cached_property
    def _footprints(self) -> tuple[Footprint, ...]:
        return footprints_of(self._accesses)

    def __call__(self, parameters: Mapping[str, int]) -> dict[str, int]:
        """Count the transactions at sizes."""
        sizes: dict[str, int] = {}
        for root in self.roots:
            counted = self._counted(root, parameters)
            sizes |= {f"{root}.{name}": number for name, number in counted.items()}
        return sizes

    def _counted(self, root: str, parameters: Mapping[str, int]) -> dict[str, int]:
        kind, _, numbers = root.partition(".")
        if kind == DISTINCT:
            return distinct_bytes(self._footprints, parameters)
        if kind == SUB_GROUPS:
            return sub_group_work(self._programs, parameters, sub_group_size=int(numbers))
        items, line_bytes = map(int, numbers.split("x"))
        return lines_moved(self._accesses, parameters, line_bytes=line_bytes, sub_group_size=items)


def with_transactions(
    vector: PropertyVector,
    kernel: Any,
    roots: Iterable[str],
    statistics: Mapping[str, Any] | None = None,
) -> PropertyVector:
    """Return the vector of a kernel with its transactions, as far as it has none."""
    wanted = tuple(root for root in roots if not vector.knows(root))
    if not wanted:
        return vector
    counts = TransactionCounts(kernel=kernel, roots=wanted, statistics=dict(statistics or {}))
    return vector.with_counts_at(counts, *wanted)
