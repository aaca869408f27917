"""Results as people and programs see them."""

from __future__ import annotations

from typing import Any


def text_of(result: Any, *more: Any, **named: Any) -> str:
    """Return the text of a result."""
    return result.lay_out(*more, **named).text()


def object_of(result: Any, *more: Any, **named: Any) -> dict[str, Any]:
    """Return the JSON document of a result."""
    return result.lay_out(*more, **named).object()
