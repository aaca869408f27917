"""Property vectors: the counts of a kernel under the taxonomy's names, symbolic in its sizes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import AfterValidator, Field

from countperf.counting import taxonomy
from countperf.counting.keys import Granularity
from countperf.counting.size_parameters import SizeParameters
from countperf.counting.structure.memory_hierarchy import DEFAULT_CACHES, CountedCaches
from countperf.counting.structure.site_keys import site_key
from countperf.counting.taxonomy import View
from countperf.documents import Document, Part, validate
from countperf.errors import CountingError
from countperf.sizes import merge_sizes
from countperf.steps import step_through
from countperf.symbolic.compiled import CompiledCounts, CountSource
from countperf.symbolic.isl_sets import from_isl_text, to_isl_text
from countperf.symbolic.piecewise import ZERO_COUNT, Guards, PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import QuasiPolynomial, parse_polynomial
from countperf.text import Column, Printed, Result, point_text, shorten_text, table_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Count of one property, symbolic in the parameters.

    Counts of one granularity add up, by ``+`` and by ``sum``, and may be multiplied by integers.

    Examples
    --------
    >>> three = Count(quantity=PiecewiseQuasiPolynomial.from_value(3))
    >>> str(sum([three, 2 * three]))
    '{ 9 }'
    """

    quantity: PiecewiseQuasiPolynomial  # the count
    granularity: Granularity = Granularity.WORK_ITEM  # what one unit is executed by
    exact: bool = True  # whether it is what is executed; else it rests on what the caller passed
    reason: str = ""  # why it is not exact; empty if it is
    integral: bool = True  # whether values are integers; not where it was scaled by a fraction

    def __post_init__(self) -> None:
        if type(self.granularity) is not Granularity:
            listed = ", ".join(str(member) for member in Granularity)
            raise CountingError(
                f"{self.granularity!r} is no granularity of a count; pass a member of Granularity "
                f"({listed})"
            )

    def __add__(self, other: Count) -> Count:
        if self.granularity is not other.granularity:
            raise CountingError(
                f"counts per {self.granularity.value} and per {other.granularity.value} cannot be "
                "added; keep them apart, or evaluate them and convert explicitly"
            )
        reasons = {r for part in (self.reason, other.reason) for r in part.split("; ") if r}
        return Count(
            quantity=self.quantity + other.quantity,
            granularity=self.granularity,
            exact=self.exact and other.exact,
            reason="; ".join(sorted(reasons)),
            integral=self.integral and other.integral,
        )

    def __radd__(self, other: int) -> Count:
        return self if other == 0 else NotImplemented

    def __mul__(self, factor: int | Fraction) -> Count:
        integral = self.integral and factor == int(factor)
        return replace(self, quantity=self.quantity.scale(factor), integral=integral)

    __rmul__ = __mul__

    def __str__(self) -> str:
        return to_isl_text(self.quantity) or str(self.quantity)

    def __repr__(self) -> str:
        exact = "" if self.exact else ", not exact"
        return shorten_text(f"Count({self}, each by a {self.granularity.value}{exact})")


GROUP_SHAPE = ("items", "rows")  # names of properties that say how large work groups are


def says_group_shape(names: Iterable[str]) -> bool:
    """Return whether counts of these names say how large the work groups are, all alike."""
    known = set(names)
    return "groups" not in known or known.issuperset(GROUP_SHAPE) or len(_shapes_of(known)) == 1


def group_shape(counts: Mapping[str, Any]) -> dict[str, Any]:
    """Return work items and rows of all groups; nothing where no group is launched."""
    if "groups" not in counts:
        return {}
    shapes = _shapes_of(counts)
    if not shapes:
        raise CountingError(
            "these counts do not say how many items work groups have: count the kernel in the"
            " structure view, or give items and rows themselves"
        )
    if len(shapes) > 1:
        listed = ", ".join(f"{row}x{rows}" for row, rows in sorted(shapes))
        raise CountingError(
            f"work groups of several shapes are launched ({listed}), and the counts do not say how"
            " many of each: the kernel has no items and rows for a model"
        )
    ((row, rows),) = shapes
    return {"items": counts["groups"] * (row * rows), "rows": counts["groups"] * rows}


