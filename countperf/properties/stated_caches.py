"""Caches that a stored property vector was counted for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from countperf.documents import validate
from countperf.execution.memory_hierarchy import DEFAULT_CACHES, CountedCaches


def caches_of(document: Mapping[str, Any]) -> CountedCaches:
    """Return the caches that the document of a property vector states.

    Documents that state none have `DEFAULT_CACHES`: older ones, and those of other views than the
    structure view, whose counts do not depend on caches.
    """
    stated = document.get("caches")
    if stated is None:
        return DEFAULT_CACHES
    return validate(CountedCaches, stated, root="$.properties.caches")
