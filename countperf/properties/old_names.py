"""Names of properties in documents of before version 0.2.0, and what they are called now.

Documents are migrated when they are read: property vectors, whose counts are added up where two of
before have one name now, models of version 1, weights of versions 1 and 2, and the counts of
compiled code in files of measurements.

===============================  =================================================
before                           now
===============================  =================================================
``exec...``, ``run...``          ``site...``, ``issue...``
``far``, ``wide``, ``vast``      ``l1_reuse``, ``l2_reuse``, ``beyond_l2``
``far1`` and so on               ``l1_reuse_conflict1`` and so on
``widedata``, ``vastdata``       ``data_l2_reuse``, ``data_beyond_l2``
``far_next``                     ``l1_reuse-next`` (steps along two axes)
``run.scalar.gmem.load.pitch``   ``issue.scalar.gmem.load.set_conflict``
``packed``, ``long``, ``loop8``  ``flat``, ``flat``, ``loop`` (placements)
``slp``, ``loop_slp8``           ``flat``, ``loop`` (placements)
``site...addresses.3``           (gone, see `is_gone`)
``site...chain.fma.f32.8``       ``site...chain.fma.f32`` (of 8 iterations)
``kept``, ``run.scalar.crowded`` ``live_across_barrier``, ``live_set_conflict``
``late.crowded``, ``late.stack`` ``miss.conflict``, ``spill.beyond_l1``
``beyond1``, ``beyond2``         ``beyond_l2``, ``beyond_llc`` (derived features)
===============================  =================================================
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

_LEVELS = {"far": "l1_reuse", "wide": "l2_reuse", "vast": "beyond_l2"}
_STEPS: Mapping[str, str] = {
    **{
        f"{old}{grade}": f"{new}_conflict{grade}" if grade else new
        for old, new in _LEVELS.items()
        for grade in ("", "1", "2", "3")
    },
    "widedata": "data_l2_reuse",
    "vastdata": "data_beyond_l2",
}
_SERVINGS = {**_LEVELS, "pitch": "set_conflict"}
_EVENTS = {"kept": "live_across_barrier", "crowded": "live_set_conflict"}
_PLACEMENTS = {
    **dict.fromkeys(("packed", "slp", "long"), "flat"),
    **{f"loop{prefix}{number}": "loop" for prefix in ("", "_slp") for number in (2, 4, 8)},
}
_LATE = {"late.crowded": "miss.conflict", "late.stack": "spill.beyond_l1"}
_SPACES = ("gmem", "lmem")
_CACHES = {"1": "beyond_l2", "2": "beyond_llc"}
_DERIVED = re.compile(r"((?:load|store)_(?:segments_)?)?beyond([12])")
_OUT_OF_REACH = re.compile(r"((?:scalar|vector)_(?:load|store)_)(far|wide|vast)(_out_of_reach)")
_IN_FORMULAS = ("run_", "late_")
_WORD = re.compile(r"[A-Za-z_]\w*")
_GONE = re.compile(r"(?:exec|site)\.\w+\.\w+\.\w+\.addresses\.\d+")


@lru_cache(maxsize=2**16)
def current_name(name: str) -> str:
    """Return what a property, or a pattern of properties, is called now."""
    root, *parts = name.split(".")
    match root:
        case "exec":
            return ".".join(("site", *_executed(parts)))
        case "site" if len(parts) > 1:
            place = _PLACEMENTS.get(parts[1], parts[1])
            return ".".join((root, parts[0], place, *parts[2:3], *_without_iterations(parts[3:])))
        case "run":
            return ".".join(("issue", *_issued(parts)))
        case "late":
            late = ".".join((root, *parts[:1]))
            return ".".join((_LATE.get(late, late), *parts[1:]))
        case _:
            return name


def is_gone(name: str) -> bool:
    """Return whether a property of old documents is not counted now: addresses over barriers."""
    return _GONE.fullmatch(name) is not None


def _executed(parts: list[str]) -> list[str]:
    if len(parts) < 4:
        return parts
    context, placement, shape, *what = parts
    match what:
        case ["gmem" | "lmem" as space, direction, bits, *steps]:
            what = [space, direction, bits, *map(_step, steps)]
        case ["guarded", space, direction, bits, *steps]:
            what = ["guarded", space, direction, bits, *map(_step, steps)]
        case ["kept", *rest]:
            what = [_EVENTS["kept"], *rest]
        case _:
            what = _without_iterations(what)
    return [context, _PLACEMENTS.get(placement, placement), shape, *what]


def _without_iterations(what: list[str]) -> list[str]:
    """Return what is counted at a site, chains alike whatever their iterations."""
    return what[:3] if what[:1] == ["chain"] else what


def _step(text: str) -> str:
    return "-".join(_STEPS.get(each, each) for each in text.split("_"))


def _issued(parts: list[str]) -> list[str]:
    match parts:
        case [unit, space, direction, serving] if space in _SPACES:
            return [unit, space, direction, _SERVINGS.get(serving, serving)]
        case ["*", serving] if serving in _SERVINGS:
            return ["*", _SERVINGS[serving]]
        case [unit, event]:
            return [unit, _EVENTS.get(event, event)]
        case _:
            return parts


def current_feature(name: str) -> str:
    """Return what a feature is called now, as a property, in a formula, or derived."""
    if derived := _DERIVED.fullmatch(name):
        return f"{derived[1] or ''}{_CACHES[derived[2]]}"
    if shared := _OUT_OF_REACH.fullmatch(name):
        return f"{shared[1]}{_LEVELS[shared[2]]}{shared[3]}"
    if name.startswith(_IN_FORMULAS):
        return current_name(name.replace("_", ".")).replace(".", "_")
    return current_name(name)


def current_formula(text: str) -> str:
    """Return a formula with the names of now."""
    return _WORD.sub(lambda word: current_feature(word[0]), text)
