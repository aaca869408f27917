"""Arguments and output that several commands have in common."""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import math
import re
import shlex
from collections.abc import Generator, Sequence
from typing import Any

from countperf.errors import ParameterError
from countperf.sizes import combine_sizes, parse_sizes
from countperf.user_code import stdout_to_stderr

_DIGITS = 20  # of the largest integer of 64 bits
_pending: list[list[str]] = []
"""Documents that are printed when standard output is given back, for each `only_documents`."""


def print_json(content: Any) -> None:
    """Print one JSON document on standard output."""
    text = json.dumps(content, indent=2, allow_nan=False)
    if _pending:
        _pending[-1].append(text)
    else:
        print(text)


@contextlib.contextmanager
def only_documents() -> Generator[None]:
    """Let nothing but what `print_json` prints reach standard output.

    What kernels, their compilers and processes that they start print meanwhile goes to standard
    error; the documents follow at the end.
    """
    documents: list[str] = []
    _pending.append(documents)
    try:
        with stdout_to_stderr():
            yield
    finally:
        _pending.pop()
        for text in documents:
            print(text)


def assignment(text: str) -> tuple[str, str]:
    """Split ``name=value``, for argparse."""
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form name=value")
    return name.strip(), value.strip()


def size(text: str) -> tuple[str, int]:
    """Parse ``n=1024``, for argparse."""
    name, value = assignment(text)
    if len(value) > _DIGITS:
        shown = f"{name}={value[:_DIGITS]}..."
        raise argparse.ArgumentTypeError(f"{shown}: {len(value)} digits are more than any size has")
    try:
        return name, int(value)
    except ValueError as error:
        if "," in value or ":" in value:
            raise argparse.ArgumentTypeError(
                f"{text!r}: one value of {name} is taken here, as in {name}=1024; give the command"
                " once for each value"
            ) from error
        raise argparse.ArgumentTypeError(f"{text!r}: {value!r} is no integer") from error


def sizes(text: str) -> tuple[str, int | tuple[int, ...]]:
    """Parse ``n=1024``, ``n=256,512``, ``n=256:4096:8`` or ``n=256:4096:8:log``, for argparse."""
    name, value = assignment(text)
    try:
        return name, parse_sizes(name, value)
    except ParameterError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def natural(text: str) -> int:
    """Parse an integer that is at least 1, for argparse."""
    try:
        value = int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no integer") from error
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return value


def positive(text: str) -> float:
    """Parse a finite number above 0, for argparse."""
    try:
        value = float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from error
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no number above 0")
    return value


def statistic(text: str) -> tuple[str, float | str]:
    """Parse ``row_length=12.5``, ``update=0.3`` or ``x=stride1``, for argparse."""
    from countperf.counting.statistics import ACCESS_CLASSES  # start-up: it imports Loopy

    name, sign, value = text.rpartition("=")
    if value.strip() in ACCESS_CLASSES:
        return name.strip(), value.strip()
    try:
        return name.strip(), float(value)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r}: {value!r} is no number, and no access pattern such as stride1"
        ) from error
    finally:
        del sign


