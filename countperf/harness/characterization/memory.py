"""Experiments on memory: local, global by stride and working set, transfers, launches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from countperf.harness.backend import Program
from countperf.harness.characterization.bench import Bench
from countperf.harness.characterization.document import Finding, make_finding
from countperf.harness.characterization.estimates import (
    bank_count,
    find_cache_levels,
    fit_transfer,
)
from countperf.harness.characterization.kernels import COMMON_SOURCE
from countperf.harness.characterization.timing import Estimate, estimate
from countperf.harness.overhead import measure_launch_overhead

STRIDES = (1, 2, 4, 8, 16, 32)
_WORD = 4
_LINE_BYTES = 128
_MAX_BYTES_PER_S = 5e13
_NEVER = np.int32(-(2**31) + 5)
_TRANSFER_SIZES = tuple(2**k for k in range(10, 27, 2))


def measure_launches(bench: Bench) -> Iterator[Finding]:
    """Measure the time of an empty launch, by the device's timer and by the host's clock."""
    runs = [measure_launch_overhead(bench.session, bench.clock, runs=24) for _ in range(3)]
    for name, values in (
        ("launch overhead", [run.event_s for run in runs]),
        ("launch overhead of the host", [run.host_s for run in runs]),
    ):
        why = "an empty launch"
        yield make_finding(name, estimate(values), "s", "nothing: one group", highest=1e-2, why=why)


def measure_bandwidth(bench: Bench) -> Iterator[Finding]:
    """Measure loads, stores and copies of arrays that no cache holds, by stride.

    Bytes are those that work items ask for; those of a copy count twice, read and written.
    """
    program = bench.session.load(COMMON_SOURCE)
    words = bench.array_bytes // _WORD
    source, target = (bench.session.allocate(words * _WORD) for _ in range(2))
    never = np.float32(-1.5)
    groups = words // 4 // bench.group
    yield _bandwidth_finding(
        bench,
        "copy bandwidth",
        2 * 4 * _WORD * groups * bench.group,
        f"copy4: {words * _WORD} byte, {groups} groups of {bench.group}",
        lambda: bench.run_s(program, "copy4", groups, bench.group, (target, source)),
    )
    for stride in STRIDES:
        # a CPU takes work items in turn: one with several turns would jump through the array
        most = words // stride // bench.group * bench.group
        items = most if bench.is_cpu else min(most, 8 * bench.full_groups * bench.group)
        turns = max(1, words // (items * stride))
        moved = items * turns * _WORD
        shape = (np.int32(items), np.int32(turns), np.int32(stride))
        for kind, factor, arguments in (
            ("load", 1, (target, source, *shape, never)),
            ("store", 1, (target, *shape, np.float32(0.5))),
            ("copy", 2, (target, source, *shape)),
        ):
            groups = items // bench.group
            yield _bandwidth_finding(
                bench,
                f"{kind} bandwidth stride {stride}",
                factor * moved,
                f"{kind}: {words * _WORD} byte, {groups} groups of {bench.group}",
                partial(bench.run_s, program, kind, groups, bench.group, arguments),
            )


def _bandwidth_finding(
    bench: Bench, name: str, moved: int, kernel: str, run: Callable[[], float]
) -> Finding:
    effort = bench.effort
    times = [min(run() for _ in range(effort.tries)) for _ in range(effort.repetitions)]
    rate = estimate([moved / elapsed for elapsed in times], moved / min(times))
    why = "of what work items ask for"
    return make_finding(name, rate, "byte/s", kernel, lowest=1e6, highest=_MAX_BYTES_PER_S, why=why)


def moved_together(rates: dict[int, float]) -> int | None:
    """Return how many bytes of global memory move together, from load bandwidth by stride."""
    if 1 not in rates:
        return None
    stride = bank_count({stride: rates[1] / rate for stride, rate in rates.items()})
    return None if stride is None else stride * _WORD


def measure_working_sets(bench: Bench) -> Iterator[Finding]:
    """Measure the bandwidth of reading the same array again and again, by its size."""
    program = bench.session.load(COMMON_SOURCE)
    array = bench.session.allocate(bench.array_bytes)
    groups, group = _readers(bench)
    out = bench.session.allocate(_WORD * groups * group)
    size = max(groups * group * _WORD, 2**12)
    while size <= bench.array_bytes:
        before = (out, array, *_reading(bench, size))
        turn = bench.per_turn(program, "reread", groups, group, before, (_NEVER,), first=2)
        yield make_finding(
            f"read bandwidth {size} byte",
            Estimate(value=size / max(turn.value, 1e-12), spread=turn.spread),
            "byte/s",
            f"reread: {groups} groups of {group}",
            lowest=1e6,
            highest=20 * _MAX_BYTES_PER_S,
            why="from caches, if they hold the array",
        )
        size *= 4


def _readers(bench: Bench) -> tuple[int, int]:
    """Return groups and group size with which an array is read again and again."""
    return (bench.units, 1) if bench.is_cpu else (bench.full_groups, bench.group)


def _reading(bench: Bench, size: int) -> tuple[np.int32, np.int32, np.int32]:
    """Return which words each work item reads: those in a row on a CPU, else every n-th."""
    groups, group = _readers(bench)
    items = groups * group
    count = max(1, size // _WORD // items)
    if bench.is_cpu:
        return np.int32(count), np.int32(1), np.int32(count)
    return np.int32(1), np.int32(items), np.int32(count)


def chase_order(lines: int, seed: int = 0) -> NDArray[np.int32]:
    """Return a cycle through all lines in random order: where the next word is, for each line.

    Only the first word of each line is set.
    """
    order = np.random.default_rng(seed).permutation(lines).astype(np.int32)
    words = _LINE_BYTES // _WORD
    following = np.zeros(lines * words, np.int32)
    following[order * words] = np.roll(order, -1) * words
    return following


def measure_latency(bench: Bench) -> Iterator[Finding]:
    """Measure the time of a dependent load by working set; find the levels of the hierarchy."""
    program = bench.session.load(COMMON_SOURCE)
    out = bench.session.allocate(4 * _WORD)
    sizes: list[int] = []
    latencies: list[float] = []
    spreads: list[float] = []
    size = 2**11
    while size <= bench.array_bytes:
        turn = _chase(bench, program, out, size)
        yield make_finding(
            f"load latency {size} byte",
            turn.scaled(bench.clock_hz),
            "cycle",
            f"chase: a random cycle of lines of {_LINE_BYTES} byte",
            lowest=0.5,
            highest=20000,
            why="a dependent load",
        )
        sizes.append(size)
        latencies.append(turn.value)
        spreads.append(turn.spread)
        size = size * 2 if size < 2**28 else size * 4
    for number, level in enumerate(find_cache_levels(sizes, latencies), start=1):
        what = "memory" if level.size_bytes is None else f"cache {number}"
        value = Estimate(value=level.latency_s * bench.clock_hz, spread=max(spreads[:3]))
        kernel = "chase: plateaus of load latency"
        yield make_finding(f"{what} latency", value, "cycle", kernel)
        if level.size_bytes is not None:
            found = Estimate(value=float(level.size_bytes), spread=0.0)
            yield make_finding(f"{what} size", found, "byte", kernel)


def _chase(bench: Bench, program: Program, out: object, size: int) -> Estimate:
    following = chase_order(size // _LINE_BYTES)
    memory = bench.session.upload(following)
    groups, group = _readers(bench)
    sink = bench.session.allocate(_WORD * groups * group)
    # large caches are filled by all compute units, small ones by the chase itself
    if size // _WORD >= groups * group:
        fill = (sink, memory, *_reading(bench, size), np.int32(1), _NEVER)
        bench.run_s(program, "reread", groups, group, fill)
    random = np.random.default_rng(1)
    turns = bench.effort.chase_hops // 8

    def run(count: int) -> float:
        line = int(random.integers(size // _LINE_BYTES))
        start = np.int32(line * (_LINE_BYTES // _WORD))
        return bench.run_s(program, "chase", 1, 1, (out, memory, np.int32(count), start))

    values: list[float] = []
    for _ in range(bench.effort.repetitions):
        short = min(run(turns) for _ in range(bench.effort.tries))
        long = min(run(2 * turns) for _ in range(bench.effort.tries))
        values.append((long - short) / (8 * turns))
    return estimate(values)


def measure_local(bench: Bench) -> Iterator[Finding]:
    """Measure latency and cost of local loads, and bank conflicts by stride."""
    program = bench.session.load(COMMON_SOURCE)
    out = bench.output(bench.full_groups * bench.group)
    turn = bench.per_turn(
        program, "local_latency", 1, bench.lanes, (out,), (np.int32(bench.lanes),)
    )
    yield make_finding(
        "local latency",
        turn.scaled(bench.clock_hz / 8),
        "cycle",
        f"local_latency: one group of {bench.lanes}",
        lowest=0.5,
        highest=1000,
        why="a dependent load of local memory",
    )
    issued = bench.full_groups * bench.group / bench.lanes * 8 / bench.units
    costs: dict[int, float] = {}
    for stride in (*STRIDES, 64):
        after = (np.int32(stride), np.int32(bench.lanes * stride))
        turn = bench.per_turn(program, "local_chase", bench.full_groups, bench.group, (out,), after)
        cost = turn.checked(f"local loads, stride {stride}").scaled(bench.clock_hz / issued)
        costs[stride] = cost.value
        yield make_finding(
            f"local cpi stride {stride}",
            cost,
            "cycle",
            f"local_chase: {bench.full_groups} groups of {bench.group}",
            lowest=0.05,
            highest=1000,
            why="loads of a sub-group",
        )
    yield make_finding(
        "local bandwidth",
        Estimate(value=bench.units * bench.lanes * _WORD / costs[1] * bench.clock_hz, spread=0.0),
        "byte/s",
        "local_chase: stride 1",
    )
    banks = bank_count({stride: cost / costs[1] for stride, cost in costs.items()})
    if banks is not None:
        value = Estimate(value=float(banks), spread=0.0)
        yield make_finding("local banks", value, "bank", "local_chase: cost by stride")


def measure_transfers(bench: Bench) -> Iterator[Finding]:
    """Measure transfers from and to ordinary (pageable) memory of the host, by size."""
    session = bench.session
    largest = min(_TRANSFER_SIZES[-1], bench.array_bytes)
    host = np.zeros(largest, np.uint8)
    memory = session.allocate(largest)
    for direction in ("h2d", "d2h"):
        sizes = [size for size in _TRANSFER_SIZES if size <= largest]
        times = [
            min(_transfer_s(bench, direction, memory, host[:size]) for _ in range(5))
            for size in sizes
        ]
        again = [_transfer_s(bench, direction, memory, host) for _ in range(3)]
        spread = (max(again) - min(again)) / min(again)
        cost = fit_transfer(sizes, times)
        kernel = f"copies of {sizes[0]} to {sizes[-1]} byte by the host's clock"
        yield make_finding(
            f"{direction} startup",
            Estimate(value=cost.startup_s, spread=spread),
            "s",
            kernel,
            highest=1e-2,
            why="a short transfer",
        )
        yield make_finding(
            f"{direction} bandwidth",
            Estimate(value=cost.bandwidth_byte_per_s, spread=spread),
            "byte/s",
            kernel,
            lowest=1e7,
            highest=1e12,
            why="a link between host and device",
        )


def _transfer_s(bench: Bench, direction: str, memory: object, array: NDArray[np.uint8]) -> float:
    begin = bench.clock.now()
    if direction == "h2d":
        bench.session.copy_in(memory, array)
    else:
        bench.session.copy_out(array, memory)
    return bench.clock.now() - begin
