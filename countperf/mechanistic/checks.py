"""Checks of the numbers that models are given: reject, never clamp."""

from __future__ import annotations

import math
from collections.abc import Sequence

from countperf.errors import ParameterError


def check_positive(value: float, name: str) -> float:
    """Return a number that must be positive and finite."""
    if not (math.isfinite(value) and value > 0):
        message = f"{name} must be positive and finite, not {value}"
        raise ParameterError(message, parameter=name)
    return value


def check_not_negative(value: float, name: str) -> float:
    """Return a number that must be finite and not negative; errors as in `check_positive`."""
    if not (math.isfinite(value) and value >= 0):
        message = f"{name} must be finite and not negative, not {value}"
        raise ParameterError(message, parameter=name)
    return value


def check_whole(value: int, name: str, *, least: int = 1) -> int:
    """Return a number that must be whole and at least some bound."""
    if isinstance(value, bool) or not isinstance(value, int):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be unchecked
        message = f"{name} must be a whole number, not {value!r}"
        raise ParameterError(message, parameter=name)
    if value < least:
        message = f"{name} must be at least {least}, not {value}"
        raise ParameterError(message, parameter=name)
    return value


def check_choice(value: str, name: str, choices: Sequence[str]) -> None:
    """Refuse an option that is none of the choices."""
    if value not in choices:
        message = f"{name} must be one of {', '.join(choices)}, not {value!r}"
        raise ParameterError(message, parameter=name)
