"""Standard output and error of a command: text that is safe to show.

Names of kernels, devices and values come from files. What of them would control a terminal, or is
not in the encoding of its locale, is written as an escape.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Generator
from typing import Any, TextIO

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def safe(text: str, encoding: str | None = "utf-8") -> str:
    r"""Write a text so that it can be shown: as escapes what controls terminals or has no code."""
    text = _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)
    encoding = encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


class _Shown:
    """A stream that shows what is safe; other attributes are those of the stream below."""

    def __init__(self, below: TextIO) -> None:
        self.below = below

    def __getattr__(self, name: str) -> Any:
        return getattr(self.below, name)

    def write(self, text: str) -> int:
        self.below.write(safe(text, self.below.encoding))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)


def say(text: str) -> None:
    """Print a line on standard error."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


@contextlib.contextmanager
def shown() -> Generator[None]:
    """Let everything that is printed within the block be safe to show.

    A standard stream that is closed is one that shows nothing, so that no file gets its number.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8"))
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_Shown(getattr(stream, "below", stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