def _shapes_of(names: Iterable[str]) -> set[tuple[int, int]]:
    return {key.site.shape for key in map(site_key, names) if key is not None}


def granularity_of(name: str) -> Granularity:
    """Return what one unit of a property is executed by."""
    if name == "launches":
        return Granularity.LAUNCH
    is_of_groups = name in ("groups", *GROUP_SHAPE)
    return Granularity.WORK_GROUP if is_of_groups else Granularity.WORK_ITEM


CountsAt = Callable[[Mapping[str, int]], Mapping[str, Any]]


def counts_at_sizes(counts_at: CountsAt, values: Mapping[str, Any]) -> dict[str, Any]:
    """Evaluate counts without a formula, one by one where parameters are arrays."""
    shape = np.broadcast_shapes(*(np.shape(value) for value in values.values()))
    if not shape:
        return dict(counts_at({name: int(value) for name, value in values.items()}))
    rows = {name: np.broadcast_to(value, shape) for name, value in values.items()}
    indices = step_through(np.ndindex(shape), "counting at each size", total=int(np.prod(shape)))
    counts_by_index = {
        index: counts_at({name: int(row[index]) for name, row in rows.items()}) for index in indices
    }
    names = sorted({name for counts in counts_by_index.values() for name in counts})
    rows_by_name = {name: [c.get(name, 0) for c in counts_by_index.values()] for name in names}
    return {
        name: np.array([float(n) if isinstance(n, Fraction) else n for n in row]).reshape(shape)
        for name, row in rows_by_name.items()
    }


def _readable(read: Callable[[Any], object]) -> AfterValidator:
    """Make a validator of a part that a function reads."""

    def check(part: Any) -> Any:
        try:
            read(part)
        except CountingError as error:
            raise ValueError(str(error)) from error
        return part

    return AfterValidator(check)


_PolynomialText = Annotated[str, _readable(parse_polynomial)]


class _GuardsPart(Part):
    nonnegative: tuple[_PolynomialText, ...] = ()
    zero: tuple[_PolynomialText, ...] = ()


class _TermPart(Part):
    value: str
    nonnegative: tuple[str, ...] = ()
    zero: tuple[str, ...] = ()


def _read_terms(terms: Iterable[_TermPart]) -> PiecewiseQuasiPolynomial:
    return PiecewiseQuasiPolynomial.from_document([vars(term) for term in terms])


class _CountPart(Part):
    terms: Annotated[tuple[_TermPart, ...], _readable(_read_terms)]
    exact: bool = True
    reason: str = ""


class VectorDocument(Document):
    """Document of a property vector."""

    remade_by: ClassVar[str] = (
        "count the kernel again (countperf count KERNEL), or measure again (countperf measure) and"
        " fit what that writes (countperf fit FILE)"
    )
    format: Literal["countperf-property-vector"] = "countperf-property-vector"
    version: Literal[2] = 2
    counting_rules: taxonomy.CountingRules = taxonomy.COUNTING_RULES_VERSION
    view: View = "source"
    caches: CountedCaches | None = None
    kernel: str
    parameters: tuple[str, ...]
    assumptions: str
    assumption_guards: tuple[_GuardsPart, ...]
    defaults: dict[str, _PolynomialText] = Field(default_factory=dict[str, str])
    counts: dict[Annotated[str, AfterValidator(taxonomy.validate_name)], _CountPart]


def caches_of(document: Mapping[str, Any]) -> CountedCaches:
    """Return the caches that the document of a property vector states, by default our own."""
    stated = document.get("caches")
    if stated is None:
        return DEFAULT_CACHES
    return validate(CountedCaches, stated, root="$.properties.caches")


AT_SIZES = (TRANSACTIONS, SUB_GROUPS, DISTINCT) = ("transactions", "subgroups", "distinct")

_ROOT = re.compile(
    rf"(?:{TRANSACTIONS}\.[1-9]\d*x[1-9]\d*|{SUB_GROUPS}\.[1-9]\d*|{DISTINCT})(?![^.])"
)


def transaction_roots(names: Iterable[str]) -> tuple[str, ...]:
    """Return what names, or patterns of them, begin with that say which transactions are meant."""
    return tuple(sorted({match.group() for match in map(_ROOT.match, names) if match}))