def instruction_counts(text: str) -> dict[str, dict[str, float]]:
    """Parse ``{'raw': {'flop.add.f32': 1}}``, as messages print it, for argparse."""
    try:
        found = ast.literal_eval(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        found = None
    if isinstance(found, dict) and all(
        isinstance(i, str)
        and isinstance(numbers, dict)
        and all(
            isinstance(name, str) and isinstance(number, int | float) and number is not True
            for name, number in numbers.items()
        )
        for i, numbers in found.items()
    ):
        return found
    raise argparse.ArgumentTypeError(
        f"{text!r} is no dictionary of numbers by property name by instruction, such as"
        " {'raw': {'flop.add.f32': 1}}"
    )


_OPTIONS = {
    "active_groups": "active_groups",
    "analysis": "analysis",
    "busy": "busy",
    "by_code": "by_code",
    "device": "device",
    "document": "device_document",
    "every_group": "every_group",
    "force": "force",
    "ignore": "ignore",
    "incomplete_ok": "incomplete",
    "kernel": "kernel",
    "kernels": "kernels",
    "longest_s": "longest",
    "make_arguments": "arguments",
    "measurements": "measurements",
    "minutes": "minutes",
    "model": "model",
    "nonnegative": "nonnegative",
    "occupancy": "occupancy",
    "registers_per_work_item": "registers",
    "store": "store",
    "timing": "timing",
    "weights": "weights",
}
"""Where the command line has them: parameters that messages name."""
_ADVICE = re.compile(
    rf"\b({'|'.join(_OPTIONS)})=(True|\{{[^{{}}]*\}}|'[^']*'|\"[^\"]*\"|[\w./-]*\w)?"
)
_PAIR = re.compile(r"""['"]([^'"]*)['"]\s*:\s*['"]?([^'",}]+)""")


def in_options(text: str, options: argparse.Namespace) -> str:
    """Write the parameters of functions that a message names as options of a command.

    What the command has no option for stays as it is.
    """

    def option(match: re.Match[str]) -> str:
        name, value = match[1], match[2] or ""
        if not hasattr(options, _OPTIONS[name]):
            return match[0]
        flag = f"--{_OPTIONS[name].replace('_', '-')}"
        if value.startswith("{"):
            pairs = (shlex.quote(f"{key}={one}") for key, one in _PAIR.findall(value))
            return " ".join(f"{flag} {pair}" for pair in pairs) or flag
        return flag if value in ("True", "") else f"{flag} {value.strip(chr(39) + chr(34))}"

    return _ADVICE.sub(option, text)


def as_dict(pairs: Sequence[tuple[str, Any]] | None) -> dict[str, Any]:
    """Collect parsed ``name=value`` pairs."""
    found: dict[str, Any] = {}
    for name, value in pairs or ():
        if name in found:
            raise ParameterError(
                f"{name} is given twice: {name}={found[name]} and {name}={value}; give it once",
                parameter=name,
            )
        found[name] = value
    return found


def points(pairs: Sequence[tuple[str, Any]] | None) -> list[dict[str, int]]:
    """Return the points that parsed sizes name together; errors as of `as_dict` and for lists."""
    return combine_sizes(as_dict(pairs))


def one_point(pairs: Sequence[tuple[str, Any]] | None, what: str) -> dict[str, int]:
    """Return parsed sizes of which each has one value."""
    found = as_dict(pairs)
    for name, value in found.items():
        if not isinstance(value, int):
            raise ParameterError(
                f"{what} takes one value of {name}, not {len(value)}; give the command once for"
                f" each of {', '.join(map(str, value))}",
                parameter=name,
            )
    return found


def add_kernel(command: argparse.ArgumentParser) -> None:
    """Add the kernel, its parameters and statistics."""
    command.add_argument(
        "kernel",
        help="path/file.py:function, package.module:function, a catalogue name, or a "
        "property-vector document (.json)",
    )
    command.add_argument(
        "parameters",
        nargs="*",
        type=sizes,
        metavar="name=value",
        help="size parameters: n=1024; several values at once: n=256,512,1024, n=256:4096:8 (evenly"
        " spaced, both ends) or n=256:4096:8:log; several parameters with the same number of"
        " values are combined value by value",
    )
    command.add_argument(
        "--statistics",
        action="append",
        type=statistic,
        metavar="NAME=VALUE",
        help="a number for values that depend on data: mean trip count of a loop, probability of a "
        "condition, or access pattern of an array (such as x=stride1)",
    )


def add_instruction_counts(command: argparse.ArgumentParser) -> None:
    """Add ``--instruction-counts``."""
    command.add_argument(
        "--instruction-counts",
        type=instruction_counts,
        metavar="DICT",
        help="counts for one execution of each instruction without a counting rule (C code, atomic"
        " updates), such as \"{'raw': {'flop.add.f32': 1, 'gmem.load.32.stride1': 1}}\"",
    )


def add_device(command: argparse.ArgumentParser, text: str) -> None:
    """Add ``--device``."""
    command.add_argument(
        "--device", metavar="NAME", help=f"pocl:0, intel:0, or a part of a name; {text}"
    )


def add_weights(command: argparse.ArgumentParser) -> None:
    """Add ``--weights`` and ``--force``."""
    command.add_argument(
        "--weights",
        metavar="SLUG|PATH",
        help="fitted weights: a device's slug or a file; by default those of --device",
    )
    command.add_argument(
        "--force", action="store_true", help="use weights that do not match the device"
    )


def add_completeness(command: argparse.ArgumentParser) -> None:
    """Add ``--incomplete``."""
    command.add_argument(
        "--incomplete",
        action="store_true",
        help="leave out properties without a weight, and mark the prediction incomplete; guess how"
        " a cost is shared by properties that the fit cannot tell apart",
    )


def add_longest(command: argparse.ArgumentParser, text: str, default: float | None = 300.0) -> None:
    """Add ``--longest``."""
    command.add_argument(
        "--longest", type=positive, default=default, metavar="SECONDS", help=f"end {text}"
    )


def add_level(command: argparse.ArgumentParser) -> None:
    """Add ``--level``."""
    command.add_argument(
        "--level",
        type=float,
        choices=(0.9, 0.95),
        default=0.95,
        help="share of cases in which the interval holds the measured time (default: 0.95)",
    )


def add_model(command: argparse.ArgumentParser) -> None:
    """Add ``--model``, where weights are looked up by slug."""
    command.add_argument(
        "--model",
        metavar="NAME",
        help="model whose weights predict, such as linear (the paper's); by default the one that"
        " reads compiled code wherever device and compiler are here, else the structural one;"
        " uncorrected: that without its correction by similar kernels",
    )
