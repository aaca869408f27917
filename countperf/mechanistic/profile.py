"""Profile of a kernel for mechanistic models: work of a sub-group, dependencies, resources, launch.

Counts are per *sub-group* unless stated: where all work items of a sub-group take the same path,
one sub-group instruction serves all of them, and the count equals that of a single work item.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self, get_args

from countperf.devices.parameters import DeviceParameters, InstructionKind
from countperf.errors import ModelNotApplicableError, ParameterError
from countperf.mechanistic.classes import charge_traffic
from countperf.mechanistic.traffic import Traffic
from countperf.models.definition import Resource
from countperf.models.predictions import ParameterValue, Prediction, largest_first
from countperf.text import ShortRepr


def check_positive(value: float, name: str) -> float:
    """Return a number that must be positive and finite."""
    if not (math.isfinite(value) and value > 0):
        raise ParameterError(f"{name} must be positive and finite, not {value}", parameter=name)
    return value


def check_not_negative(value: float, name: str) -> float:
    """Return a number that must be finite and not negative."""
    if not (math.isfinite(value) and value >= 0):
        raise ParameterError(f"{name} must be finite and not negative, not {value}", parameter=name)
    return value


def check_whole(value: int, name: str, *, least: int = 1) -> int:
    """Return a number that must be whole and at least some bound."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ParameterError(f"{name} must be a whole number, not {value!r}", parameter=name)
    if value < least:
        raise ParameterError(f"{name} must be at least {least}, not {value}", parameter=name)
    return value


def check_choice(value: str, name: str, choices: Any) -> str:
    """Return a word that must be one of those of a `Literal`."""
    if value not in get_args(choices):
        known = ", ".join(get_args(choices))
        raise ParameterError(f"{name} must be one of {known}, not {value!r}", parameter=name)
    return value


def check_fields(of: object, check: Callable[[Any, str], Any], names: str) -> None:
    """Check fields of an object by their names; those that are None pass."""
    for name in names.split():
        if (value := getattr(of, name)) is not None:
            check(value, name)