_COMPARED = ("kernel", "parameters", "assumption_guards", "view", "defaults", "caches")
_SHARED = (*_COMPARED, "assumptions", "ranges")  # of vectors made from another one


class PropertyVector(Result, Mapping[str, Count]):
    """The property counts of one kernel; immutable.

    Iterates over the properties that can be other than zero. Looking up another valid name gives a
    count of zero; ``flop.special.<type>`` gives the sum over its functions.

    Size parameters of the counts are added to `parameters`; `assumptions` say in words what they
    must satisfy, `assumption_guards` as alternatives (nonnegative, zero); `defaults` are values of
    those that need not be given, `ranges` what their types hold, `caches` those of the device that
    the kernel was counted for, in the structure view.
    """

    def __init__(
        self,
        counts: Mapping[str, Count],
        *,
        kernel: str,
        parameters: tuple[str, ...] = (),
        assumptions: str = "{ : }",
        assumption_guards: tuple[Guards, ...] = (),
        view: View = "source",
        defaults: Mapping[str, QuasiPolynomial] | None = None,
        caches: CountedCaches | None = None,
        ranges: Mapping[str, range] | None = None,
    ) -> None:
        self._counts = {
            taxonomy.validate_name(name): count
            for name, count in sorted(counts.items())
            if count.quantity
        }
        for name, count in self._counts.items():
            if count.granularity is not granularity_of(name):
                raise CountingError(
                    f"kernel '{kernel}': {name} is counted per {granularity_of(name).value}, not "
                    f"per {count.granularity.value}; pass granularity={granularity_of(name)}"
                )
        self.kernel = kernel
        names = set(parameters).union(*(c.quantity.names() for c in self._counts.values()))
        self.parameters: tuple[str, ...] = tuple(sorted(names))
        self.defaults: Mapping[str, QuasiPolynomial] = dict(defaults or {})
        self.assumptions = assumptions
        self.assumption_guards = assumption_guards
        self.view: View = view
        self.caches = caches
        self._at_sizes: dict[tuple[str, ...], CountsAt] = {}
        self.ranges = ranges or {}
        self._anew: Callable[[Mapping[str, int]], PropertyVector] | None = None

    def __getitem__(self, name: str) -> Count:
        count = self._counts.get(name)
        if count is not None:
            return count
        taxonomy.validate_name(name)
        members = [c for other, c in self._counts.items() if other.startswith(f"{name}.")]
        if members:
            return sum(members[1:], members[0])
        return Count(quantity=ZERO_COUNT, granularity=granularity_of(name))

    def __contains__(self, name: object) -> bool:
        return name in self._counts

    def __iter__(self) -> Iterator[str]:
        return iter(self._counts)

    def __len__(self) -> int:
        return len(self._counts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PropertyVector) and all(
            getattr(self, name) == getattr(other, name) for name in ("_counts", *_COMPARED)
        )

    __hash__ = None

    def __repr__(self) -> str:
        lines = [f"  {name}: {count}" for name, count in self._counts.items()]
        view = "" if self.view == "source" else f", {self.view} view"
        return shorten_text("\n".join([f"PropertyVector of '{self.kernel}'{view}:", *lines]))

    @property
    def is_exact(self) -> bool:
        """True if no caller's statistics entered."""
        return all(count.exact for count in self._counts.values())

    def caveat(self, name: str) -> str:
        """Return why a count is no fact of the program; empty if it is one."""
        count = self._counts[name]
        return taxonomy.assumption_of(name, self.caches) if count.exact else count.reason

    @classmethod
    def from_mapping(
        cls, counts: Mapping[str, str | int], *, kernel: str = "by hand", view: View = "source"
    ) -> PropertyVector:
        """Build a vector by hand.

        Counts are piecewise quasi-polynomials in isl's notation, or numbers.

        Examples
        --------
        >>> vector = PropertyVector.from_mapping({"flop.add.f32": "[n] -> { n^2 : n > 0 }"})
        >>> vector.evaluate(n=3)
        {'flop.add.f32': 9}
        """
        read = {
            name: Count(quantity=from_isl_text(value), granularity=granularity_of(name))
            for name, value in counts.items()
        }
        return cls(read, kernel=kernel, view=view)

    def map_counts(
        self, function: Callable[[Mapping[str, Count]], Mapping[str, Count]]
    ) -> PropertyVector:
        """Return the vector with other counts, made from its own."""
        shared = {name: getattr(self, name) for name in _SHARED}
        mapped = PropertyVector(function(self._counts), **shared)
        mapped._at_sizes = self._at_sizes
        if (anew := self._anew) is not None:
            mapped._anew = lambda sizes: anew(sizes).map_counts(function)
        return mapped

    def _change(self, **attributes: Any) -> PropertyVector:
        changed = self.map_counts(lambda known: known)
        changed.__dict__.update(attributes)
        return changed

    def recount(self, count: Callable[[Mapping[str, int]], PropertyVector]) -> PropertyVector:
        """Return the vector of a kernel that `evaluate` counts anew at each size."""
        return self._change(_anew=count)

    def knows(self, root: str) -> bool:
        """Return whether there are counts whose names begin so, as with ``transactions.32x128``."""
        at_sizes = any(root in roots for roots in self._at_sizes)
        return at_sizes or any(f"{name}.".startswith(f"{root}.") for name in self._counts)

    def with_counts_at(self, counts: CountsAt, *roots: str) -> PropertyVector:
        """Return the vector with counts that have no formula, whose names begin with the roots."""
        return self._change(_at_sizes={**self._at_sizes, roots: counts})

    def take_source_view(self) -> PropertyVector:
        """Return the source's view of a vector of the structure view; others as they are."""
        if self.view != "structure":
            return self
        emitted = self.map_counts(
            lambda counts: {n: c for n, c in counts.items() if taxonomy.is_emitted(n)}
        )
        emitted.view, emitted.caches = "source", None
        return emitted

    @cached_property
    def compiled(self) -> CompiledCounts:
        """The counts as a function of all parameters, which are not checked."""
        counts = [(c.quantity, c.exact and c.integral) for c in self._counts.values()]
        return CompiledCounts(self.parameters, counts)

    def evaluate(
        self, parameters: Mapping[str, Any] | None = None, /, **more: Any
    ) -> dict[str, Any]:
        """Evaluate all counts.

        Parameters are integers or arrays of them; those in `defaults` and those that decide no
        count may be left out. Values are exact integers (Fractions where statistics entered), for
        arrays arrays: of int64, or of Python integers where int64 would overflow.

        Raises
        ------
        ParameterError
            A parameter is missing, unknown, no integer, or outside the assumptions.
        CountingError
            Counts that have no formula are not known there: code that cannot be followed, say.
        """
        values = self.check_parameters(parameters, more)
        if (anew := self._anew) is not None:
            return counts_at_sizes(lambda sizes: anew(sizes).evaluate(sizes), values)
        has_arrays = any(isinstance(value, np.ndarray) for value in values.values())
        numbers = self.compiled.at_arrays(values) if has_arrays else self.compiled.at(values)
        evaluate = dict(zip(self._counts, numbers, strict=True))
        for counts in self._at_sizes.values():
            evaluate |= counts_at_sizes(counts, values)
        return evaluate

    def check_parameters(
        self, parameters: Mapping[str, Any] | None, more: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the parameters as Python integers or int64 arrays, checked as in `evaluate`."""
        given = merge_sizes(parameters, more)
        idle = self._idle if len(given) < len(self.parameters) else ()
        return self._sizes.check_values(given, idle=idle, held=self.ranges, arrays=True)

    @property
    def _idle(self) -> frozenset[str]:
        """Parameters that decide neither a count nor whether the counts hold."""
        if self._at_sizes or not self._counts:
            return frozenset()
        counted = (count.quantity.names() for count in self._counts.values())
        used = self._sizes.guarded.union(*counted)
        behind = (value.names() for name, value in self.defaults.items() if name in used)
        return frozenset(self.parameters) - used.union(*behind)

    @cached_property
    def _sizes(self) -> SizeParameters:
        stated = (self.assumptions, self.assumption_guards, self.defaults)
        return SizeParameters(self.kernel, self.parameters, *stated)

    def condition(self, source: CountSource) -> str:
        """Write the condition that integers are sizes of the kernel."""
        both = [
            f"{held.start} <= {source.variables[name]} < {held.stop}"
            for name, held in self.ranges.items()
            if name in self.parameters
        ]
        alternatives = [source.guards(*guards) or ["True"] for guards in self.assumption_guards]
        some = " or ".join(f"({' and '.join(guards)})" for guards in alternatives)
        return " and ".join([*both, f"({some or True})"])

    def to_document(self) -> dict[str, Any]:
        """Return a JSON-able document that `from_document` reads back equal."""
        document: dict[str, Any] = {
            "format": VectorDocument.model_fields["format"].default,
            "version": VectorDocument.model_fields["version"].default,
            "counting_rules": taxonomy.COUNTING_RULES_VERSION,
            "view": None if self.view == "source" else self.view,
            "caches": None if self.caches is None else self.caches.model_dump(mode="json"),
            "kernel": self.kernel,
            "parameters": list(self.parameters),
            "assumptions": self.assumptions,
            "assumption_guards": [
                {"nonnegative": sorted(map(str, a)), "zero": sorted(map(str, b))}
                for a, b in self.assumption_guards
            ],
            "defaults": {name: str(value) for name, value in self.defaults.items()} or None,
            "counts": {
                name: {
                    "terms": count.quantity.to_document(),
                    **({} if count.exact else {"exact": False, "reason": count.reason}),
                }
                for name, count in self._counts.items()
            },
        }
        return {name: value for name, value in document.items() if value is not None}

    @classmethod
    def from_document(cls, document: Any) -> PropertyVector:
        """Read back what `to_document` wrote; raise `DocumentError` for anything else."""
        stored = VectorDocument.from_object(document)
        caches = stored.caches or DEFAULT_CACHES
        return cls(
            {
                name: Count(
                    quantity=_read_terms(part.terms),
                    granularity=granularity_of(name),
                    exact=part.exact,
                    reason=part.reason,
                )
                for name, part in stored.counts.items()
            },
            kernel=stored.kernel,
            parameters=stored.parameters,
            assumptions=stored.assumptions,
            assumption_guards=tuple(
                (frozenset(map(parse_polynomial, a)), frozenset(map(parse_polynomial, b)))
                for a, b in ((part.nonnegative, part.zero) for part in stored.assumption_guards)
            ),
            view=stored.view,
            defaults={name: parse_polynomial(value) for name, value in stored.defaults.items()},
            caches=caches if stored.view == "structure" else None,
        )

    def lay_out(
        self, values: Mapping[str, Any] | None = None, points: Sequence[Mapping[str, int]] = ()
    ) -> Printed:
        """Give a kernel's counts: values where parameters were given, and symbolic ones."""
        titles = [point_text(point) for point in points] if len(points) > 1 else ["value"]
        columns = {name: Column(name) for name in ("property", *titles)}
        columns |= {"formula": Column("count"), "": Column()}
        view = {} if self.view == "source" else {"view": self.view}
        rows: list[dict[str, Any]] = []
        shown: list[dict[str, Any]] = []
        properties: dict[str, dict[str, Any]] = {}
        for name, count in self.items():
            formula, caveat, unit = str(count), self.caveat(name), taxonomy.property_unit(name)
            value = {} if values is None else {"value": values[name]}
            rows.append({"property": name, "unit": unit, "count": formula, "exact": count.exact})
            properties[name] = {"symbolic": formula, "exact": not caveat, **value}
            columns_of_values = {} if values is None else _count_values(values[name], titles)
            note = f"not exact: {caveat}" if caveat else ""
            shown.append({"property": name, **columns_of_values, "formula": formula, "": note})
        return Printed(
            head=[f"kernel {self.kernel}, per launch{f', {self.view} view' if view else ''}"],
            rows=rows,
            shown=table_of(shown, columns),
            facts={"kernel": self.kernel, **view, "properties": properties},
        )


def _count_values(value: Any, titles: Sequence[str]) -> dict[str, Any]:
    """Give a value for each column; a count that is the same at all points, in each."""
    array = np.asarray(value, object)
    if len(titles) > 1:
        return dict(zip(titles, np.broadcast_to(array, (len(titles),)), strict=True))
    entries = [*array.ravel()]
    several = [*map(str, entries[:4]), *(["..."] if len(entries) > 4 else [])]
    return {titles[0]: entries[0] if len(entries) == 1 else ", ".join(several)}
