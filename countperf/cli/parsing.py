"""Values of arguments, read from their texts for argparse."""

from __future__ import annotations

import argparse
import ast
import math
from pathlib import Path

from countperf.errors import ParameterError
from countperf.sizes import parse_sizes

_DIGITS = 20  # of the largest integer of 64 bits


def assignment(text: str) -> tuple[str, str]:
    """Split ``name=value``, for argparse."""
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form name=value")
    return name.strip(), value.strip()


def named(text: str) -> str:
    """Refuse an empty text, for argparse."""
    if not text.strip():
        raise argparse.ArgumentTypeError(f"{text!r} names nothing; leave the option out")
    return text


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
        counts = ast.literal_eval(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        counts = None
    if isinstance(counts, dict) and all(
        isinstance(i, str)
        and isinstance(numbers, dict)
        and all(
            isinstance(name, str) and isinstance(number, int | float) and number is not True
            for name, number in numbers.items()
        )
        for i, numbers in counts.items()
    ):
        return counts
    raise argparse.ArgumentTypeError(
        f"{text!r} is no dictionary of numbers by property name by instruction, such as"
        " {'raw': {'flop.add.f32': 1}}"
    )


def anchor_run(text: str) -> tuple[dict[str, int], float] | Path:
    """Parse ``n=1024,m=64:0.0021``, or a file of ``countperf time --save``, for argparse."""
    if "=" not in text or Path(text).is_file():
        return Path(text)
    sizes, sign, seconds = text.rpartition(":")
    try:
        time_s = positive(seconds)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {seconds!r} is no time in s") from error
    if not sign:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not of the form n=1024:0.0021, and no file of countperf time --save"
        )
    pairs = [size(part) for part in sizes.split(",") if part]
    if len(dict(pairs)) < len(pairs):
        raise argparse.ArgumentTypeError(f"{text!r} gives a size twice; give it once")
    return dict(pairs), time_s
