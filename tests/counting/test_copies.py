"""Loops over copies, which Loopy nests in an order of chance."""

from __future__ import annotations

import os
import subprocess
import sys

import loopy as lp
import loopy.schedule

from countperf.counting.frontend.copies import in_fixed_order
from countperf.counting.frontend.schedule import prepared

_SCRIPT = """
import loopy as lp, numpy as np
from countperf.counting.frontend.copies import in_fixed_order
from countperf.counting.frontend.schedule import prepared
unit = lp.make_kernel(
    "{ [i, j, a, b, c, d]: 0 <= i, j < 16 and 0 <= a < 2 and 0 <= b < 3 and 0 <= c < 2"
    " and 0 <= d < 3 }",
    "out[i, a, b, c, d] = sum(j, x[i, j, a, b]*y[j, c, d])",
    [lp.GlobalArg("out,x,y", np.float32, shape=lp.auto)], lang_version=(2018, 2))
unit = lp.tag_inames(unit, {"i": "l.0", **dict.fromkeys("abcd", "ilp.seq")})
unit = lp.prioritize_loops(unit, "d,b")
kernel, _ = prepared(unit)
loops = [item.iname for item in kernel.linearization if isinstance(item, lp.schedule.EnterLoop)]
print(loops[:4])
print(lp.generate_code_v2(in_fixed_order(unit)).device_code())
"""


def _printed(seed: int) -> str:
    """Return what the script prints in a process whose sets have another order."""
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _SCRIPT],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_each_process_counts_and_generates_the_same() -> None:
    first, second = _printed(1), _printed(2)
    assert first == second
    assert first.splitlines()[0] == "['d', 'b', 'a', 'c']"  # by priority, then by name


def test_others_are_left_to_loopy() -> None:
    state = loopy.schedule.SchedulerState
    unit = lp.make_kernel("{ [i, j]: 0 <= i, j < 16 }", "out[i, j] = i + j", lang_version=(2018, 2))
    unit = lp.tag_inames(unit, {"i": "l.0", "j": "ilp"})
    kernel = unit.default_entrypoint.copy(silenced_warnings=("v1_scheduler_fallback",))
    unit = unit.with_kernel(kernel)
    assert in_fixed_order(unit) is unit
    prepared(unit)
    assert loopy.schedule.SchedulerState is state
