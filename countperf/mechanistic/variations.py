"""Variations of a kernel's profile along one axis: occupancy, group size, intensity, parallelism.

Each returns the profile and launch of a kernel that differs from the given one in one respect. They
are what-if curves: a real kernel may change in other respects at the same time (registers, caches).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal, get_args

from countperf.errors import ModelNotApplicableError
from countperf.hardware.parameters import DeviceParameters
from countperf.mechanistic.checks import check_choice, check_whole
from countperf.mechanistic.profile import InstructionGraph, ProfiledKernel

Axis = Literal["occupancy", "group_size", "intensity", "ilp", "mlp"]

AXES: tuple[Axis, ...] = get_args(Axis)


def vary(
    profiled: ProfiledKernel, axis: Axis, value: int, device: DeviceParameters
) -> ProfiledKernel:
    """Return a kernel with another value on an axis."""
    check_whole(value, axis)
    varied: dict[Axis, Callable[[], ProfiledKernel]] = {
        "occupancy": lambda: replace(
            profiled, launch=replace(profiled.launch, active_groups=value, occupancy=None)
        ),
        "group_size": lambda: _regrouped(profiled, value),
        "intensity": lambda: _intensified(profiled, value, device),
        "ilp": lambda: _coarsened(profiled, value, device, overlapping="compute"),
        "mlp": lambda: _coarsened(profiled, value, device, overlapping="memory"),
    }
    check_choice(axis, "over", AXES)
    return varied[axis]()


def _regrouped(profiled: ProfiledKernel, size: int) -> ProfiledKernel:
    profile, launch = profiled.profile, profiled.launch
    items = launch.work_items_per_group * launch.num_groups
    local = profile.local_bytes_per_group
    if local is not None:
        local = -(-local * size // launch.work_items_per_group)
    return ProfiledKernel(
        profile=replace(profile, local_bytes_per_group=local, sub_group_idgs=None),
        launch=replace(launch, work_items_per_group=size, num_groups=-(-items // size)),
    )


def _is_operation(name: str, device: DeviceParameters) -> bool:
    kind = device.require_class(name, model="a sweep").kind
    return kind == "compute" and not name.startswith(("load.", "store.", "ld.", "st."))


def _intensified(profiled: ProfiledKernel, times: int, device: DeviceParameters) -> ProfiledKernel:
    profile = profiled.profile
    graph: InstructionGraph = profile.require("idg", model="a sweep")
    counts = profile.counts(model="a sweep")
    alpha = {
        name: count * (times if _is_operation(name, device) else 1)
        for name, count in counts.items()
    }
    more = sum(alpha.values()) - sum(counts.values())
    if times > 1 and not more:
        message = f"kernel {profile.name!r} has no operations, so its intensity cannot be varied"
        raise ModelNotApplicableError(message, parameter="alpha")
    nodes: list[str] = []
    edges: list[tuple[int, int]] = []
    first: list[int] = []
    last: list[int] = []
    for name in graph.nodes:
        first.append(len(nodes))
        repeated = times if _is_operation(name, device) else 1
        edges += [(len(nodes) + k, len(nodes) + k + 1) for k in range(repeated - 1)]
        nodes += [name] * repeated
        last.append(len(nodes) - 1)
    edges += [(last[source], first[target]) for source, target in graph.edges]
    return replace(
        profiled,
        profile=replace(
            profile,
            alpha=alpha,
            alpha_comp=_plus(profile.alpha_comp, more),
            idg=InstructionGraph(nodes, edges),
            sub_group_idgs=None,
            idg_is_sample=profile.idg_is_sample or profile.sub_group_idgs is not None,
            total_flops=_times(profile.total_flops, times),
            work=_times(profile.work, times),
            span=None if profile.span is None else profile.span * len(nodes) / len(graph.nodes),
            ins_cuda=_times(profile.ins_cuda, times),
            ins_issued=_plus(profile.ins_issued, more),
            **_UNKNOWN,
        ),
    )


_UNKNOWN = {
    "blocks": None,
    "intervals": None,
    "dependent": None,
    "independent": None,
    "latency_app": None,
    "latency_bound": None,
}
"""Fields that other numbers follow from, as far as a varied graph has them."""

_PER_SUB_GROUP = (
    "alpha_comp",
    "alpha_mem",
    "alpha_mem_coal",
    "alpha_mem_uncoal",
    "gmem_bytes",
    "ins_cuda",
    "ins_issued",
)


def _coarsened(
    profiled: ProfiledKernel,
    times: int,
    device: DeviceParameters,
    *,
    overlapping: Literal["compute", "memory"],
) -> ProfiledKernel:
    """Return a kernel each of whose work items does the work of several, one graph beside another.

    A barrier is executed once for all of them.
    """
    profile, launch = profiled.profile, profiled.launch
    graph: InstructionGraph = profile.require("idg", model="a sweep")
    kinds = [device.require_class(name, model="a sweep").kind for name in graph.nodes]
    nodes: list[str] = []
    place: dict[tuple[int, int], int] = {}
    edges: list[tuple[int, int]] = []
    for node, (name, kind) in enumerate(zip(graph.nodes, kinds, strict=True)):
        for copy in range(times):
            if kind == "barrier" and copy:
                place[node, copy] = place[node, 0]
                continue
            place[node, copy] = len(nodes)
            nodes.append(name)
            if copy and kind != overlapping:
                edges.append((place[node, copy - 1], place[node, copy]))
    edges += [(place[s, copy], place[t, copy]) for s, t in graph.edges for copy in range(times)]
    alpha = {
        name: count * (1 if device.require_class(name).kind == "barrier" else times)
        for name, count in profile.counts(model="a sweep").items()
    }
    return ProfiledKernel(
        profile=replace(
            profile,
            alpha=alpha,
            idg=InstructionGraph(nodes, [edge for edge in edges if edge[0] != edge[1]]),
            sub_group_idgs=None,
            idg_is_sample=profile.idg_is_sample or profile.sub_group_idgs is not None,
            **{name: _times(getattr(profile, name), times) for name in _PER_SUB_GROUP},
            **_UNKNOWN,
        ),
        launch=replace(launch, num_groups=-(-launch.num_groups // times)),
    )


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _plus(value: float | None, more: float) -> float | None:
    return None if value is None else value + more
