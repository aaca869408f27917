"""Features that a device issues for counts by name: names are parsed and printed here."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any, cast

import numpy as np

from countperf.execution.issue import issue
from countperf.execution.policy import ExecutionPolicy
from countperf.properties.issue_names import ISSUE_ROOT, issue_name
from countperf.properties.site_names import parse_execution

_LAUNCHED = ("groups", "launches", "barrier.local")
"""Counts of which a policy changes nothing."""

_Issued = tuple[tuple[str, Fraction], ...]


def apply_policy(policy: ExecutionPolicy, counts: Mapping[str, Any]) -> dict[str, Any]:
    """Turn counts of the structure view into what the device issues."""
    found: dict[str, Any] = {}
    known = _issued_by(cast("Hashable", policy))  # frozen
    for name, count in counts.items():
        if name not in known:
            known[name] = _issued(name, policy)
        for issued, share in known[name]:
            part = (
                count
                if share == 1
                else count * (float(share) if isinstance(count, np.ndarray) else share)
            )
            found[issued] = found[issued] + part if issued in found else part
    return found


@lru_cache(maxsize=2**8)
def _issued_by(policy: Hashable) -> dict[str, _Issued]:  # noqa: ARG001
    """Remember what units of properties are issued as under a policy, once asked for."""
    return {}


def _issued(name: str, policy: ExecutionPolicy) -> _Issued:
    """Return what a unit of a property is issued as; nothing of what is only emitted."""
    if name in _LAUNCHED or name.startswith(f"{ISSUE_ROOT}."):
        return ((name, Fraction(1)),)
    key = parse_execution(name)
    if key is None:
        return ()
    return tuple((issue_name(each), share) for each, share in issue(key, policy))
