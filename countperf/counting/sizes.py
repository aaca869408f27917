"""Values of size parameters, checked against what a kernel assumes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from operator import index
from typing import Any

import numpy as np

from countperf.display import ShortRepr
from countperf.errors import InternalError, ParameterError
from countperf.symbolic.isl_counts import assumptions_text, guards_of
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import QuasiPolynomial


def require_sizes(
    kernel: str, sizes: Collection[str], counts: Mapping[str, PiecewiseQuasiPolynomial]
) -> None:
    """Check that counts depend on size parameters alone."""
    known = set(sizes)
    for term, count in counts.items():
        stray = count.names() - known
        if stray:
            raise InternalError(
                f"kernel '{kernel}': the count of {term} depends on {', '.join(sorted(stray))}, "
                f"which is no size parameter ({', '.join(sorted(known)) or 'it has none'}): "
                f"{count}; this is a fault of countperf: please report it with the kernel"
            )


Guards = tuple[frozenset[QuasiPolynomial], frozenset[QuasiPolynomial]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeParameters(ShortRepr):
    """The size parameters of a kernel."""

    kernel: str  # name of the kernel
    names: tuple[str, ...]  # size parameters, sorted
    assumptions: str  # parameters for which the kernel is valid, in isl's notation
    # the same as alternatives: what must be at least zero, and what must be zero
    guards: tuple[Guards, ...]
    # values of parameters that need not be given, in terms of those that have to be
    defaults: Mapping[str, QuasiPolynomial] = field(default_factory=dict[str, QuasiPolynomial])

    @classmethod
    def of(
        cls,
        kernel: Any,
        names: frozenset[str],
        defaults: Mapping[str, QuasiPolynomial] | None = None,
    ) -> SizeParameters:
        """Read them from a kernel."""
        return cls(
            kernel=kernel.name,
            names=tuple(sorted(names)),
            assumptions=assumptions_text(kernel.assumptions),
            guards=tuple(guards_of(kernel.assumptions)),
            defaults=dict(defaults or {}),
        )

    def checked(self, parameters: Mapping[str, Any]) -> dict[str, int]:
        """Return the values of all parameters as Python integers."""
        values: dict[str, int] = {}
        for name in self.names:
            if name in self.defaults and name not in parameters:
                continue
            if name not in parameters:
                listed = ", ".join(sorted(parameters)) or "none"
                raise ParameterError(
                    f"kernel '{self.kernel}': no value for parameter {name} (given: {listed}); "
                    "pass every parameter",
                    parameter=name,
                )
            try:
                values[name] = index(parameters[name])
            except TypeError as error:
                raise ParameterError(
                    f"kernel '{self.kernel}': parameter {name} is {parameters[name]!r}; pass an "
                    "integer",
                    parameter=name,
                ) from error
        for name in parameters:
            if name not in self.names:
                listed = ", ".join(self.names) or "none"
                raise ParameterError(
                    f"kernel '{self.kernel}' has no parameter {name} (it has: {listed})",
                    parameter=name,
                )
        for name in self.names:
            if name not in values:
                values[name] = int(self.defaults[name].evaluate(values))
        if self.guards and not any(
            all(g.evaluate(values) >= 0 for g in nonnegative)
            and all(g.evaluate(values) == 0 for g in zero)
            for nonnegative, zero in self.guards
        ):
            shown = ", ".join(f"{name}={value}" for name, value in values.items())
            raise ParameterError(
                f"kernel '{self.kernel}' assumes {self.assumptions}, which does not hold at {shown}"
            )
        return values


# --- Ranges of sizes that the types of integer arguments can represent


def size_ranges(kernel: Any) -> dict[str, range]:
    """Return which values the integer arguments of a kernel of Loopy's hold, by name."""
    found: dict[str, range] = {}
    for argument in kernel.args:
        if hasattr(argument, "dim_tags"):
            continue
        known = getattr(argument.dtype, "numpy_dtype", kernel.index_dtype.numpy_dtype)
        kind = np.dtype(known)
        if kind.kind in "iu":
            limits = np.iinfo(kind)
            found[argument.name] = range(int(limits.min), int(limits.max) + 1)
    return found


def check_range(kernel: str, name: str, value: int, held: range) -> None:
    """Refuse a size that the kernel's argument does not hold."""
    if value not in held:
        bits = (held.stop - held.start - 1).bit_length()
        kind = f"{'u' if held.start == 0 else ''}int{bits}"
        raise ParameterError(
            f"kernel '{kernel}': {name} = {value} is beyond {held.stop - 1}, the largest value of"
            f" its type {kind}; take a smaller size, or declare a wider type, such as"
            f' lp.ValueArg("{name}", np.int64)'
            if value >= held.stop
            else f"kernel '{kernel}': {name} = {value} is below {held.start}, the smallest value of"
            f" its type {kind}; take a larger size",
            parameter=name,
        )
