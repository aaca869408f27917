r"""The model that reads compiled code: few terms, each of which a person can check.

.. math::

   T = \text{launch} + R \, (\text{groups} + \text{cycles} + \text{instructions} + \text{spills}
       + \text{lines} + \text{traffic}), \quad
   R = \frac{U}{G} \left\lceil \frac{G}{U} \right\rceil

for :math:`G` groups of a launch on :math:`U` compute units, which run that many groups at once. All
terms are sums of weights times features, at least zero. Of what memory hides, the cycles of
innermost loops and the start of groups are charged apart where the data fits the second level.

- *groups*: work groups, and those whose data fits the second level.
- *cycles*: micro-operations, cycles if nothing waited for results, cycles that wait for them (loop
  carried chains), and cycles of innermost loops, on all data and on data that fits the second
  level, by llvm-mca for a processor of reference (`countperf.machine_code.throughput`).
- *instructions*: those of the code by class, and the lanes that it gathers and scatters.
- *spills*: spilled integers, and stores of private values whose lines crowd a set.
- *lines*: cache lines that come back from beyond the first level, or that a set does not keep, each
  of them with the order in which lanes access memory (below).
- *traffic*: distinct bytes of groups and of the whole launch, which groups share; shares of the
  former beyond the second level of the device's own caches, and of the latter beyond the last one
  (`countperf.execution.memory_hierarchy`): :math:`\max(0, 1 - C/B)` of :math:`B` bytes for a cache
  of :math:`C`, which is three quarters of the last level (`LAST_LEVEL_SHARE`); separate pieces of
  memory; and lines beyond the reach of address translation.

What is vectorized, gathered, spilled or unrolled is read from the code, and no execution policy
guesses it. Counts of the structure view say which lines are touched again and when; that depends on
the order of accesses, which is one of two (`ORDERS`). Neighbors fill a line of 64 bytes with 16
items of 32 bits, so that lines are counted as accesses of 16 lanes side by side.

The weights were chosen by leaving out classes of measurement kernels on six devices, before test
kernels, applications or variants were predicted: 84 candidates were eliminated backwards, and the
factor by which left-out classes are off grows by less than 1 % down to 25 of them.
`docs/concepts/machine-code.md` says what was tried and did not help.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from countperf.execution.issue import ExecutionPolicy
from countperf.execution.memory_hierarchy import ASSUMED, MemoryHierarchy, load_hierarchy
from countperf.hardware.identity import DeviceIdentity, platform_prefix
from countperf.models.definition import ModelDefinition, Term

COMPILED = "compiled"
"""Name of the model, and what asks for it instead of a model's name."""

Order = Literal["lanes", "items"]

ORDERS: Mapping[Order, ExecutionPolicy] = {
    "lanes": ExecutionPolicy(width=16, vectorized="always"),
    "items": ExecutionPolicy(width=16, vectorized="flat or sync"),
}
"""Orders in which lanes access memory: neighbors side by side everywhere, as under Intel's runtime;
or item after item through the items' own loops, unless barriers are in them, as under PoCL."""

_MOST_STREAMS = 16
"""Pieces of memory of a group up to which prefetchers follow each of them."""

LAST_LEVEL_SHARE = 0.75
"""Share of the last-level cache that a kernel has for its data: others use the cache, too."""

CYCLES = (
    *("code.cycles_operations", "code.cycles_throughput", "waiting_cycles"),
    *("code.cycles_loop", "cycles_loop_in_l2"),
)
INSTRUCTIONS = (
    *("code.arithmetic_scalar", "code.arithmetic_vector", "code.iop_vector", "code.convert"),
    *("divisions_f32", "divisions_f64", "square_roots"),
    *("code.special_f32_vector", "code.special_f64_vector", "code.call"),
    *("code.store_scalar", "code.store_vector", "code.gather_lanes", "code.scatter_lanes"),
)
SPILLS = ("code.spill_load_integer", "miss.conflict.store")

_IN_L2 = {
    "cycles_loop_in_l2": "code_cycles_loop*(1 - beyond_l2)",
    "groups_in_l2": "groups*(1 - beyond_l2)",
}
"""Work that memory accesses hide where data is beyond the second level."""

_BYTES = "max(1, bytes_kernel_load + bytes_kernel_store)"
_PIECES = "max(1, segments_group_load + segments_group_store)/max(1, groups)"
_COVERED = ("issue.*", "code.*", "miss.*", "spill.*", "bytes.*", "segments.*", "barrier.*")
"""Properties without a weight of their own: others stand for what they cost."""


