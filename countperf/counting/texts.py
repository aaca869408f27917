"""Texts of expressions, for messages and names."""

from __future__ import annotations

from typing import Any

_UNDERLINE = "\N{COMBINING LOW LINE}"


def text_of(expr: Any) -> str:
    """Return the text of an expression; of one that cannot be written, the name of its class.

    Without the combining characters by which Loopy underlines the names of functions.
    """
    try:
        return str(expr).replace(_UNDERLINE, "")
    except (ValueError, TypeError, AttributeError, NotImplementedError, AssertionError, Warning):
        return type(expr).__name__
