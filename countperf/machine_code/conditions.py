"""Conditions of jumps and moves, by the flags."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from countperf.machine_code.machine_state import Flags
from countperf.machine_code.operands import Condition, Machine, signed


def _below(f: Flags) -> bool:
    if f.kind == "sub":
        return f.first < f.second
    return bool(f.first) if f.kind == "exact" else f.result < f.first


def _less(f: Flags) -> bool:
    if f.kind == "sub":
        return signed(f.first, f.bits) < signed(f.second, f.bits)
    if f.kind == "add":
        return signed(f.first, f.bits) + signed(f.second, f.bits) < 0
    return bool(f.result >> (f.bits - 1)) != bool(f.second)


_CONDITIONS: Mapping[str, Callable[[Flags], bool]] = {
    "e": lambda f: f.result == 0,
    "b": _below,
    "be": lambda f: _below(f) or f.result == 0,
    "l": _less,
    "le": lambda f: _less(f) or f.result == 0,
    "s": lambda f: bool(f.result >> (f.bits - 1)),
    "o": lambda f: _less(f) != bool(f.result >> (f.bits - 1)),
    "p": lambda f: (f.result & 0xFF).bit_count() % 2 == 0,
}
_ALIASES = {
    **{"z": "e", "c": "b", "nae": "b", "na": "be", "nge": "l", "ng": "le", "pe": "p"},
    **{"nz": "ne", "nb": "ae", "nc": "ae", "nbe": "a", "nl": "ge", "nle": "g", "po": "np"},
}
_OPPOSITE = {"ne": "e", "ae": "b", "a": "be", "ge": "l", "g": "le", "ns": "s", "no": "o", "np": "p"}
UNSIGNED = frozenset({"b", "be", "a", "ae"})
ORDERS = UNSIGNED | {"l", "le", "g", "ge", "s", "ns"}
EQUALITY = frozenset({"e", "ne"})


def canonical(suffix: str) -> str:
    """Return the usual name of a condition."""
    return _ALIASES.get(suffix, suffix)


@lru_cache(maxsize=64)
def condition_of(suffix: str) -> Condition | None:
    """Return what decides a condition, by the end of the name of an instruction, such as ``ne``.

    It returns None where the flags are not known.
    """
    suffix = canonical(suffix)
    is_opposite = suffix in _OPPOSITE
    test = _CONDITIONS.get(_OPPOSITE.get(suffix, suffix))
    if test is None:
        return None

    def decide(machine: Machine) -> bool | None:
        flags = machine.flags
        return None if flags is None else test(flags) != is_opposite

    return decide
