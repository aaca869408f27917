"""Output, progress and advice that several commands have in common.

Names of kernels, devices and values come from files: what of them would control a terminal, or is
not in the encoding of its locale, is written as an escape.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Generator, Sequence
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

from countperf.errors import ParameterError
from countperf.sizes import combine_sizes
from countperf.steps import format_duration
from countperf.user_code import stdout_to_stderr

if TYPE_CHECKING:
    from countperf.text import Printed

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def make_safe(text: str) -> str:
    """Write as escapes what of a text would control a terminal."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def say(text: str) -> None:
    """Print a line on standard error."""
    print(make_safe(text), file=sys.stderr, flush=True)


def say_choice(*choices: str) -> None:
    """Say on standard error which model was chosen, and why, where it was free."""
    for choice in filter(None, dict.fromkeys(choices)):
        say(f"countperf: {choice}")


def prepare_streams() -> None:
    """Have standard streams escape what their encoding lacks, and closed ones show nothing.

    A closed one is opened, so that no file gets its number.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


_documents: list[str] | None = None
"""Documents that are printed when standard output is given back; None where it is not taken."""


def print_json(content: Any) -> None:
    """Print one JSON document on standard output."""
    text = json.dumps(content, indent=2, allow_nan=False)
    if _documents is None:
        print(text)
    else:
        _documents.append(text)


@contextlib.contextmanager
def only_documents() -> Generator[None]:
    """Let nothing but what `print_json` prints reach standard output.

    What kernels, their compilers and processes that they start print meanwhile goes to standard
    error; the documents follow at the end.
    """
    global _documents
    _documents = documents = list[str]()
    try:
        with stdout_to_stderr():
            yield
    finally:
        _documents = None
        for text in documents:
            print(text)


def show(options: argparse.Namespace, shown: Printed, *, widest: int | None = None) -> None:
    """Print a result, as one JSON document or as text, whose lines are cut where it is asked."""
    if options.json:
        print_json(shown.object())
    else:
        print(make_safe(shown.text(widest=widest)))


def show_all(options: argparse.Namespace, shown: Sequence[Printed], name: str = "sizes") -> None:
    """Print several results as `show` does, in JSON under a name; one alone as itself."""
    if len(shown) == 1 and name == "sizes":
        show(options, shown[0])
    elif options.json:
        print_json({name: [result.object() for result in shown]})
    else:
        print(make_safe("\n\n".join(result.text() for result in shown)))


def pick_options(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Return options that functions have parameters of the same name for."""
    return {name: getattr(options, name) for name in names}


def as_dict(pairs: Sequence[tuple[str, Any]] | None) -> dict[str, Any]:
    """Collect parsed ``name=value`` pairs."""
    values: dict[str, Any] = {}
    for name, value in pairs or ():
        if name in values:
            said = f"{name} is given twice: {name}={values[name]} and {name}={value}; give it once"
            raise ParameterError(said, parameter=name)
        values[name] = value
    return values


def points(pairs: Sequence[tuple[str, Any]] | None) -> list[dict[str, int]]:
    """Return the points that parsed sizes name together."""
    return combine_sizes(as_dict(pairs))


def one_point(pairs: Sequence[tuple[str, Any]] | None, what: str) -> dict[str, int]:
    """Return parsed sizes of which each has one value."""
    values = as_dict(pairs)
    for name, value in values.items():
        if not isinstance(value, int):
            said = f"{what} takes one value of {name}, not {len(value)}; give the command once for"
            raise ParameterError(f"{said} each of {', '.join(map(str, value))}", parameter=name)
    return values


class Progress:
    """Says what runs, how far it is and how long it will take: after two seconds, then each ten."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._work, self._began_s = now, "", now()
        self._due_s = self._began_s + 2.0

    def step(self, work: str, done: int, total: int | None = None) -> None:
        """Show a step of work, unless a line was printed shortly before."""
        now_s = self._now()
        if work != self._work or done == 0:
            self._work, self._began_s = work, now_s
        if now_s >= self._due_s:
            self._due_s = now_s + 10.0
            of = "" if total is None else f" of {total}"
            left_s = (now_s - self._began_s) / done * (total - done) if total and done else 0.0
            left = f", about {format_duration(left_s)} left" if left_s else ""
            say(f"{work}: {done}{of}{left}")
