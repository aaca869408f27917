"""A kernel, its arguments and its groups, as a runtime launches it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLaunch:
    """A kernel and what it is launched with."""

    kernel: str  # name of the device's kernel
    arguments: tuple[bytes | None, ...]  # in order
    groups: tuple[int, int, int]  # along three axes
    group_shape: tuple[int, int, int]
    # names of arrays by their places among the arguments, where they are known
    arrays: Mapping[int, str] = field(default_factory=dict[int, str])

    @property
    def number_of_groups(self) -> int:
        """All groups."""
        return prod(self.groups)
