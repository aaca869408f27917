r"""Lay out figures 2 to 5 of Ma, Chamberlain & Agrawal (2014): steps of all-pairs shortest paths.

The rows of a sub-block (S_D), the work items of a group and the resident groups (B_a) are free, and
with them the work items per core (T). Work and transactions are the formulas that countperf finds
in the kernel below; the time of the lg n squarings follows by the paper's Eq. (7), at a cycle per
step on the GTX 480.

    python examples/shortest_paths_steps.py [FIGURE.svg]

The formulas of a kernel by a command:

    countperf predict examples/shortest_paths_steps.py:tiles_32 --model tmm --explain \
        --on nvidia-gtx-480 --registers 20
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import loopy as lp
import numpy as np

from countperf import step_formulas
from countperf.devices.parameters import load_device
from countperf.mechanistic.occupancy import resident_groups
from countperf.mechanistic.step_formulas import StepFormulas
from countperf.mechanistic.tmm import compute_scheduled_steps

VERTICES = 8192
DEVICE = load_device("nvidia-gtx-480")
CORES = DEVICE.require_int("cores_per_compute_unit")
UNITS = DEVICE.require_int("num_compute_units")
SUB_BLOCKS = (16, 32, 64)
ITEMS = (32, 64, 128, 256, 512, 1024)
NAMES = {"sub_block": "S_D", "per_core": "T", "groups": "B_r"}


def squaring(sub_block: int) -> lp.TranslationUnit:
    """Return a squaring by (min, +) whose groups of one sub-group compute a sub-block each."""
    across = min(sub_block, 32)
    down = 32 // across
    here = [f"y + {down}*r{i}, x + {across}*s{i}" for i in range(4)]

    def place(array: str, i: int, row: str, column: str) -> str:
        rows = f"y + {down}*r{i} + {sub_block}*{row}"
        return f"{array}[{rows}, x + {across}*s{i} + {sub_block}*{column}]"

    inside = " and ".join(
        f"0 <= r{i} < {sub_block // down} and 0 <= s{i} < {sub_block // across}" for i in range(4)
    )
    loops = ", ".join(f"r{i}, s{i}" for i in range(4))
    kernel = lp.make_kernel(
        [
            f"[n] -> {{ [I, J, K] : 0 <= {sub_block}*I, {sub_block}*J, {sub_block}*K < n }}",
            f"{{ [x, y, k, {loops}] : 0 <= x < {across} and 0 <= y < {down}"
            f" and 0 <= k < {sub_block} and {inside} }}",
        ],
        f"""
        for I, J, x, y
            for r0, s0
                best[{here[0]}] = 1e30 {{id=init}}
            end
            for K
                for r1, s1
                    left[{here[1]}] = {place("a", 1, "I", "K")} {{id=left}}
                    right[{here[1]}] = {place("b", 1, "K", "J")} {{id=right}}
                end
                for r2, s2
                    <> shortest = best[{here[2]}] {{id=found, dep=init:left:right}}
                    for k
                        shortest = fmin(
                            shortest, left[y + {down}*r2, k] + right[k, x + {across}*s2]
                        ) {{id=step, dep=found}}
                    end
                    best[{here[2]}] = shortest {{id=kept, dep=step}}
                end
            end
            for r3, s3
                {place("c", 3, "I", "J")} = best[{here[3]}] {{dep=kept}}
            end
        end
        """,
        [
            lp.GlobalArg("a, b, c", np.float32, shape=("n", "n")),
            lp.ValueArg("n", np.int32),
            *(
                lp.TemporaryVariable(
                    name, np.float32, (sub_block, sub_block), address_space=lp.AddressSpace.LOCAL
                )
                for name in ("best", "left", "right")
            ),
        ],
        assumptions=f"n >= {sub_block} and n mod {sub_block} = 0",
        name=f"squaring_{sub_block}",
        lang_version=(2018, 2),
    )
    return lp.tag_inames(kernel, {"I": "g.1", "J": "g.0", "x": "l.0", "y": "l.1"})


def tiles_32() -> lp.TranslationUnit:
    """Return the squaring by sub-blocks of 32 rows."""
    return squaring(32)


@cache
def formulas(sub_block: int) -> StepFormulas:
    """Return work and transactions of a squaring as polynomials in the number of vertices."""
    options = {"registers_per_work_item": 20}
    return step_formulas(squaring(sub_block), DEVICE, profile_options=options)


@dataclass(frozen=True)
class Point:
    """A configuration, and the time of all squarings by Eq. (7)."""

    sub_block: int  # S_D
    items: int  # work items of a group
    groups: int  # B_r
    resident: int  # B_a
    per_core: float  # T
    time_s: float


def point(sub_block: int, items: int, most: int = 8) -> Point:
    """Return the point of a configuration, with as many resident groups as fit, Eq. (4)."""
    local = 3 * 4 * sub_block**2  # bytes of the three sub-blocks that a group holds
    fitting = resident_groups(DEVICE, work_items_per_group=items, local_bytes_per_group=local)
    resident = min(most, fitting.active_groups)
    (program,) = formulas(sub_block).programs
    groups = int(program.groups.evaluate({"n": VERTICES}))
    steps = compute_scheduled_steps(
        work=float(program.work.evaluate({"n": VERTICES})),
        transactions=float(program.transactions.evaluate({"n": VERTICES})),
        latency_steps=DEVICE.require("latency_steps"),
        work_items_per_core=resident * items / CORES,
        num_cores=UNITS * CORES,
        num_groups=groups,
        active_groups=resident,
        num_compute_units=UNITS,
    )
    time_s = math.log2(VERTICES) * steps.steps / DEVICE.require("clock_hz")
    return Point(sub_block, items, groups, resident, resident * items / CORES, time_s)


def draw(path: str, points: Sequence[Point], limited: Mapping[str, Sequence[Point]]) -> None:
    """Draw the four figures beside each other."""
    import matplotlib.pyplot as plt

    panels: list[Any]
    figure, panels = plt.subplots(1, 4, figsize=(16, 4), sharey=True, layout="constrained")
    by_slope = sorted(points, key=lambda p: math.sqrt(p.groups) / p.per_core)
    slopes = [math.sqrt(p.groups) / p.per_core for p in by_slope]
    panels[0].plot(slopes, [p.time_s for p in by_slope], "o-")
    panels[0].set(xlabel="sqrt(B_r) / T", ylabel="time, s", title="figure 2")
    for panel, title, axis, label in (
        (panels[1], "figure 3", "per_core", "sub_block"),
        (panels[2], "figure 4", "groups", "per_core"),
    ):
        for value in sorted({getattr(p, label) for p in points}):
            some = sorted(
                (getattr(p, axis), p.time_s) for p in points if getattr(p, label) == value
            )
            panel.plot(*zip(*some, strict=True), "o-", label=f"{NAMES[label]} = {value:g}")
        panel.set(xlabel=NAMES[axis], title=title)
    for name, some in limited.items():
        panels[3].plot([p.per_core for p in some], [p.time_s for p in some], "o-", label=name)
    panels[3].set(xlabel="T", title="figure 5, S_D = 32")
    for panel in panels[1:]:
        panel.legend()
    figure.savefig(path)


def main() -> None:
    """Print both tables, and draw the figures into the file that is named."""
    print("figures 2, 3, 4: time over sqrt(B_r)/T, T and B_r")
    print("S_D  items   B_r     B_a   T   sqrt(B_r)/T  time")
    points = [point(rows, items) for rows in SUB_BLOCKS for items in ITEMS if items <= rows**2]
    for p in points:
        slope = math.sqrt(p.groups) / p.per_core
        print(
            f"{p.sub_block:3} {p.items:6} {p.groups:7} {p.resident:5} {p.per_core:5.0f}"
            f" {slope:10.1f} {p.time_s:9.1f} s"
        )
    print("figure 5: S_D = 32, at most 1, 2 and all resident groups")
    limited = {f"B_a <= {most}": [point(32, items, most) for items in ITEMS] for most in (1, 2, 8)}
    for some in zip(*limited.values(), strict=True):
        print(
            f"{some[0].items:4} items: ",
            ";  ".join(f"T = {p.per_core:2.0f}: {p.time_s:5.1f} s" for p in some),
        )
    if sys.argv[1:]:
        draw(sys.argv[1], points, limited)


if __name__ == "__main__":
    main()
