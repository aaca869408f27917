"""Values of size parameters, checked against what a kernel assumes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Any

import numpy as np

from countperf.errors import InternalError, ParameterError, UnknownSizeError, nearest
from countperf.sizes import as_integer
from countperf.symbolic.compiled import nothing_wraps
from countperf.symbolic.isl_sets import assumptions_text, guards_of
from countperf.symbolic.kernel_sets import assumptions_of
from countperf.symbolic.piecewise import Guards, PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import QuasiPolynomial
from countperf.text import ShortRepr


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


@dataclass(frozen=True)
class SizeParameters(ShortRepr):
    """The size parameters of a kernel."""

    kernel: str  # name of the kernel
    names: tuple[str, ...]  # size parameters, sorted
    assumptions: str  # parameters for which the kernel is valid, in isl's notation
    guards: tuple[Guards, ...]  # alternatives: what must be at least zero, and what must be zero
    # values of parameters that need not be given, in terms of the others
    defaults: Mapping[str, QuasiPolynomial] = field(default_factory=dict[str, QuasiPolynomial])

    @classmethod
    def of(
        cls, kernel: Any, names: frozenset[str], defaults: Mapping[str, QuasiPolynomial]
    ) -> SizeParameters:
        """Read them from a kernel."""
        assumed = assumptions_of(kernel)
        stated = (assumptions_text(assumed), tuple(guards_of(assumed)))
        return cls(kernel.name, tuple(sorted(names)), *stated, defaults)

    def check_values(
        self,
        parameters: Mapping[str, Any],
        *,
        idle: Collection[str] = (),
        held: Mapping[str, range] | None = None,
        arrays: bool = False,
    ) -> dict[str, Any]:
        """Return the values of all parameters; those `idle` or in `defaults` need not be given."""
        for name in parameters:
            if name not in self.names:
                listed = ", ".join(self.names) or "none"
                raise UnknownSizeError(
                    f"kernel '{self.kernel}' has no parameter {name}; its sizes are: {listed}"
                    f"{nearest(name, self.names)}",
                    parameter=name,
                )
        missing = [name for name in self.names if name not in parameters]
        for name in missing:
            if name not in self.defaults and name not in idle:
                listed = ", ".join(sorted(parameters)) or "none"
                why = f"no value for parameter {name} (given: {listed})"
                raise self._error(name, f"{why}; add {name}=1024, or what it is to be")
        values = {name: self._integers(name, parameters.get(name, 0)) for name in self.names}
        for name, value in values.items():
            if isinstance(value, np.ndarray) and not arrays:
                raise self._error(name, f"parameter {name} is an array; pass an integer")
        for name in self.defaults.keys() & missing:
            values[name] = self.defaults[name].evaluate(_exact(values))
        for name, some in (held or {}).items():
            given = np.asarray(values.get(name, ()))
            for end in (given.min(), given.max()) if given.size else ():
                check_range(self.kernel, name, int(end), some)
        self._check_assumptions(values)
        return values

    def _error(self, name: str, why: str) -> ParameterError:
        return ParameterError(f"kernel '{self.kernel}': {why}", parameter=name)

    def _integers(self, name: str, value: Any) -> Any:
        """Return the value of a size as a Python integer or an array of integers; refuse others."""
        if not isinstance(value, np.ndarray | list | tuple):
            try:
                return as_integer(name, value)
            except ParameterError as error:
                raise self._error(name, str(error)) from error
        array = np.asarray(value)
        if array.dtype.kind not in "iu":
            raise self._error(name, f"parameter {name} is an array of {array.dtype}; pass integers")
        if array.dtype == np.uint64 and array.size and int(array.max()) >= 2**63:
            return array.astype(object)
        return array.astype(np.int64, copy=False)

    @cached_property
    def guarded(self) -> frozenset[str]:
        """Sizes on which it depends whether the assumptions hold."""
        return frozenset[str]().union(*(guard.names() for guard in self._list_guards()))

    def _list_guards(self) -> list[QuasiPolynomial]:
        return [guard for some in self.guards for members in some for guard in members]

    def _check_assumptions(self, values: Mapping[str, Any]) -> None:
        """Raise `ParameterError` unless an alternative holds at all sizes."""
        exact = values if nothing_wraps(self._list_guards(), values) else _exact(values)
        held = [
            reduce(np.logical_and, (where for _, where in _checks(some, exact)), np.True_)
            for some in self.guards
        ]
        if held and not np.all(np.logical_or.reduce(held)):
            checks = _checks(self.guards[0], exact)
            broken = sorted(condition for condition, where in checks if not np.all(where))
            shown = ", ".join(f"{k}={v}" for k, v in values.items())
            raise ParameterError(
                f"kernel '{self.kernel}' assumes {self.assumptions}, which does not hold at {shown}"
                + (f" (it needs {broken[0]})" if broken else ""),
                parameter=None,
            )


def _exact(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return integers with which nothing wraps, also in arrays."""
    arrays = {n: v.astype(object) for n, v in values.items() if isinstance(v, np.ndarray)}
    return {**values, **arrays}


def _checks(guards: Guards, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    nonnegative, zero = guards
    for guard in nonnegative:
        yield f"{guard} >= 0", guard.evaluate(values) >= 0
    for guard in zero:
        yield f"{guard} = 0", guard.evaluate(values) == 0


def size_ranges(kernel: Any) -> dict[str, range]:
    """Return which values the integer arguments of a kernel of Loopy's hold, by name."""
    types = {
        argument.name: getattr(argument.dtype, "numpy_dtype", kernel.index_dtype.numpy_dtype)
        for argument in kernel.args
        if not hasattr(argument, "dim_tags")
    }
    limits = {name: np.iinfo(kind) for name, kind in types.items() if np.dtype(kind).kind in "iu"}
    return {name: range(int(ends.min), int(ends.max) + 1) for name, ends in limits.items()}


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
