r"""Models of what a device issues, under an execution policy.

Their terms are instructions by class (vector or scalar; arithmetic, accesses by how addresses
change, special functions), carried chains, passes through barrier regions, and bytes. Distinct
bytes that each group accesses come from the nearest cache; the share that does not fit a cache of
:math:`C` bytes, :math:`\max(0, 1 - C/B)` of all distinct bytes :math:`B`, costs extra.

Which policy, cache sizes and expression a device follows is found by leaving out families
(`countperf.fitting.selection`).
"""

from __future__ import annotations

from collections.abc import Sequence

from countperf.models.definition import FittedModel, Term
from countperf.policies import ExecutionPolicy

CACHE_BYTES = (1 << 20, 1 << 25)
"""A second-level cache of a core, and a last-level one: usual sizes of today's processors."""

_SPACES = ("gmem", "lmem")
_UNITS = ("vector", "scalar")

OVERHEAD = (
    "launches",
    "groups",
    "barrier.local",
    *(f"run.{unit}.{kind}.*" for kind in ("passes", "rows") for unit in _UNITS),
)
ISSUE = (
    *(f"run.{unit}.arithmetic.*" for unit in _UNITS),
    *(f"run.{unit}.{kind}" for kind in ("minor", "index", "iterations", "idle") for unit in _UNITS),
    *(f"run.{unit}.{kind}.*" for kind in ("div", "pow") for unit in _UNITS),
    *(f"run.{unit}.special.*.*" for unit in _UNITS),
    *(
        f"run.{unit}.{space}.{direction}.*"
        for space in _SPACES
        for direction in ("load", "store")
        for unit in _UNITS
    ),
)
CHAINS = tuple(f"run.{unit}.chain.*" for unit in _UNITS)


def structural(
    name: str,
    policy: ExecutionPolicy,
    *,
    expression: str = "overhead + issue + chains + traffic",
    cache_bytes: Sequence[int] = CACHE_BYTES,
    description: str = "",
) -> FittedModel:
    """Make a model of what a device issues under a policy.

    Parameters
    ----------
    name : str
        Name of the model.
    policy : ExecutionPolicy
        How the device runs work groups.
    expression : str, optional
        Of the terms ``overhead``, ``issue``, ``chains`` and ``traffic``; all have to occur.
    cache_bytes : sequence of int, optional
        Sizes of caches, smallest first, B.
    description : str, optional
        One line for people.
    """
    derived: dict[str, str] = {}
    for level, size in enumerate(cache_bytes, start=1):
        derived[f"beyond{level}"] = (
            f"max(0, 1 - {size}/max(1, bytes_kernel_load + bytes_kernel_store))"
        )
        for direction in ("load", "store"):
            for density in ("dense", "sparse", "data"):
                derived[f"{direction}_{density}_beyond{level}"] = (
                    f"bytes_group_{direction}_{density}*beyond{level}"
                )
    traffic = (
        "bytes.group.*.*",
        *(key for key in derived if not key.startswith("beyond")),
    )
    return FittedModel(
        name=name,
        description=description or f"What the device issues: {policy.text}",
        policy=policy,
        residual="log",
        loss="soft_l1",
        loss_scale=0.3,
        ignored=("bytes.kernel.*",),
        derived=derived,
        terms={
            "overhead": Term(charged=OVERHEAD),
            "issue": Term(charged=ISSUE),
            "chains": Term(charged=CHAINS),
            "traffic": Term(charged=traffic),
        },
        expression=expression,
    )


def policies(widths: Sequence[int] = (8, 16)) -> tuple[ExecutionPolicy, ...]:
    """List the policies among which a fit chooses."""
    vectorized = ("always", "flat", "flat or sync", "sync")
    return (
        ExecutionPolicy(width=1, vectorized="never"),
        *(
            ExecutionPolicy(width=width, vectorized=where, remainder=remainder)
            for width in widths
            for where in vectorized
            for remainder in ("whole", "scalar")
        ),
        *(ExecutionPolicy(width=width, along="group") for width in (32,)),
    )
