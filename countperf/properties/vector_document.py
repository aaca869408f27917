"""The document of a property vector."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from countperf.documents import Part, validate
from countperf.errors import CountingError, DocumentError
from countperf.execution.memory_hierarchy import DEFAULT_CACHES, CountedCaches
from countperf.properties.counts import Count, granularity_of
from countperf.properties.taxonomy import (
    COUNTING_RULES_VERSION,
    VIEWS,
    CountingRules,
    View,
)
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial
from countperf.symbolic.polynomial_text import parse_polynomial

FORMAT = "countperf-property-vector"
VERSION = 2


class _GuardsPart(Part):
    nonnegative: tuple[str, ...] = ()
    zero: tuple[str, ...] = ()


class _TermPart(_GuardsPart):
    value: str


class _CountPart(Part):
    terms: tuple[_TermPart, ...]
    exact: bool = True
    reason: str = ""


class _VectorDocument(Part):
    format: str
    version: int
    counting_rules: CountingRules = COUNTING_RULES_VERSION
    view: str = "source"
    caches: CountedCaches | None = None
    kernel: str
    parameters: tuple[str, ...]
    assumptions: str
    assumption_guards: tuple[_GuardsPart, ...]
    defaults: dict[str, str] = Field(default_factory=dict[str, str])
    counts: dict[str, _CountPart]


def _checked_view(document: Any) -> View:
    """Return the view of a document; refuse what is no property vector that this version reads."""
    if not isinstance(document, Mapping) or document.get("format") != FORMAT:
        raise DocumentError(
            f"this is no property vector: $.format must be {FORMAT!r}", field="$.format"
        )
    if document.get("version") != VERSION:
        raise DocumentError(
            f"property vector of version {document.get('version')!r}; this countperf reads "
            f"version {VERSION}: count the kernel again (countperf count KERNEL), or measure again"
            " (countperf measure) and fit what that writes (countperf fit FILE)",
            field="$.version",
        )
    view = document.get("view", "source")
    if view not in VIEWS:
        raise DocumentError(
            f"property vector of the view {view!r}; there are {' and '.join(VIEWS)}",
            field="$.view",
        )
    return view


def damaged(field: str, error: Exception) -> DocumentError:
    """Return the error of a document whose field cannot be read."""
    return DocumentError(f"damaged property vector at {field}: {error}", field=field)


def vector_fields(document: Any) -> dict[str, Any]:
    """Return the arguments of `countperf.properties.vector.PropertyVector` from its document."""
    view = _checked_view(document)
    found = validate(_VectorDocument, document)
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
        "view": view,
        "defaults": defaults,
        "caches": (found.caches or DEFAULT_CACHES) if view == "structure" else None,
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