@dataclass(frozen=True)
class InstructionGraph(ShortRepr):
    """Instructions of a sub-group in program order, and which results each waits for."""

    nodes: Sequence[str]  # class of each instruction, in program order
    # ``(i, j)``: instruction ``j`` uses the result of instruction ``i``
    edges: Sequence[tuple[int, int]] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", tuple(self.nodes))
        object.__setattr__(self, "edges", tuple(sorted({(int(i), int(j)) for i, j in self.edges})))
        if not self.nodes:
            message = "an instruction graph needs at least one instruction"
            raise ParameterError(message, parameter="nodes")
        for source, target in self.edges:
            if not 0 <= source < target < len(self.nodes):
                message = (
                    f"edge ({source}, {target}) leaves the {len(self.nodes)} instructions, or leads"
                    " back in program order; an instruction can only use earlier results"
                )
                raise ParameterError(message, parameter="edges")

    @cached_property
    def predecessors(self) -> tuple[tuple[int, ...], ...]:
        """For each instruction, those whose results it uses."""
        sources: list[list[int]] = [[] for _ in self.nodes]
        for source, target in self.edges:
            sources[target].append(source)
        return tuple(map(tuple, sources))

    def counts(self) -> Mapping[str, int]:
        """Return the number of instructions of each class, in order of first use."""
        return Counter(self.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelProfile(ShortRepr):
    """A kernel as mechanistic models see it; all but the name may be absent (``None``)."""

    name: str  # name of the kernel
    # instructions of a sub-group by class
    alpha: Mapping[str, float] = field(default_factory=dict[str, float])
    alpha_comp: float | None = None
    alpha_mem: float | None = None
    alpha_sync: float | None = None
    # coalesced and uncoalesced memory instructions of a sub-group
    alpha_mem_coal: float | None = None
    alpha_mem_uncoal: float | None = None
    uncoal_per_mw: float | None = None  # transactions of one uncoalesced memory instruction
    load_bytes_per_sub_group: float | None = None  # bytes that one memory instruction moves
    gmem_bytes: float | None = None  # bytes of a sub-group that reach memory
    total_flops: float | None = None  # work of the whole kernel
    total_bytes: float | None = None
    idg: InstructionGraph | None = None  # instructions and dependencies of a sub-group
    idg_is_sample: bool = False
    # one graph per sub-group of a group, where they differ (divergence)
    sub_group_idgs: tuple[InstructionGraph, ...] | None = None
    # instructions on the cores, issue slots, and cycles of the critical path (MERPSYS)
    ins_cuda: float | None = None
    ins_issued: float | None = None
    latency_bound: float | None = None
    # of all instructions of a sub-group, those issued again, and pairs issued at once (MERPSYS)
    reissues: float = 0.0
    dual_issued_pairs: float = 0.0
    registers_per_work_item: int | None = None  # static resources
    local_bytes_per_group: int | None = None
    # operations, critical path and memory transactions of the whole kernel (TMM)
    work: float | None = None
    span: float | None = None
    transactions: float | None = None
    traffic: Traffic | None = None  # bytes that sub-groups ask for, and where they come from
    # R: bytes that DRAM moved over those that costs of accesses to global memory stand for
    dram_ratio: float | None = None
    # fields (and ``occupancy``) that a profiler measured: where from
    measured: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        numbers = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        for name, value in (numbers | {f"alpha[{n}]": c for n, c in self.alpha.items()}).items():
            if isinstance(value, Real):
                check_not_negative(float(value), name)
        check_fields(self, check_positive, "load_bytes_per_sub_group latency_bound")
        if self.uncoal_per_mw is not None and self.uncoal_per_mw < 1:
            message = f"uncoal_per_mw must be at least 1, not {self.uncoal_per_mw}"
            raise ParameterError(message, parameter="uncoal_per_mw")

    def with_traffic(self, traffic: Traffic, sub_groups: float) -> Self:
        """Return the profile with the traffic of a launch of so many sub-groups."""
        return replace(
            self,
            traffic=traffic,
            total_bytes=traffic.memory,
            gmem_bytes=traffic.memory / sub_groups,
            dram_ratio=traffic.charge_ratios[0],
        )

    @property
    def bytes_by_roof(self) -> dict[str, float]:
        """Bytes that sub-groups ask for (L1), that reach L2, and that reach memory, as known."""
        found = {} if self.traffic is None else {"L1": self.traffic.asked, "L2": self.traffic.l2}
        return {**found, "memory": self.total_bytes or 0.0}

    def require(self, name: str, *, model: str) -> Any:
        """Return a field that a model cannot do without."""
        if (value := getattr(self, name)) in (None, {}):
            message = (
                f"kernel {self.name!r}: no {name}, which {model} needs; pass {name} to the kernel's"
                " profile"
            )
            raise ModelNotApplicableError(message, parameter=name)
        return value

    def counts(self, *, model: str = "the model") -> Mapping[str, float]:
        """Return instructions of a sub-group by class: ``alpha``, else the counts of ``idg``."""
        if self.idg is not None and not self.alpha:
            return self.idg.counts()
        return self.require("alpha", model=model)

    def repetitions(self, graphs: Sequence[InstructionGraph] = ()) -> float:
        """Return how many times as long as its graphs the program of a sub-group is."""
        lengths = [len(graph.nodes) for graph in graphs or (self.idg,) if graph is not None]
        if not self.idg_is_sample or not self.alpha or not lengths:
            return 1.0
        return sum(self.alpha.values()) / (sum(lengths) / len(lengths))

    def count_of(
        self, kind: InstructionKind, device: DeviceParameters, *, model: str = "the model"
    ) -> float:
        """Return the instructions of a kind: the field where it is given, else a sum of counts."""
        by_kind = {"compute": self.alpha_comp, "memory": self.alpha_mem, "barrier": self.alpha_sync}
        if (own := by_kind[kind]) is not None:
            return own
        is_by_kind = not self.alpha and self.idg is None and self.alpha_comp is not None
        if kind == "barrier" and is_by_kind:
            return 0.0  # counts were given by kind, without barriers
        return sum(
            count
            for name, count in self.counts(model=model).items()
            if device.require_class(name, model=model).kind == kind
        )

    def mean_cost(
        self, kind: InstructionKind, device: DeviceParameters, *, model: str
    ) -> tuple[float, float]:
        """Return cycles per instruction and latency, means over the instructions of a kind."""
        counts = self.counts(model=model)
        costs = {name: device.require_class(name, model=model) for name in counts}
        chosen = [(counts[name], cost) for name, cost in costs.items() if cost.kind == kind]
        total = sum(count for count, _ in chosen)
        if not total:
            message = f"kernel {self.name!r}: no instruction of kind {kind}, which {model} needs"
            parameter = "alpha_comp" if kind == "compute" else "alpha_mem"
            raise ModelNotApplicableError(message, parameter=parameter)
        return (
            sum(count * cost.cpi for count, cost in chosen) / total,
            sum(count * cost.known_latency for count, cost in chosen) / total,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchConfiguration:
    """Launch configuration of a kernel."""

    work_items_per_group: int  # size and number of work groups
    num_groups: int
    occupancy: float | None = None  # concurrent sub-groups per compute unit, where known
    active_groups: int | None = None  # groups that fit on a compute unit, where known

    def __post_init__(self) -> None:
        check_fields(self, check_whole, "work_items_per_group num_groups active_groups")
        check_fields(self, check_positive, "occupancy")

    def sub_groups_per_group(self, sub_group_size: int) -> int:
        """Return the sub-groups of a group; a part of one counts as one."""
        return -(-self.work_items_per_group // sub_group_size)

    def total_sub_groups(self, sub_group_size: int) -> int:
        """Return the sub-groups of the whole launch."""
        return self.num_groups * self.sub_groups_per_group(sub_group_size)


@dataclass(frozen=True, slots=True)
class ProfiledKernel(ShortRepr):
    """A kernel's profile and launch at fixed sizes: what mechanistic models predict."""

    profile: KernelProfile  # work of a sub-group
    launch: LaunchConfiguration  # how it is launched


Bound = Literal["compute", "memory", "barrier", "latency", "issue", "launch", "transfer"]


_RESOURCES: Mapping[str, Resource] = {
    **{"compute": "compute", "issue": "compute", "memory": "memory: global"},
    **{"latency": "latency chains", "barrier": "overhead"},
    **{"launch": "launch", "transfer": "launch"},
}
"""Resources of the parts of a breakdown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeEstimate:
    """Estimate of a kernel's time before the cost of the launch."""

    time_s: float  # the time, s
    bound: Bound  # what bounds it
    # seconds by part (``"compute"``, ``"memory"``, ``"latency"``...)
    breakdown: Mapping[str, float]
    # other results under their names in the vocabulary, such as ``wpc`` and ``cpr``
    results: Mapping[str, float] = field(default_factory=dict[str, float])
    # seconds in which no instruction is issued, by what is waited for; part of the time
    stalls: Mapping[str, float] = field(default_factory=dict[str, float])
    advice: str = ""  # what the model says would make the kernel faster


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MechanisticPrediction(Prediction):
    """A prediction that also says what bounds the time."""

    bound: Bound  # the part of the device that bounds the time
    # other results of the model by name, such as ``wpc``
    results: Mapping[str, float] = field(default_factory=dict[str, float])
    stalls: Mapping[str, float] = field(default_factory=dict[str, float])  # as in `TimeEstimate`
    advice: str = ""

    __repr__ = Prediction.__repr__


@dataclass(frozen=True, slots=True, kw_only=True)
class MechanisticModel(ABC):
    """Base of the mechanistic models; a subclass states its name and its estimate."""

    name: ClassVar[str]  # of the model, without its variant
    charges: ClassVar[frozenset[str]] = frozenset()  # of "barriers" and "divergence"
    overlaps_caches: ClassVar[bool] = False  # whether caches and memory work at the same time

    device: DeviceParameters  # constants of the device

    @property
    def model(self) -> str:
        """Name of the model, with its variant."""
        return self.name

    def list_charges(self) -> frozenset[str]:
        """Return what the model charges of barriers and divergence."""
        return self.charges

    def constant(self, name: str) -> float:
        """Return a number of the device that the model cannot do without."""
        return self.device.require(name, model=self.model)

    @abstractmethod
    def estimate(self, kernel: ProfiledKernel, /) -> TimeEstimate:
        """Estimate the time of one launch from the kernel's profile."""

    def _charge(self, profile: KernelProfile) -> Self:
        """Return the model with costs of global memory at the traffic of a kernel."""
        if profile.dram_ratio is None:
            return self
        reaching_l2 = profile.traffic.charge_ratios[1] if profile.traffic is not None else 1.0
        device = charge_traffic(
            self.device, profile.dram_ratio, reaching_l2, overlaps=self.overlaps_caches
        )
        return replace(self, device=device)

    def predict(
        self, kernel: ProfiledKernel, parameters: Mapping[str, ParameterValue] | None = None, /
    ) -> MechanisticPrediction:
        """Predict the time of one launch of a kernel."""
        estimate = self._charge(kernel.profile).estimate(kernel)
        overhead = self.device.launch_overhead_s or 0.0
        breakdown = {name: part for name, part in estimate.breakdown.items() if part}
        if overhead:
            breakdown["launch"] = breakdown.get("launch", 0.0) + overhead
        return MechanisticPrediction(
            kernel=kernel.profile.name,
            device=self.device.slug,
            model=self.model,
            parameters=dict(parameters or {}),
            time_s=estimate.time_s + overhead,
            interval_s=None,
            breakdown=largest_first(breakdown),
            resources=_RESOURCES,
            ignored=tuple(
                name
                for name in sorted(self._find_unused_inputs(kernel.profile))
                if name != "barriers" or "barrier" not in breakdown
            ),
            bound="launch" if overhead > estimate.time_s else estimate.bound,
            results=dict(estimate.results),
            stalls={name: part for name, part in estimate.stalls.items() if part > 0},
            advice=estimate.advice,
        )

    def _at_rate(
        self,
        wpc: float,
        total_sub_groups: float,
        bound: Bound,
        parts: Mapping[str, float],
        results: Mapping[str, float],
        stalls: Mapping[str, float] = MappingProxyType({}),
        advice: str = "",
    ) -> TimeEstimate:
        """Turn sub-groups per cycle into the time of all; stalls have the unit of parts."""
        wpc_of_all = check_positive(wpc, "wpc") * self.constant("num_compute_units")
        time_s = total_sub_groups / (wpc_of_all * self.constant("clock_hz"))
        scale = time_s / sum(parts.values())
        return TimeEstimate(
            time_s=time_s,
            bound=bound,
            breakdown={name: scale * part for name, part in parts.items()},
            results={"wpc": wpc, **results},
            stalls={name: scale * part for name, part in stalls.items()},
            advice=advice,
        )

    def _find_unused_inputs(self, profile: KernelProfile) -> set[str]:
        classes = self.device.classes
        names = {*profile.alpha, *(profile.idg.nodes if profile.idg is not None else ())}
        kinds = {classes[name].kind for name in names if name in classes}
        has_barriers = "barrier" in kinds or bool(profile.alpha_sync)
        there = {"barriers": has_barriers, "divergence": len({*(profile.sub_group_idgs or ())}) > 1}
        cost = classes.get("barrier")
        is_free = cost is not None and cost.cpi < 1e-6  # nobody stated what barriers cost
        charged = self.list_charges() - ({"barriers"} if is_free else set())
        return {name for name, is_there in there.items() if is_there} - charged
