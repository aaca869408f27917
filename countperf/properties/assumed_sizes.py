"""Sizes for which counts hold, by the assumptions of a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from countperf.errors import ParameterError
from countperf.symbolic.compiled import CompiledCounts
from countperf.symbolic.piecewise import Guards, PiecewiseQuasiPolynomial


@dataclass(frozen=True)
class AssumedSizes:
    """Sizes for which counts hold."""

    kernel: str  # its name, for messages
    parameters: tuple[str, ...]  # sizes of the kernel
    text: str  # the assumptions, for messages
    # the same as polynomials, alternatives; empty if everything is allowed
    guards: tuple[Guards, ...]

    @cached_property
    def names(self) -> frozenset[str]:
        """Sizes on which it depends whether the counts hold."""
        guards = (guard for some in self.guards for members in some for guard in members)
        return frozenset[str]().union(*(guard.names() for guard in guards))

    @cached_property
    def _compiled(self) -> tuple[tuple[CompiledCounts, int], ...]:
        """For each alternative, its guards and how many of them are to be at least zero."""
        return tuple(
            (
                CompiledCounts(
                    self.parameters,
                    [(PiecewiseQuasiPolynomial.from_value(g), True) for g in (*nonnegative, *zero)],
                ),
                len(nonnegative),
            )
            for nonnegative, zero in self.guards
        )

    def check(self, values: Mapping[str, Any]) -> None:
        """Raise `ParameterError` unless an alternative holds at all sizes."""
        if not self.guards:
            return
        if np.all(np.logical_or.reduce([_guards_hold(*some, values) for some in self._compiled])):
            return
        broken = _first_broken_guard(self.guards[0], values)
        shown = ", ".join(f"{k}={v}" for k, v in values.items())
        raise ParameterError(
            f"kernel '{self.kernel}' assumes {self.text}, which does not hold at {shown}"
            + (f" ({broken})" if broken else ""),
            parameter=None,
        )


def _guards_hold(compiled: CompiledCounts, nonnegative: int, values: Mapping[str, Any]) -> Any:
    """Return where guards hold: the first ones are to be at least zero, the others zero."""
    if not any(isinstance(value, np.ndarray) for value in values.values()):
        scalars = compiled.at(values)
        return all(v >= 0 for v in scalars[:nonnegative]) and not any(scalars[nonnegative:])
    result: Any = True
    for position, value in enumerate(compiled.at_arrays(values)):
        result = np.logical_and(result, value >= 0 if position < nonnegative else value == 0)
    return result


def _first_broken_guard(guards: Guards, values: Mapping[str, Any]) -> str:
    """Return the first guard that does not hold, as a message; empty if all hold."""
    parameters = tuple(values)
    for relation, members in zip((">=", "="), guards, strict=True):
        for guard in sorted(members, key=str):
            single = PiecewiseQuasiPolynomial.from_value(guard)
            compiled = CompiledCounts(parameters, [(single, True)])
            if not np.all(_guards_hold(compiled, 1 if relation == ">=" else 0, values)):
                return f"it needs {guard} {relation} 0"
    return ""
