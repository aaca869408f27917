"""The document of a property vector."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from countperf.documents import Document, Part, validate
from countperf.errors import CountingError, DocumentError
from countperf.execution.memory_hierarchy import DEFAULT_CACHES, CountedCaches
from countperf.properties.counts import Count, granularity_of
from countperf.properties.taxonomy import (
    COUNTING_RULES_VERSION,
    CountingRules,
    View,
)
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial
from countperf.symbolic.polynomial_text import parse_polynomial


class _GuardsPart(Part):
    nonnegative: tuple[str, ...] = ()
    zero: tuple[str, ...] = ()


class _TermPart(_GuardsPart):
    value: str


class _CountPart(Part):
    terms: tuple[_TermPart, ...]
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
    counting_rules: CountingRules = COUNTING_RULES_VERSION
    view: View = "source"
    caches: CountedCaches | None = None
    kernel: str
    parameters: tuple[str, ...]
    assumptions: str
    assumption_guards: tuple[_GuardsPart, ...]
    defaults: dict[str, str] = Field(default_factory=dict[str, str])
    counts: dict[str, _CountPart]


def damaged(field: str, error: Exception) -> DocumentError:
    """Return the error of a document whose field cannot be read."""
    return DocumentError(f"damaged property vector at {field}: {error}", field=field)


def vector_fields(document: Any) -> dict[str, Any]:
    """Return the arguments of `countperf.properties.vector.PropertyVector` from its document."""
    found = VectorDocument.from_object(document)
    field = "$"
    try:
        counts: dict[str, Count] = {}
        for name, entry in found.counts.items():
            field = f"$.counts[{name!r}]"
            terms = [term.model_dump() for term in entry.terms]
            counts[name] = Count(
                quantity=PiecewiseQuasiPolynomial.from_document(terms),
                granularity=granularity_of(name),
                exact=entry.exact,
                reason=entry.reason,
            )
        field = "$.assumption_guards"
        guards = tuple(
            (
                frozenset(map(parse_polynomial, entry.nonnegative)),
                frozenset(map(parse_polynomial, entry.zero)),
            )
            for entry in found.assumption_guards
        )
        field = "$.defaults"
        defaults = {name: parse_polynomial(value) for name, value in found.defaults.items()}
    except (ValueError, CountingError) as error:
        raise damaged(field, error) from error
    return {
        "counts": counts,
        "kernel": found.kernel,
        "parameters": found.parameters,
        "assumptions": found.assumptions,
        "assumption_guards": guards,
        "view": found.view,
        "defaults": defaults,
        "caches": (found.caches or DEFAULT_CACHES) if found.view == "structure" else None,
    }


# --- Caches that a stored property vector was counted for


def caches_of(document: Mapping[str, Any]) -> CountedCaches:
    """Return the caches that the document of a property vector states.

    Documents that state none have `DEFAULT_CACHES`: older ones, and those of other views than the
    structure view, whose counts do not depend on caches.
    """
    stated = document.get("caches")
    if stated is None:
        return DEFAULT_CACHES
    return validate(CountedCaches, stated, root="$.properties.caches")
