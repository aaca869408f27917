"""Results as people and programs see them."""

from __future__ import annotations

from typing import Any

from countperf.report.printing import printed


def text_of(result: object, *more: Any, **named: Any) -> str:
    """Return the text of a result."""
    return printed(result, *more, **named).text()


def object_of(result: object, *more: Any, **named: Any) -> dict[str, Any]:
    """Return the JSON document of a result."""
    return printed(result, *more, **named).object()
