r"""Models by their names, or from a document.

The linear model of Stevens & Klöckner (2016) is a weighted sum of property values,
:math:`T(n) \approx \sum_i \alpha_i p_i(n)`, with the sizes :math:`n` of the kernel and weights
:math:`\alpha_i`, s per unit, which may come out negative. A global barrier ends a launch, and is
paid for as the launch that follows it.

The structural model is of what a device issues under an execution policy, and of bytes. Of
:math:`B` distinct bytes, the share :math:`\max(0, 1 - C/B)` does not fit a cache of :math:`C` bytes
and costs extra. Where :math:`U` groups run at once, :math:`G` of them take as long as
:math:`U \lceil G/U \rceil`: all but the launch itself is multiplied by the ratio.

The model of compiled code takes, with the same ratio :math:`R`,

.. math::

   T = \text{launch} + R \, (\text{groups} + \text{cycles} + \text{instructions} + \text{lines}
       + \text{traffic})

with cycles by llvm-mca (`countperf.machine_code.throughput`). Its features were chosen by leaving
out classes of measurement kernels: of 84 candidates, eliminated backwards on six devices, 40 were
left. Of these, 29 stayed: without the other eleven, left-out classes are off by .2 % more in all.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from countperf.counting.structure.issue import ExecutionPolicy
from countperf.counting.structure.memory_hierarchy import ASSUMED, MemoryHierarchy, load_hierarchy
from countperf.devices.identity import DeviceIdentity, memory_hierarchy_of, platform_prefix
from countperf.documents import parse_toml
from countperf.errors import ParameterError, nearest
from countperf.models.definition import ModelDefinition, Pattern, Resource, Term
from countperf.store import read_file_text

COMPILED = "compiled"  # name of the model, and what asks for it instead of a model's name

Order = Literal["lanes", "items"]
ORDERS: Mapping[Order, ExecutionPolicy] = {
    "lanes": ExecutionPolicy(width=16, vectorized="always"),
    "items": ExecutionPolicy(width=16, vectorized="flat or sync"),
}
"""Orders in which lanes access memory: neighbors side by side, or item after item."""

_MOST_STREAMS = 16  # pieces of memory of a group up to which prefetchers follow each of them

LAST_LEVEL_SHARE = 0.75
"""Share of the last-level cache that a kernel has for its data: others use the cache, too."""

_ROBUST: Mapping[str, Any] = {"residual": "log", "loss": "soft_l1", "loss_scale": 0.3}

CYCLES = (
    *("code.cycles_operations", "code.cycles_throughput", "waiting_cycles", "cycles_loop_in_l2"),
)
INSTRUCTIONS = (
    *("code.arithmetic_vector", "code.iop_vector", "code.convert", "code.call"),
    *("code.store_scalar", "code.store_vector", "code.gather_lanes", "code.scatter_lanes"),
    "code.spill_load_integer",
)
_IN_L2 = {"cycles_loop_in_l2": "code_cycles_loop*(1 - beyond_l2)"}
"""Work that memory accesses hide where data is beyond the second level."""

_BYTES = "max(1, bytes_kernel_load + bytes_kernel_store - bytes_kernel_update)"
_FRESH = "(1 - 0.5*bytes_kernel_update/max(1, bytes_kernel_store))"
"""Share of the bytes stored that counts: for a store, no line is fetched that was loaded."""

_ALL_PIECES = "max(1, segments_group_load + segments_group_store)"
_PIECES = f"{_ALL_PIECES}/max(1, groups)"
_UNEVEN = {
    "uneven": "min(1, code_cycles_largest)",
    "full_groups": "max(1, groups)*(1 - uneven) + uneven*code_cycles/max(1, code_cycles_largest)",
}
"""Whether work groups differ, and how many of the largest execute as much as all."""

_COVERED = ("issue.*", "code.*", "miss.*", "spill.*", "bytes.*", "segments.*", "barrier.*")
"""Properties without a weight of their own: others stand for what they cost."""


def make_compiled_model(
    order: Order = "lanes",
    *,
    units: int = 0,
    memory: MemoryHierarchy | None = None,
    overlapped: bool = True,
) -> ModelDefinition:
    """Return the model for a device, or as it was before cycles of short loops overlapped."""
    memory = memory or load_hierarchy(ASSUMED)
    charged = {
        **{"overhead": ("groups",), "cycles": CYCLES, "instructions": INSTRUCTIONS},
        "lines": ("miss.conflict.store", *_LINES),
        "traffic": ("segments.group.store", *_TRAFFIC),
    }
    rounds = _rounds(units)
    if rounds:
        busiest = f"{units}*code_cycles_busiest/max(1, code_cycles)"
        rounds = {"rounds": f"{rounds['rounds']}*(1 - uneven) + uneven*{busiest}"}
    second, last = memory.caches[1], memory.caches[-1]
    shares = {
        "beyond_l2": f"max(0, 1 - {second.size_bytes}/{_BYTES})",
        "beyond_llc": f"max(0, 1 - {round(LAST_LEVEL_SHARE * last.size_bytes)}/{_BYTES})",
        "in_streams": f"max(0, 1 - {_MOST_STREAMS}/({_ALL_PIECES}/full_groups))",
        "out_of_reach": f"max(0, 1 - {memory.translation_reach_bytes}/{_BYTES})",
    }
    cycles = "code_cycles_overlapped" if overlapped else "code_cycles"
    waiting = {"waiting_cycles": f"max(0, {cycles} - code_cycles_throughput)"}
    return ModelDefinition(
        name=COMPILED,
        description=f"Cycles and instructions of the compiled code, cache lines of {order} in"
        " order, and traffic by cache level",
        policy=ORDERS[order],
        memory=memory,
        **_ROBUST,
        ignored=_COVERED,
        derived=_UNEVEN | shares | rounds | waiting | _IN_L2 | _LINES | _TRAFFIC,
        terms=_terms(charged, rounds, _COMPILED_RESOURCES),
    )


def _rounds(units: int) -> dict[str, str]:
    """Return rounds of groups of a launch on so many compute units, a derived feature, if any."""
    groups = "max(1, groups)/max(1, launches)"
    return {"rounds": f"{units}*ceil({groups}/{units})/({groups})"} if units else {}


def _terms(
    charged: Mapping[str, tuple[str, ...]],
    rounds: Mapping[str, str],
    resources: Mapping[str, Mapping[Pattern, Resource]],
) -> dict[str, Term]:
    """Return terms by what they charge, in rounds where there are such, and that of launches."""
    scale = "".join(rounds)
    by_term = {name: dict(resources[name]) for name in charged}
    terms = {n: Term(charged=c, scale=scale, resource=by_term[n]) for n, c in charged.items()}
    return {"launch": Term(charged=("launches",), resource={"*": "launch"}), **terms}


def _accesses(direction: str, vector: str, scalar: str) -> str:
    """Return a formula of accesses of lines: of vectors side by side, and of single items."""
    return f"issue_vector_gmem_{direction}_{vector} + issue_scalar_gmem_{direction}_{scalar}"


_LINES = {
    f"{direction}_{name}": _accesses(direction, kind, kind)
    for name, kind in (("lines_l2", "l2_reuse"), ("lines_conflict", "set_conflict"))
    for direction in ("load", "store")
}
"""Lines that come back from beyond the first cache, and that share its sets."""

_FAR_LINES = {
    name: f"({lines})*out_of_reach"
    for name, lines in (
        ("load_lines_out_of_reach", _accesses("load", "strided", "l1_reuse")),
        ("load_memory_lines_out_of_reach", _accesses("load", "beyond_l2", "beyond_l2")),
        ("store_lines_out_of_reach", _accesses("store", "strided", "l1_reuse")),
    )
}
"""Lines beyond the reach of address translation."""

_GROUP_LOADS = "(bytes_group_load_dense + bytes_group_load_sparse)"
_TRAFFIC = {
    "load_segments_beyond_l2": "segments_group_load*beyond_l2",
    "load_beyond_streams": f"{_GROUP_LOADS}*beyond_l2*in_streams",
    "load_distinct": "bytes_kernel_load",
    "load_beyond_llc": "bytes_kernel_load*beyond_llc",
    "store_beyond_llc": f"bytes_kernel_store*beyond_llc*{_FRESH}",
    **_FAR_LINES,
}
"""Bytes, separate pieces and lines by where in memory they are."""

_COMPILED_RESOURCES: Mapping[str, Mapping[Pattern, Resource]] = {
    "overhead": {"*": "overhead"},
    "cycles": {"waiting_cycles": "latency chains", "*": "compute"},
    "instructions": {
        **dict.fromkeys(("code.store_scalar", "code.store_vector"), "memory: L1"),
        **dict.fromkeys(("code.gather_lanes", "code.scatter_lanes"), "memory: L1"),
        **{"code.spill_load_integer": "memory: L1", "*": "compute"},
    },
    "lines": {"*": "memory: L2"},
    "traffic": {
        **dict.fromkeys(("segments", "load_distinct"), "memory: L1"),
        **dict.fromkeys(_FAR_LINES, "memory: pages"),
        "*": "memory: beyond L2",
    },
}
"""Resources by term, and by pattern of features."""


STRUCTURAL = "structural"  # name of the model, and what asks for it instead of a model's document

_LLVM = ExecutionPolicy(
    width=16,
    vectorized="flat or sync",
    remainder="scalar",
    rows="multiples behind barriers",
    shifted="apart",
    guards="masked",
)
POLICIES: Mapping[str, ExecutionPolicy] = {
    "pocl": _LLVM,
    "intel": _LLVM.model_copy(update={"vectorized": "always", "odd_rows": "apart", "arrays": 8}),
}
"""Execution policies by runtime: those that most of the fits that ship were found to follow."""

STREAMS = (4, 16)  # pieces of memory of a group up to which prefetchers follow each of them

_FAR = {"scalar": ("walk", "l1_reuse", "l2_reuse", "beyond_l2", "data"), "vector": ("strided",)}
_FAR_FEATURES = {
    f"{unit}_{direction}_{kind}_out_of_reach": f"issue_{unit}_gmem_{direction}_{kind}*out_of_reach"
    for unit, kinds in _FAR.items()
    for direction in ("load", "store")
    for kind in kinds
}
_UNITS = ("vector", "scalar")
OVERHEAD = (
    "groups",
    "barrier.local",
    *(f"issue.{unit}.{kind}.*" for kind in ("passes", "rows") for unit in _UNITS),
    *(f"issue.{unit}.{kind}" for kind in ("carried", "live_across_barrier") for unit in _UNITS),
    *(f"issue.{unit}.pmem.*" for unit in _UNITS),
)
COMPUTE = (
    *(f"issue.{unit}.arithmetic.*" for unit in _UNITS),
    *(
        f"issue.{unit}.{kind}"
        for kind in ("minor", "divide", "iterations", "entries", "idle")
        for unit in _UNITS
    ),
    *(f"issue.{unit}.{kind}.*" for kind in ("div", "pow") for unit in _UNITS),
    *(f"issue.{unit}.special.*.*" for unit in _UNITS),
    "issue.vector.conditional.*.*",
)
_L1 = ("same", "next", "offset", "shifted", "masked", "near", "walk", "l1_reuse", "data", "strided")
"""Names of accesses that do not name the cache that serves them."""

ACCESSES = (
    *(f"issue.{unit}.guarded.*.*" for unit in _UNITS),
    *(
        f"issue.{unit}.{space}.{direction}.{kind}"
        for space, kinds in (("gmem", _L1), ("lmem", ("*",)))
        for kind in kinds
        for direction in ("load", "store")
        for unit in _UNITS
    ),
)
MISSES = tuple(  # accesses that come back to a line too late
    f"issue.{unit}.gmem.{direction}.{kind}"
    for kind in ("l2_reuse", "beyond_l2", "set_conflict")
    for direction in ("load", "store")
    for unit in _UNITS
)
CHAINS = tuple(f"issue.{unit}.chain.*.*" for unit in _UNITS)


def make_structural_model(
    policy: ExecutionPolicy, *, memory: MemoryHierarchy | None = None
) -> ModelDefinition:
    """Make a model of what a device issues under a policy; by default with `ASSUMED` caches."""
    memory = memory or load_hierarchy(ASSUMED)
    shares: dict[str, str] = {}  # which are charged for nothing by themselves
    derived: dict[str, str] = {}
    of_groups = "(bytes_group_{0}_dense + bytes_group_{0}_sparse)"
    group_bytes = {direction: of_groups.format(direction) for direction in ("load", "store")}
    group_bytes["store"] += f"*{_FRESH}"
    for level, cache in enumerate(memory.caches[1:], start=2):
        is_last = level > 2 and level == len(memory.caches)
        beyond = "beyond_llc" if is_last else f"beyond_l{level}"
        shares[beyond] = f"max(0, 1 - {cache.size_bytes}/{_BYTES})"
        for direction, in_groups in group_bytes.items():
            derived[f"{direction}_{beyond}"] = f"{in_groups}*{beyond}"
            derived[f"{direction}_segments_{beyond}"] = f"segments_group_{direction}*{beyond}"
    for number in STREAMS:
        shares[f"beyond_streams{number}"] = f"max(0, 1 - {number}/({_PIECES}))"
        for direction, in_groups in group_bytes.items():
            name = f"{direction}_beyond_streams{number}"
            derived[name] = f"{in_groups}*beyond_l2*beyond_streams{number}"
    shares["out_of_reach"] = f"max(0, 1 - {memory.translation_reach_bytes}/{_BYTES})"
    derived |= _FAR_FEATURES
    rounds = _rounds(policy.units)
    charged = {
        **{"overhead": OVERHEAD, "compute": COMPUTE, "accesses": ACCESSES, "chains": CHAINS},
        **{"misses": MISSES, "traffic": ("bytes.group.*.*", "segments.group.*", *derived)},
    }
    return ModelDefinition(
        name=STRUCTURAL,
        description=f"What the device issues: {policy.text}",
        policy=policy,
        memory=memory,
        **_ROBUST,
        ignored=("bytes.kernel.*",),
        derived=shares | rounds | derived,
        terms=_terms(charged, rounds, _STRUCTURAL_RESOURCES),
    )


_STRUCTURAL_RESOURCES: Mapping[str, Mapping[Pattern, Resource]] = {
    "overhead": {"*": "overhead"},
    "compute": {"*": "compute"},
    "chains": {"*": "latency chains"},
    "accesses": {
        **dict.fromkeys(("issue.*.lmem.*.l2_reuse", "issue.*.lmem.*.set_conflict"), "memory: L2"),
        "issue.*.lmem.*.beyond_l2": "memory: beyond L2",
        **dict.fromkeys(("issue.*.lmem", "issue.*.guarded.lmem"), "memory: local"),
        "*": "memory: L1",
    },
    "misses": {"issue.*.gmem.*.beyond_l2": "memory: beyond L2", "*": "memory: L2"},
    "traffic": {
        **dict.fromkeys(("bytes", "segments"), "memory: L1"),
        **dict.fromkeys(_FAR_FEATURES, "memory: pages"),
        "*": "memory: beyond L2",
    },
}
"""Resources by term, and by pattern of features."""


def policy_on(device: DeviceIdentity) -> ExecutionPolicy:
    """Return the policy of a device: sub-groups of 32 on GPUs, else that of its runtime."""
    policy = POLICIES.get(platform_prefix(device.platform), ExecutionPolicy())
    if device.device_type == "gpu":
        policy = ExecutionPolicy(width=32, along="group")
    return policy.model_copy(update={"units": device.compute_units})


COST = "cost"  # the term of models that are one sum

CHARGED_BY_PAPER = (
    *("flop.add.*", "flop.mul.*", "flop.div.*", "flop.pow.*", "flop.special.*", "flop.fma.*"),
    *("gmem.load.*.*", "gmem.store.*.*", "gmem.min.*.*", "lmem.load.*", "barrier.local"),
    *("groups", "launches"),
)
IGNORED_BY_PAPER = (
    *("lmem.store.*", "flop.minmax.*", "flop.compare.*", "flop.select.*", "flop.convert.*"),
    *("flop.neg.*", "iop.*", "barrier.global"),
)
_PAPER_RESOURCES: dict[Pattern, Resource] = {
    **{"flop": "compute", "gmem": "memory: global", "lmem": "memory: local"},
    **{"launches": "launch", "*": "overhead"},
}
LINEAR = ModelDefinition(
    name="linear",
    description="The paper's: a sum over properties, weights free",
    ignored=IGNORED_BY_PAPER,
    terms={COST: Term(charged=CHARGED_BY_PAPER, lower=None, resource=_PAPER_RESOURCES)},
)


def load_fitted_model(
    name: str,
    device: DeviceIdentity | None = None,
    memory: MemoryHierarchy | None = None,
    *,
    overlapped: bool = True,
) -> ModelDefinition:
    """Return a model by its name, as it is for a device, or read its document, TOML or JSON."""
    if name == LINEAR.name:
        return LINEAR
    if name in (STRUCTURAL, COMPILED) and device is not None:
        memory = memory or memory_hierarchy_of(device)
        if name == STRUCTURAL:
            return make_structural_model(policy_on(device), memory=memory)
        units = device.compute_units
        order = "items" if platform_prefix(device.platform) == "pocl" else "lanes"
        return make_compiled_model(order, units=units, memory=memory, overlapped=overlapped)
    if name.endswith(".toml"):
        content = parse_toml(read_file_text(name), path=name)
        return ModelDefinition.from_object(content, path=name)
    if name.endswith(".json") or len(Path(name).parts) > 1:
        return ModelDefinition.read_file(name)
    message = f"no fitted model is named {name!r}; there is {', '.join(_NAMES)}"
    message += nearest(name, _NAMES)
    raise ParameterError(message, parameter="model")


_NAMES = ("linear", "structural", "compiled")
