"""What the caller knows of the data: trip counts, probabilities, access patterns.

A statistic is named by what it describes: a loop by its iname (mean trip count), a condition by its
text or by the id of its instruction (probability), an address that is read from data by the array
or by the text of the access (utilization class). Ids may hold ``*`` and ``?``, which match as in
Loopy's own match expressions, so that the instructions of a realized reduction are named at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from math import isfinite
from typing import Any

import numpy as np
from loopy.match import re_from_glob

from countperf.errors import CountingError

ACCESS_CLASSES = (
    "uniform",
    "stride1",
    *(f"{used}of{parts}" for parts in (2, 3, 4) for used in range(1, parts + 1)),
    *(f"{used}ofn" for used in range(1, 5)),
    "indirect",
)
"""Utilization classes that a caller can state."""


def nonnegative(value: Any) -> Fraction | None:
    """Return a finite number of at least zero as a fraction; None for anything else."""
    if isinstance(value, np.integer | np.floating):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float | Fraction):
        return None
    if not isfinite(value) or value < 0:
        return None
    return Fraction(value).limit_denominator(10**9)


class Statistics(Mapping[str, Fraction]):
    """The caller's statistics; the mapping holds trip counts and probabilities.

    Looking a name up notes that it was used, and under which names something was sought.

    Parameters
    ----------
    kernel : loopy.LoopKernel
        Preprocessed.
    given : mapping from str to number or str
        As the caller passed it.

    Raises
    ------
    CountingError
        A value is none that a statistic can have, or a trip count names no loop.
    """

    def __init__(self, kernel: Any, given: Mapping[str, Any]) -> None:
        self.kernel = kernel
        self.inames: frozenset[str] = kernel.all_inames()
        self.patterns: dict[str, str] = {}
        self._numbers: dict[str, Fraction] = {}
        self._ids: dict[str, str] = {}  # instruction ids that a glob names
        self._sought: set[str] = set()
        self.used: set[str] = set()
        for name, value in given.items():
            self._take(name, value)

    def _take(self, name: str, value: Any) -> None:
        if isinstance(value, str):
            if value not in ACCESS_CLASSES:
                raise self._error(
                    name,
                    f"the access pattern of '{name}' is {value!r}; pass one of "
                    f"{', '.join(ACCESS_CLASSES)}",
                )
            self.patterns[name] = value
            return
        number = nonnegative(value)
        if number is None:
            raise self._error(
                name,
                f"the statistic for '{name}' is {value!r}; pass a trip count or probability that "
                "is at least zero, or an access pattern such as 'stride1'",
            )
        if name not in self.inames and number > 1:
            raise self._error(
                name,
                f"'{name}' is no loop of the kernel (loops: {', '.join(sorted(self.inames))}), "
                f"and {value} is no probability",
            )
        self._numbers[name] = number
        if re.fullmatch(r"[\w?*]*[?*][\w?*]*", name):
            pattern = re_from_glob(name)
            for instruction in self.kernel.instructions:
                if pattern.match(instruction.id):
                    self._ids.setdefault(instruction.id, name)

    def _error(self, name: str, what: str) -> CountingError:
        return CountingError(
            f"kernel '{self.kernel.name}': {what}", kernel=self.kernel.name, where=name
        )

    # {{{ mapping

    def __getitem__(self, name: str) -> Fraction:
        self._sought.add(name)
        if name in self._numbers:
            self.used.add(name)
            return self._numbers[name]
        glob = self._ids[name]
        self.used.add(glob)
        return self._numbers[glob]

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    # }}}

    def pattern_of(self, array: str, text: str) -> tuple[str, str] | None:
        """Return the class that the caller states for an access through data, and its name.

        Parameters
        ----------
        array : str
            Name of the array.
        text : str
            The access as it is written in the kernel; it wins over the array.
        """
        self._sought |= {array, text}
        for name in (text, array):
            if name in self.patterns:
                return self.patterns[name], name
        return None

    def reasons(self, within: frozenset[str] = frozenset()) -> frozenset[str]:
        """Return why counts are not exact: statistics used since `used` was cleared, and loops."""
        names = self.used | {name for name in within if name in self._numbers}
        return frozenset(f"the caller's statistic for '{name}'" for name in names)

    def check_names(self) -> None:
        """Refuse statistics that name nothing in the kernel.

        Raises
        ------
        CountingError
            A name is no loop, instruction, condition on data, or access through data.
        """
        ids = {instruction.id for instruction in self.kernel.instructions}
        for name in self._numbers:
            if name in self.inames | ids | self._sought or name in self._ids.values():
                continue
            others = sorted(self._sought - ids - self.inames)
            raise self._error(
                name,
                f"the statistic for '{name}' names no loop ({', '.join(sorted(self.inames))}), no "
                f"instruction ({', '.join(sorted(ids))}) and no condition on data "
                f"({'; '.join(others) or 'there is none'})",
            )
        arrays = set(self.kernel.arg_dict) | set(self.kernel.temporary_variables)
        for name in self.patterns:
            if name not in arrays and name not in self._sought:
                raise self._error(
                    name,
                    f"the access pattern of '{name}' names no array "
                    f"({', '.join(sorted(arrays))}) and no access through data",
                )