def compiled(
    order: Order = "lanes", *, units: int = 0, memory: MemoryHierarchy | None = None
) -> ModelDefinition:
    """Return the model for a device."""
    memory = memory or load_hierarchy(ASSUMED)
    lines, traffic = _lines(), _traffic()
    charged = {
        "overhead": ("groups", "groups_in_l2"),
        "cycles": CYCLES,
        "instructions": INSTRUCTIONS,
        "spills": SPILLS,
        "lines": tuple(lines),
        "traffic": ("segments.group.store", *traffic),
    }
    each = "max(1, groups)/max(1, launches)"
    rounds = {"rounds": f"{units}*ceil({each}/{units})/({each})"} if units else {}
    return ModelDefinition(
        name=COMPILED,
        description=f"Cycles and instructions of the compiled code, cache lines of {order} in"
        " order, and traffic by cache level",
        policy=ORDERS[order],
        memory=memory,
        residual="log",
        loss="soft_l1",
        loss_scale=0.3,
        ignored=_COVERED,
        derived=_shares(memory) | rounds | _sums() | _IN_L2 | lines | traffic,
        terms={
            "launch": Term(charged=("launches",)),
            **{name: Term(charged=c, scale="".join(rounds)) for name, c in charged.items()},
        },
    )


def order_on(device: DeviceIdentity) -> Order:
    """Return the order of accesses under the runtime of a device."""
    return "items" if platform_prefix(device.platform) == "pocl" else "lanes"


def _shares(memory: MemoryHierarchy) -> dict[str, str]:
    """Return shares of memory beyond a cache, many streams, and translation."""
    second, *farther = memory.caches[1:]
    last = farther[-1] if farther else second
    return {
        "beyond_l2": f"max(0, 1 - {second.size_bytes}/{_BYTES})",
        "beyond_llc": f"max(0, 1 - {round(LAST_LEVEL_SHARE * last.size_bytes)}/{_BYTES})",
        "in_streams": f"max(0, 1 - {_MOST_STREAMS}/({_PIECES}))",
        "out_of_reach": f"max(0, 1 - {memory.translation_reach_bytes}/{_BYTES})",
    }


def _sums() -> dict[str, str]:
    """Return instructions that are charged together, and cycles that wait for results."""
    roots = (f"code_sqrt_{kind}_{unit}" for kind in ("f32", "f64") for unit in ("vector", "scalar"))
    return {
        "waiting_cycles": "max(0, code_cycles - code_cycles_throughput)",
        "divisions_f32": "code_div_f32_vector + code_div_f32_scalar",
        "divisions_f64": "code_div_f64_vector + code_div_f64_scalar",
        "square_roots": " + ".join(roots),
    }


def _accesses(direction: str, vector: str, scalar: str) -> str:
    """Return a formula of accesses of lines: of vectors side by side, and of single items."""
    return f"issue_vector_gmem_{direction}_{vector} + issue_scalar_gmem_{direction}_{scalar}"


def _lines() -> dict[str, str]:
    """Return lines that come back from beyond the first cache, and that share its sets."""
    return {
        f"{direction}_{name}": _accesses(direction, kind, kind)
        for name, kind in (("lines_l2", "l2_reuse"), ("lines_conflict", "set_conflict"))
        for direction in ("load", "store")
    }


def _traffic() -> dict[str, str]:
    """Return bytes, separate pieces and lines by where in memory they are."""
    size = "(bytes_group_load_dense + bytes_group_load_sparse)"
    traffic = {
        "load_bytes": size,
        "load_beyond_l2": f"{size}*beyond_l2",
        "load_segments_beyond_l2": "segments_group_load*beyond_l2",
        "load_beyond_streams": f"{size}*beyond_l2*in_streams",
        "load_distinct": "bytes_kernel_load",
        "load_beyond_llc": "bytes_kernel_load*beyond_llc",
        "store_beyond_llc": "bytes_kernel_store*beyond_llc",
    }
    reach = {
        "load_lines_out_of_reach": _accesses("load", "strided", "l1_reuse"),
        "load_memory_lines_out_of_reach": _accesses("load", "beyond_l2", "beyond_l2"),
        "store_lines_out_of_reach": _accesses("store", "strided", "l1_reuse"),
    }
    traffic |= {name: f"({lines})*out_of_reach" for name, lines in reach.items()}
    traffic["store_data_out_of_reach"] = "issue_scalar_gmem_store_data*out_of_reach"
    return traffic
