"""A kernel, its arguments and its groups, as a runtime launches it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLaunch:
    """A kernel and what it is launched with.

    Attributes
    ----------
    kernel : str
        Name of the device's kernel.
    arguments : tuple of bytes or None
        In order; None for an array, else the value as it lies in memory.
    groups, group_shape : tuple of int
        Along three axes.
    arrays : Mapping from int to str
        Names of arrays by their places among the arguments, where they are known.
    """

    kernel: str
    arguments: tuple[bytes | None, ...]
    groups: tuple[int, int, int]
    group_shape: tuple[int, int, int]
    arrays: Mapping[int, str] = field(default_factory=dict[int, str])

    @property
    def number_of_groups(self) -> int:
        """All groups."""
        return prod(self.groups)
