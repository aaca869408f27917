"""How an address changes from one item or iteration to the next, and what caches make of it.

An access whose steps lead to other lines *walks*: along copies, items, loops, groups, in the order
in which a processor runs them, until a step along one of them leads it back to the first line (to
the same element, or to a neighbor of it). Whether a cache still keeps that line depends on how many
lines lie between, and on how many of them share a set.

- ``far`` are walks of at most 768 lines, which a first-level cache of 48 KiB keeps, ``wide`` those
  of at most 16384, which a second-level one of 1 MiB keeps, ``vast`` the others.
- Lines at multiples of 4096 bytes share one of the 64 sets of that first-level cache, which keeps
  12 of them; at multiples of 2048 bytes, two sets keep 24. Of longer walks, at least ``1 - kept /
  lines`` of the accesses miss, however lines are replaced: about a quarter of up to twice as many
  lines (``far1``), five eighths of up to four times as many (``far2``), nearly all of more
  (``far3``). Measured times of such walks follow these shares, not those of LRU, which misses all.
- A second-level cache spreads its lines better, since it hashes addresses: it keeps about 1024 and
  2048 of such lines. Walks of more are ``vast3``, and if a first-level cache of that size would not
  keep them either, ``wide3``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from countperf.counting.domains import Domains
from countperf.counting.places import Place
from countperf.counting.strides import AxisStride
from countperf.symbolic import sets
from countperf.symbolic.piecewise import ZERO_COUNT, PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import QuasiPolynomial

__all__ = ["LINE_BYTES", "Step", "Walk", "sorted_by_size", "sorted_by_step", "step_of", "walk_of"]

Step = Literal[
    "same",
    "next",
    "offset",
    "shifted",
    "masked",
    "near",
    "far",
    "far1",
    "far2",
    "far3",
    "wide",
    "wide3",
    "vast",
    "vast3",
    "data",
    "widedata",
    "vastdata",
]

LINE_BYTES = 64
_ENDLESS = 2**62
_LIMITS: Mapping[int, Mapping[Step, int]] = {
    4096: {"far": 12, "far1": 24, "far2": 48, "far3": 768, "wide3": 1024, "vast3": _ENDLESS},
    2048: {"far": 24, "far1": 48, "far2": 96, "far3": 768, "wide3": 2048, "vast3": _ENDLESS},
    1: {"far": 768, "wide": 16384, "vast": _ENDLESS},
}
"""At multiples of so many bytes, the most lines of walks by step."""
_SCATTERED: Mapping[Step, int] = {"data": 768, "widedata": 16384, "vastdata": _ENDLESS}
"""The most lines of arrays that data leads anywhere in."""
_ONE = QuasiPolynomial.constant(1)


@dataclass(frozen=True, slots=True)
class Walk:
    """A way through other lines.

    Attributes
    ----------
    lines : QuasiPolynomial or None
        How many it goes through until it comes back to the first; None if that is not known.
    steps : tuple of QuasiPolynomial
        Distances between them along each of the axes and loops that it goes along, elements.
    """

    lines: QuasiPolynomial | None
    steps: tuple[QuasiPolynomial, ...]


def walk_of(
    place: Place,
    bits: int,
    strides: Sequence[AxisStride],
    own: Sequence[str],
    *,
    items_first: bool,
) -> Walk:
    """Find how far an access goes until it comes back.

    Parameters
    ----------
    place : Place
        Where it is executed.
    bits : int
        Size of an element.
    strides : sequence of AxisStride
        Along all axes of the launch and all loops, outer loops first.
    own : sequence of str
        The items' own loops around the access.
    items_first : bool
        Whether the items of a group take each iteration of these loops one after the other, or
        each item all of its iterations.
    """
    of_kind: defaultdict[str, list[AxisStride]] = defaultdict(list)
    for each in strides:
        of_kind[each.kind].append(each)
    items = of_kind["local"]
    loops = [each for each in reversed(strides) if each.iname in own]
    order = [
        *of_kind["unrolled"],
        *([*items, *loops] if items_first else [*loops, *items]),
        *reversed(of_kind["barrier loop"]),
        *of_kind["group"],
    ]
    lines, steps = _ONE, list[QuasiPolynomial]()
    for each in order:
        extent = _extent(place, each)
        if extent == _ONE:
            continue
        if extent is None or each.stride is None:
            return Walk(None, tuple(steps))
        if step_of(each.stride, bits) == "far":
            lines *= extent
            steps.append(each.stride)
        elif each.kind != "unrolled":  # few copies, on a line that others use as well
            break
    return Walk(lines, tuple(steps))


def _extent(place: Place, along: AxisStride) -> QuasiPolynomial | None:
    """Return how long an axis or a loop is at most; None where data decides."""
    if along.kind == "local" and along.axis is not None:
        return QuasiPolynomial.constant(place.grid.items[along.axis])
    if along.kind == "group" and along.axis is not None:
        return place.grid.groups[along.axis].as_polynomial()
    key = ("extent", along.iname)
    if key not in place.memo:
        assert along.iname is not None  # of a loop
        place.memo[key] = _length(place.domains, along.iname)
    return place.memo[key]


def _length(domains: Domains, loop: str) -> QuasiPolynomial | None:
    counted, _ = domains.trip_statistics(frozenset([loop]))
    if not counted:
        return None
    terms = domains.counter.count(domains.domain(counted)).terms
    if len(terms) == 1:
        return terms[0].value  # where it is not empty
    low, high = sets.constant_bounds(domains.domain(counted))[loop]
    return None if low is None or high is None else QuasiPolynomial.constant(high - low + 1)


def step_of(stride: QuasiPolynomial | None, bits: int) -> Step:
    """Return the step of an address that changes by so many elements; ``far`` if by a symbol."""
    if stride is None:
        return "data"
    if not stride.is_constant:
        return "far"
    size = abs(stride.constant_term)
    if size == 0:
        return "same"
    if size == 1:
        return "next"
    return "near" if size < max(LINE_BYTES * 8 // bits, 1) else "far"


def sorted_by_step(
    stride: QuasiPolynomial | None,
    bits: int,
    executions: PiecewiseQuasiPolynomial,
    walk: Callable[[], Walk],
) -> list[tuple[Step, PiecewiseQuasiPolynomial]]:
    """Sort executions of an access by its step, which may depend on the parameters.

    Parameters
    ----------
    stride : QuasiPolynomial or None
        Change of the address, elements; None if it is uneven or read from data.
    bits : int
        Size of an element.
    executions : PiecewiseQuasiPolynomial
        How often it is executed.
    walk : callable
        Finds on which walk it is; asked only if the step leads to other lines.
    """
    step = step_of(stride, bits)
    if step != "far" or stride is None:
        return [(step, executions)]
    found = walk()
    parts: defaultdict[Step, PiecewiseQuasiPolynomial] = defaultdict(lambda: ZERO_COUNT)
    before = ZERO_COUNT
    for pitch, limits in _LIMITS.items():
        on_pitch = _on_pitch(found.steps or (stride,), pitch * 8 // bits, executions)
        some = on_pitch + before.scale(-1)
        before = on_pitch
        for level, part in _by_lines(found.lines, some, limits) if some else ():
            parts[level] += part
    return [(level, part) for level, part in parts.items() if part]


def sorted_by_size(
    elements: QuasiPolynomial | None, bits: int, executions: PiecewiseQuasiPolynomial
) -> list[tuple[Step, PiecewiseQuasiPolynomial]]:
    """Sort executions of an access that data leads anywhere in an array.

    Parameters
    ----------
    elements : QuasiPolynomial or None
        Of the array; None if that is not known: then it is taken to be large.
    bits : int
        Size of an element.
    executions : PiecewiseQuasiPolynomial
        How often it is executed.
    """
    if elements is None:
        return [("vastdata", executions)]
    line = LINE_BYTES * 8 // bits
    limits: dict[Step, int] = {
        step: limit if limit == _ENDLESS else limit * line for step, limit in _SCATTERED.items()
    }
    return [(step, part) for step, part in _by_lines(elements, executions, limits) if part]


def _on_pitch(
    steps: Sequence[QuasiPolynomial], elements: int, executions: PiecewiseQuasiPolynomial
) -> PiecewiseQuasiPolynomial:
    """Return the executions for which all steps are multiples of some elements."""
    remainders = [each.modulo(elements) for each in steps] if elements > 1 else []
    if any(each.is_constant and each for each in remainders):
        return ZERO_COUNT
    return executions.restricted((), [each for each in remainders if not each.is_constant])


def _by_lines(
    lines: QuasiPolynomial | None,
    executions: PiecewiseQuasiPolynomial,
    limits: Mapping[Step, int],
) -> Iterator[tuple[Step, PiecewiseQuasiPolynomial]]:
    """Sort executions by the first limit that some lines keep to; the last where unknown."""
    if lines is None:
        yield "vast", executions
        return
    left = executions
    for step, limit in limits.items():
        if limit == _ENDLESS:
            beyond = ZERO_COUNT
        elif lines.is_constant:
            beyond = left if lines.constant_term > limit else ZERO_COUNT
        else:
            beyond = executions.restricted((lines - (limit + 1),))
        yield step, left + beyond.scale(-1)
        left = beyond
