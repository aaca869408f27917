"""Strides of memory accesses along every axis of the launch and every loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from countperf.counting.accesses import Address, step_along
from countperf.counting.domains import Domains
from countperf.counting.lane_steps import main_step, steps_along
from countperf.counting.places import Place
from countperf.display import ShortRepr
from countperf.symbolic import isl_sets, sets
from countperf.symbolic.quasipolynomial import QuasiPolynomial

AxisKind = Literal["local", "group", "loop", "barrier loop", "launch loop", "unrolled"]

__all__ = ["AxisKind", "AxisStride", "strides_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisStride(ShortRepr):
    """Change of an access's address along one axis of the launch or one loop."""

    # what runs along it: work items of a group, groups, iterations of an item's own loop, of a loop
    # that contains barriers, of a host loop around the launch, or copies of the instruction
    # (``unr``, ``ilp``)
    kind: AxisKind
    axis: int | None  # number of the local or group axis; None for loops
    # the loop variable; None for an axis of the launch that the access does not use (all items
    # along it access the same element)
    iname: str | None
    # signed change of the address from one value to the next, elements; None where it is not the
    # same everywhere, or where the address is read from data
    stride: QuasiPolynomial | None
    reason: str = ""  # why there is no stride; empty otherwise

    def __str__(self) -> str:
        name = self.kind if self.axis is None else f"{self.kind} {self.axis}"
        value = f"uneven ({self.reason})" if self.stride is None else str(self.stride)
        return f"{name}{f' {self.iname}' if self.iname else ''}: {value}"


def strides_of(
    place: Place,
    address: Address | None,
    kinds: Mapping[str, AxisKind],
    changing: Mapping[str, frozenset[str]],
    *,
    of_most: bool = False,
) -> tuple[AxisStride, ...]:
    """Return the strides along all axes of the launch and all loops around an access."""
    domains = place.domains
    if address is not None:
        address = address.with_values(domains.determined(place.within))
    result: list[AxisStride] = []
    for kind, extents, axes in (
        ("local", place.grid.items, domains.local_axes),
        ("group", place.grid.groups, domains.group_axes),
    ):
        names = {axes[name]: name for name in place.within if name in axes}
        for axis in sorted(extents):
            is_lane = of_most and (kind, axis) == ("local", 0)
            stride, reason = _stride(place, address, names.get(axis), changing, of_most=is_lane)
            result.append(
                AxisStride(
                    kind="local" if kind == "local" else "group",
                    axis=axis,
                    iname=names.get(axis),
                    stride=stride,
                    reason=reason,
                )
            )
    copies = sorted(
        name
        for name in place.within
        if name not in place.loops
        and name not in domains.local_axes
        and name not in domains.group_axes
    )
    for name in (*place.loops, *copies):
        if name not in place.within:
            continue
        stride, reason = _stride(place, address, name, changing)
        result.append(
            AxisStride(kind=kinds[name], axis=None, iname=name, stride=stride, reason=reason)
        )
    return tuple(result)


def _stride(
    place: Place,
    address: Address | None,
    name: str | None,
    changing: Mapping[str, frozenset[str]],
    *,
    of_most: bool = False,
) -> tuple[QuasiPolynomial | None, str]:
    if address is None:
        return None, "the address is read from data"
    data = sorted(address.flat.names() & changing.keys())
    varying = [scalar for scalar in data if name is None or name in changing[scalar]]
    if varying:
        return None, f"it depends on {', '.join(varying)}, which is data"
    if name is None or name not in address.flat.names():
        return QuasiPolynomial(), ""
    bounds = _bounds(place.domains, place)
    stride = step_along(address.flat, name, bounds)
    if stride is None:
        stride = _main_stride(place, address.flat, name, bounds, of_most=of_most)
    if stride is not None:
        return stride, ""
    step = address.flat.substitute({name: QuasiPolynomial.name(name) + 1}) - address.flat
    causes = ", ".join(sorted(step.names() & set(bounds)))
    return None, f"the change depends on {causes}"


def _main_stride(
    place: Place, flat: QuasiPolynomial, name: str, bounds: isl_sets.Bounds, *, of_most: bool
) -> QuasiPolynomial | None:
    counted, _ = place.domains.trip_statistics(place.within)
    if not flat.names() <= counted | place.domains.sizes:
        return None
    known = place.domains.with_known_quotients(counted, flat)
    steps = steps_along(known, name, bounds, place.domains.domain(counted))
    return main_step(steps) if of_most or len(steps) == 1 else None


def _bounds(domains: Domains, place: Place) -> isl_sets.Bounds:
    key = ("bounds", place.within)
    found = place.memo.get(key)
    if found is None:
        counted, _ = domains.trip_statistics(place.within)
        known = sets.constant_bounds(domains.domain(counted)) if counted else {}
        found = {**dict.fromkeys(sorted(place.within), (None, None)), **known}
        place.memo[key] = found
    return found
