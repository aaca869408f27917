"""Trip counts of loops that are constants of the code.

Rules
-----
1. The branch back decides, with the instruction nearest before it that adds a constant to a
   register (the loop goes on until zero) or compares one with a constant; a comparison of other
   things tells nothing.
2. The register is set to a constant by what writes it last in the blocks that come before the loop
   on every way to it, and only additions of constants change it within.

So loops over the work items of a group have known iterations, loops whose bounds are sizes none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

_ONLY_READ = ("compare", "test")


@dataclass(frozen=True, slots=True)
class Effect:
    """Effect of an instruction on an integer register."""

    # set to, increase by, or compare with a constant
    kind: Literal["set", "add", "compare", "write", "test"]
    register: str  # the register
    value: int = 0  # the constant


def constant_trips(
    before: Sequence[Effect], within: Sequence[Effect], tested: Sequence[Effect]
) -> float | None:
    """Return the iterations of a loop each time that it is entered."""
    decisive = next((each for each in tested if each.kind not in ("set", "write")), None)
    if decisive is None or decisive.kind == "test":
        return None
    changes = [e for e in within if e.register == decisive.register and e.kind not in _ONLY_READ]
    own = (e for e in before if e.register == decisive.register and e.kind not in _ONLY_READ)
    start = next(own, None)
    step = sum(each.value for each in changes)
    if start is None or start.kind != "set" or any(e.kind != "add" for e in changes) or not step:
        return None
    last = decisive.value if decisive.kind == "compare" else 0
    trips = (last - start.value) / step
    return trips if trips >= 1 else None
