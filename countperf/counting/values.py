"""Values that a device program has computed or loaded, and where they can be used again.

Values are numbered: two expressions have one number only if they always have the same value. What a
value depends on is kept by version, which changes with every assignment that may reach it.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from countperf.counting.keys import Case
from countperf.counting.loops import LoopRegion

Guard = Hashable
"""A condition: a case on the loop variables, or a test of data with the versions it reads."""


@dataclass(frozen=True, slots=True)
class Point:
    """Loops and conditions under which something is executed."""

    regions: tuple[LoopRegion, ...]  # the device program and the loops around, from the outside in
    within: frozenset[str]  # loop variables around it, hardware axes too
    cases: tuple[Case, ...]  # conditions on loop variables under which it is executed
    tests: frozenset[Guard]  # conditions on data

    @property
    def guards(self) -> frozenset[Guard]:
        """All conditions."""
        return frozenset[Guard](self.cases) | self.tests


@dataclass(frozen=True, slots=True)
class _Provider:
    region: LoopRegion
    within: frozenset[str]
    guards: frozenset[Guard]

    def reaches(self, point: Point) -> bool:
        """Return whether the value was computed in the same loops, before the given point."""
        return (
            self.region in point.regions
            and self.within <= point.within
            and self.guards <= point.guards
        )


@dataclass(slots=True)
class Values:
    """Value numbers of one device program."""

    _numbers: dict[Hashable, int] = field(default_factory=dict)
    _names: list[frozenset[str]] = field(default_factory=list)
    _providers: dict[int, list[_Provider]] = field(default_factory=dict)
    _versions: dict[str, int] = field(default_factory=dict)
    _scalars: dict[tuple[str, int], tuple[int, _Provider]] = field(default_factory=dict)
    _types: dict[int, Any] = field(default_factory=dict)

    def number(self, key: Hashable, names: frozenset[str] = frozenset()) -> int:
        """Return the number of a value, given what it is and the names that it depends on."""
        found = self._numbers.get(key)
        if found is None:
            found = len(self._names)
            self._numbers[key] = found
            self._names.append(names)
        return found

    def names(self, *values: int) -> frozenset[str]:
        """Return the loop variables, sizes and other variables that values depend on."""
        return frozenset[str]().union(*(self._names[value] for value in values))

    def add_names(self, value: int, names: frozenset[str]) -> None:
        """Add names that a value depends on."""
        self._names[value] |= names

    def version(self, name: str) -> int:
        """Return the version of a variable."""
        return self._versions.get(name, 0)

    def assign(self, names: frozenset[str] | set[str]) -> None:
        """Forget the values of variables."""
        for name in names:
            self._versions[name] = self.version(name) + 1

    def provide(self, value: int, region: LoopRegion, point: Point) -> None:
        """Remember that a value is there from now on, until a loop is left."""
        provider = _Provider(region, point.within, point.guards)
        self._providers.setdefault(value, []).append(provider)

    def is_there(self, value: int, point: Point) -> bool:
        """Return whether a value was computed or loaded wherever the point is reached."""
        return any(p.reaches(point) for p in self._providers.get(value, ()))

    def name_scalar(self, name: str, value: int, region: LoopRegion, point: Point) -> None:
        """Remember what a private scalar was assigned."""
        provider = _Provider(region, point.within, point.guards)
        self._scalars[name, self.version(name)] = value, provider

    def scalar(self, name: str, point: Point) -> int:
        """Return the value of a variable that is no memory."""
        known = self._scalars.get((name, self.version(name)))
        if known is not None and known[1].reaches(point):
            return known[0]
        return self.number(("variable", name, self.version(name)), frozenset([name]))

    def set_type(self, value: int, dtype: Any) -> None:
        """Remember the type of a value."""
        self._types[value] = dtype

    def type_of(self, value: int) -> Any:
        """Return the type of a value that was given one."""
        return self._types[value]
