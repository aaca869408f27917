"""The simulation of sub-groups that start in program order, in a form that Numba compiles.

The same rules as `countperf.mechanistic.simulation`, on arrays of 64-bit integers: in every step
the earliest start of every resident sub-group is worked out anew, beginning with the one that the
scheduler prefers, so that the first of those that can start earliest is the one that does. Numba is
an extra (``countperf[fast]``); it is imported when `compiled_core` is first called.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ticks = NDArray[np.int64]

NEVER = 2**62
"""Later than any time of a simulation that the core accepts, in ticks."""

ROUND_ROBIN, OLDEST, GREEDY = 0, 1, 2


Core = Callable[..., tuple[int, int, int]]
"""`in_order`, compiled."""


@cache
def compiled_core() -> Core | None:
    """Return `in_order`, compiled; None where Numba is not installed.

    Compiling takes seconds and is done once per installation where the package's directory or the
    user's cache can be written.
    """
    try:
        numba: Any = import_module("numba")
    except ImportError:
        return None
    try:
        return numba.njit(cache=True)(in_order)
    except RuntimeError:  # nowhere to keep the compiled code
        return numba.njit(in_order)


def in_order(
    offsets: Ticks,
    lengths: Ticks,
    subsystem: Ticks,
    cpi: Ticks,
    latency: Ticks,
    barrier: Ticks,
    waits: Ticks,
    waits_until: Ticks,
    groups: int,
    concurrent: int,
    valve_step: int,
    launch_step: int,
    scheduler: int,
    busy: Ticks,
    trace: Ticks,
) -> tuple[int, int, int]:
    """Simulate sub-groups that start their instructions in program order."""
    size = lengths.size
    rows = concurrent * size  # a row: a place for a resident sub-group
    each_group = 0
    longest = 0
    for index in range(size):
        each_group += lengths[index]
        longest = max(longest, lengths[index])
    finish = np.zeros((rows, longest), np.int64)
    position = np.zeros(rows, np.int64)
    ready = np.full(rows, NEVER, np.int64)  # NEVER: at a barrier, or over
    wanted = np.zeros(rows, np.int64)  # subsystem of the next instruction
    order = np.zeros(rows, np.int64)  # rows of the resident sub-groups, oldest first
    group_of = np.zeros(concurrent, np.int64)
    slot_free_at = np.zeros(concurrent, np.int64)  # NEVER: a group runs there
    left = np.zeros(concurrent, np.int64)
    arrived = np.zeros(concurrent, np.int64)
    over_at = np.zeros(concurrent, np.int64)
    free = np.zeros(busy.size, np.int64)
    resident = 0
    launched = 0
    to_start = groups * each_group
    now = 0
    valve = 0
    last_place = -1  # of the sub-group that started last, in order
    end = 0
    once = 0
    twice = 0
    reach_once = 0
    reach_twice = 0
    started = 0
    while started < to_start:
        floor = max(now, valve)
        soonest = NEVER
        place = -1
        first = 0
        if scheduler == ROUND_ROBIN:
            first = last_place + 1
        elif scheduler == GREEDY and last_place >= 0:
            row = order[last_place]
            soonest = max(ready[row], free[wanted[row]], floor)
            place = last_place
        if soonest > floor:
            for step in range(resident):
                here = first + step
                if here >= resident:
                    here -= resident
                row = order[here]
                at = max(ready[row], free[wanted[row]], floor)
                if at < soonest:
                    soonest = at
                    place = here
                    if at == floor:
                        break
        if launched < groups:
            slot = 0
            for other in range(1, concurrent):
                if slot_free_at[other] < slot_free_at[slot]:
                    slot = other
            start = slot_free_at[slot]
            if start <= soonest and start < NEVER:
                slot_free_at[slot] = NEVER
                group_of[slot] = launched
                left[slot] = each_group
                arrived[slot] = 0
                over_at[slot] = 0
                for index in range(size):
                    row = slot * size + index
                    position[row] = 0
                    ready[row] = start
                    wanted[row] = subsystem[offsets[index]]
                    order[resident] = row
                    resident += 1
                launched += 1
                continue
        now = soonest
        last_place = place
        row = order[place]
        slot = row // size
        index = row - slot * size
        node = position[row]
        instruction = offsets[index] + node
        unit = subsystem[instruction]
        cost = cpi[instruction]
        over = now + cost
        free[unit] = over
        valve = now + valve_step
        busy[unit] += cost
        shared = min(over, reach_once)
        if shared > max(now, reach_twice):
            twice += shared - max(now, reach_twice)
        if over > max(now, reach_once):
            once += over - max(now, reach_once)
        reach_twice = max(reach_twice, shared)
        reach_once = max(reach_once, over)
        if started < trace.shape[0]:
            trace[started, 0] = now
            trace[started, 1] = unit
            trace[started, 2] = group_of[slot] * size + index
            trace[started, 3] = node
        started += 1
        left[slot] -= 1
        node += 1
        position[row] = node
        ready[row] = NEVER
        first_woken = row
        woken = 1
        if barrier[instruction]:
            arrived[slot] += 1
            woken = 0
            if arrived[slot] == size:
                arrived[slot] = 0
                first_woken = slot * size
                woken = size
        for other in range(first_woken, first_woken + woken):
            place_in_group = other - slot * size
            done = position[other]
            after = offsets[place_in_group] + done
            result = now + latency[after - 1]
            finish[other, done - 1] = result
            over_at[slot] = max(over_at[slot], result)
            if done < lengths[place_in_group]:
                time = now
                for used in range(waits_until[after], waits_until[after + 1]):
                    time = max(time, finish[other, waits[used]])
                ready[other] = time
                wanted[other] = subsystem[after]
        if left[slot] == 0:
            end = max(end, over_at[slot])
            slot_free_at[slot] = over_at[slot] + launch_step
            kept = 0
            for here in range(resident):
                if here == last_place:
                    last_place = kept - 1
                if order[here] // size != slot:
                    order[kept] = order[here]
                    kept += 1
            resident = kept
            if scheduler != ROUND_ROBIN:
                last_place = -1
    return end, once, twice  # pyright: ignore[reportReturnType] - elements are typed as arrays
