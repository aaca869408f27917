"""Statistics that the caller passes for data: trip counts, probabilities, access patterns.

A loop is named by its iname (mean trip count), a condition by its text or by the id of its
instruction (probability), an address that is read from data by the array or by the text of the
access (utilization class). The probability of ``not c`` follows from that of ``c``.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from fractions import Fraction
from math import isfinite
from typing import Any

import numpy as np
import pymbolic.primitives as p

from countperf.counting.expression_types import text_of
from countperf.errors import CountingError, DataDependentControlFlowError

ACCESS_CLASSES = (  # that a caller can state
    "uniform",
    "stride1",
    *(f"{used}of{parts}" for parts in (2, 3, 4) for used in range(1, parts + 1)),
    *(f"{used}ofn" for used in range(1, 5)),
    "indirect",
)


def nonnegative(value: Any) -> Fraction | None:
    """Return a finite number of at least zero as a fraction; None for anything else."""
    if isinstance(value, np.integer | np.floating):
        value = value.item()
    is_number = isinstance(value, int | float | Fraction) and not isinstance(value, bool)
    if not is_number or not isfinite(value) or value < 0:
        return None
    return Fraction(value).limit_denominator(10**9)


class Statistics:
    """The caller's statistics. Asking for a trip count or a probability notes that it was used."""

    def __init__(self, kernel: Any, given: Mapping[str, Any]) -> None:
        self.kernel = kernel
        self.inames: frozenset[str] = kernel.all_inames()
        self.patterns: dict[str, str] = {}
        self.numbers: dict[str, Fraction] = {}  # trip counts and probabilities
        self._lacking: dict[tuple[str, str], Any] | None = None
        self.used: set[str] = set()
        self.taken: set[str] = set()
        for name, value in given.items():
            self._take(text_of(name), value)

    def _take(self, name: str, value: Any) -> None:
        if isinstance(value, str):
            if value not in ACCESS_CLASSES:
                raise self.error(
                    f"the access pattern of '{name}' is {value!r}; pass one of "
                    f"{', '.join(ACCESS_CLASSES)}"
                )
            self.patterns[name] = value
            return
        number = nonnegative(value)
        if number is None:
            raise self.error(
                f"the statistic for '{name}' is {value!r}; pass a trip count or probability that "
                "is at least zero, or an access pattern such as 'stride1'"
            )
        if name not in self.inames and number > 1:
            raise self.error(
                f"'{name}' is no loop of the kernel (loops: {', '.join(sorted(self.inames))}), "
                f"and {value} is no probability"
            )
        self.numbers[name] = number

    def error(self, what: str) -> CountingError:
        """Return an error about a statistic."""
        return CountingError(f"kernel '{self.kernel.name}': {what}")

    def _use(self, name: str) -> Fraction:
        self.used.add(name)
        self.taken.add(name)
        return self.numbers[name]

    def trip_count(self, iname: str) -> Fraction | None:
        """Return the mean trip count of a loop; None if it is not given."""
        return self._use(iname) if iname in self.numbers else None

    def probability(self, condition: Any, instruction_id: str) -> Fraction | None:
        """Return how often a condition on data holds; None if it is not given."""
        if not self.numbers:
            return None
        probability = self._by_text(condition)
        if probability is not None or instruction_id in self.inames:
            return probability
        patterns = (name for name in self.numbers if name not in self.inames)
        matches = (name for name in patterns if fnmatchcase(instruction_id, name))
        name = instruction_id if instruction_id in self.numbers else next(matches, None)
        return None if name is None else self._use(name)

    def _by_text(self, condition: Any) -> Fraction | None:
        text = text_of(condition)
        if text in self.numbers and text not in self.inames:
            return self._use(text)
        is_negated = isinstance(condition, p.LogicalNot)
        probability = self._by_text(condition.child) if is_negated else None
        return None if probability is None else 1 - probability

    def require(self, condition: Any, instruction_id: str) -> None:
        """Refuse a condition on data that has no probability, or note it (`note_what_lacks`)."""
        if self._lacking is None:
            text = text_of(condition)
            raise DataDependentControlFlowError(
                f"kernel '{self.kernel.name}', instruction '{instruction_id}': whether {text} "
                "holds depends on data"
            )
        self._lacking[text_of(condition), instruction_id] = condition

    @contextmanager
    def note_what_lacks(self) -> Generator[dict[tuple[str, str], Any]]:
        """Note conditions that lack a probability, by text and instruction, and go on."""
        self._lacking = noted = {}
        try:
            yield noted
        finally:
            self._lacking = None

    def pattern_of(self, array: str, text: str) -> tuple[str, str] | None:
        """Return the class that the caller states for an access through data, and its name."""
        for name in (text, array):
            if name in self.patterns:
                self.taken.add(name)
                return self.patterns[name], name
        return None

    def reasons(self, within: frozenset[str] = frozenset()) -> frozenset[str]:
        """Return why counts are not exact: statistics used since `used` was cleared, and loops."""
        names = self.used | {name for name in within if name in self.numbers}
        return frozenset(f"the caller's statistic for '{name}'" for name in names)

    def list_idle(self) -> list[str]:
        """Return the names that were never used."""
        return [name for name in (*self.numbers, *self.patterns) if name not in self.taken]
