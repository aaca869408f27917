"""Short forms of results for interactive use: what ``repr`` shows."""

from __future__ import annotations

MOST_LINES = 25
"""Lines of a ``repr``, at most."""

_WIDTH = 160


def shortened(text: str, most: int = MOST_LINES) -> str:
    r"""Cut a text to a number of lines, and say how many are left out.

    Examples
    --------
    >>> print(shortened("a\nb\nc\nd", most=3))
    a
    b
    ... 2 more lines
    """
    lines = [
        line if len(line) <= _WIDTH else f"{line[: _WIDTH - 4]} ..." for line in text.splitlines()
    ]
    if len(lines) <= most:
        return "\n".join(lines)
    kept = most - 1
    return "\n".join([*lines[:kept], f"... {len(lines) - kept} more lines"])
