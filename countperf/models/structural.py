r"""Models of what a device issues, under an execution policy.

Their terms are instructions by class (vector or scalar; arithmetic, accesses by how addresses
change, special functions), carried chains, passes through barrier regions, and bytes. Distinct
bytes that each group accesses come from the nearest cache; the share that does not fit a cache of
:math:`C` bytes, :math:`\max(0, 1 - C/B)` of all distinct bytes :math:`B`, costs extra, whether
they lie side by side or not: pieces that do not are counted by themselves. Single accesses that
come back to a line too late for the nearest cache (``l2_reuse``), or the second (``beyond_l2``),
cost extra as well; the farther cache is never the cheaper one, for ``l1_reuse`` are all of them. So
do those that come back too late because lines share sets of a cache (``set_conflict``). Accesses to
global memory that are not of neighbors side by side do so beyond the reach of address translation.
Where :math:`U` groups run at once, :math:`G` of them take as long as
:math:`U \lceil G/U \rceil`: all but the launch itself is multiplied by the ratio.

Which policy a device follows, its runtime says (`POLICIES`).
"""

from __future__ import annotations

from collections.abc import Mapping

from countperf.execution.issue import ExecutionPolicy
from countperf.execution.memory_hierarchy import ASSUMED, Cache, MemoryHierarchy, load_hierarchy
from countperf.hardware.identity import DeviceIdentity, platform_prefix
from countperf.models.definition import ModelDefinition, Term

STRUCTURAL = "structural"
"""Name of the model, and what asks for it instead of a model's document."""

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
    "intel": _LLVM.model_copy(
        update={"vectorized": "always", "odd_rows": "apart", "arrays": 8},
    ),
}
"""Execution policies by runtime: those that most of the fits that ship were found to follow, by
leaving out families of measurement kernels."""

STREAMS = (4, 16)
"""Pieces of memory of a group up to which prefetchers follow each of them: bytes from beyond a
second-level cache cost more in groups that have more of them, the more so the more there are."""

_FAR_ACCESSES = {
    "scalar": ("walk", "l1_reuse", "l2_reuse", "beyond_l2", "data"),
    "vector": ("strided",),
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
_NEAR = (
    *("same", "next", "offset", "shifted", "masked", "near", "walk", "l1_reuse", "data"),
    "strided",
)
"""Names of accesses that do not name the cache that serves them."""

ACCESSES = (
    *(f"issue.{unit}.guarded.*.*" for unit in _UNITS),
    *(
        f"issue.{unit}.{space}.{direction}.{kind}"
        for space, kinds in (("gmem", _NEAR), ("lmem", ("*",)))
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


def structural(
    policy: ExecutionPolicy,
    *,
    memory: MemoryHierarchy | None = None,
) -> ModelDefinition:
    """Make a model of what a device issues under a policy; by default with `ASSUMED` caches."""
    memory = memory or load_hierarchy(ASSUMED)
    shares: dict[str, str] = {}  # which are charged for nothing by themselves
    derived: dict[str, str] = {}
    group_bytes = {
        direction: f"(bytes_group_{direction}_dense + bytes_group_{direction}_sparse)"
        for direction in ("load", "store")
    }
    bytes_in_all = "max(1, bytes_kernel_load + bytes_kernel_store)"
    for beyond, cache in _beyond_caches(memory).items():
        shares[beyond] = f"max(0, 1 - {cache.size_bytes}/{bytes_in_all})"
        for direction, in_groups in group_bytes.items():
            derived[f"{direction}_{beyond}"] = f"{in_groups}*{beyond}"
            derived[f"{direction}_segments_{beyond}"] = f"segments_group_{direction}*{beyond}"
    pieces = "max(1, segments_group_load + segments_group_store)/max(1, groups)"
    for number in STREAMS:
        shares[f"beyond_streams{number}"] = f"max(0, 1 - {number}/({pieces}))"
        for direction, in_groups in group_bytes.items():
            derived[f"{direction}_beyond_streams{number}"] = (
                f"{in_groups}*beyond_l2*beyond_streams{number}"
            )
    shares["out_of_reach"] = f"max(0, 1 - {memory.translation_reach_bytes}/{bytes_in_all})"
    for unit, kinds in _FAR_ACCESSES.items():
        for direction in ("load", "store"):
            for kind in kinds:
                derived[f"{unit}_{direction}_{kind}_out_of_reach"] = (
                    f"issue_{unit}_gmem_{direction}_{kind}*out_of_reach"
                )
    traffic = ("bytes.group.*.*", "segments.group.*", *derived)
    rounds = "rounds" if policy.units else ""
    if policy.units:
        # those of a launch, where there are several
        each = "max(1, groups)/max(1, launches)"
        shares["rounds"] = f"{policy.units}*ceil({each}/{policy.units})/({each})"
    return ModelDefinition(
        name=STRUCTURAL,
        description=f"What the device issues: {policy.text}",
        policy=policy,
        memory=memory,
        residual="log",
        loss="soft_l1",
        loss_scale=0.3,
        ignored=("bytes.kernel.*",),
        derived=shares | derived,
        terms={
            "launch": Term(charged=("launches",)),
            "overhead": Term(charged=OVERHEAD, scale=rounds),
            "compute": Term(charged=COMPUTE, scale=rounds),
            "accesses": Term(charged=ACCESSES, scale=rounds),
            "chains": Term(charged=CHAINS, scale=rounds),
            "misses": Term(charged=MISSES, scale=rounds),
            "traffic": Term(charged=traffic, scale=rounds),
        },
    )


def _beyond_caches(memory: MemoryHierarchy) -> dict[str, Cache]:
    """Return the caches beyond the first, by the name of the share of memory beyond each."""
    second, *farther = memory.caches[1:]
    beyond_caches = {"beyond_l2": second}
    for level, cache in enumerate(farther, start=3):
        beyond_caches["beyond_llc" if cache is farther[-1] else f"beyond_l{level}"] = cache
    return beyond_caches


def policy_on(device: DeviceIdentity) -> ExecutionPolicy:
    """Return the policy of a device: sub-groups of 32 on GPUs, else that of its runtime."""
    policy = POLICIES.get(platform_prefix(device.platform), ExecutionPolicy())
    if device.device_type == "gpu":
        policy = ExecutionPolicy(width=32, along="group")
    return policy.model_copy(update={"units": device.compute_units})
