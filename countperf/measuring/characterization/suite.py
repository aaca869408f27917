"""Experiments in order of importance, and the device document that is made of what they find."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countperf.devices.device import Device, EventClock, Session
from countperf.devices.parameters import (
    COMPUTE_CAPABILITIES,
    DeviceParameters,
    InstructionClass,
    InstructionKind,
    LinkParameters,
    declare_device,
    with_capability_limits,
)
from countperf.errors import MeasurementError
from countperf.measuring.characterization.bench import (
    CHAINS,
    COMMON_SOURCE,
    FULL,
    INSTRUCTION_TESTS,
    UNROLLED,
    Bench,
    Bounds,
    Characterization,
    Effort,
    Finding,
    InstructionTest,
    MeasuredValue,
    chain_source,
    estimate,
    fit_transfer,
    time_per_turn,
)
from countperf.measuring.environment import gather_environment
from countperf.measuring.size_choice import measure_launch_overhead
from countperf.steps import stepped

STRIDES = (1, 2, 4, 8, 16, 32)
WORD = 4  # byte

_LINE_BYTES = 128
_TRANSFER_SIZES = tuple(2**k for k in range(10, 27, 2))
_CLOCK_TURNS = 2**18
_MAX_STARTS = 8  # no compute unit starts more sub-group instructions in a cycle
_MAX_LATENCY = 5000  # cycles; a division of f64 in software takes hundreds
_MAX_BYTES_PER_S = 5e13

_LAUNCH = Bounds("s", highest=1e-2, why="an empty launch")
_BANDWIDTH = Bounds("byte/s", 1e6, _MAX_BYTES_PER_S, "of what work items ask for")
_LATENCY = Bounds("cycle", 0.2, _MAX_LATENCY, "a dependent instruction")
_CPI = Bounds("cycle", 1 / _MAX_STARTS, _MAX_LATENCY, f"at most {_MAX_STARTS} starts per cycle")
_LOAD = Bounds("cycle", 0.5, 20000, "a dependent load")
_LOCAL_LATENCY = Bounds("cycle", 0.5, 1000, "a dependent load of local memory")
_LOCAL_CPI = Bounds("cycle", 0.05, 1000, "loads of a sub-group")
_BARRIER = Bounds("cycle", 0.5, _MAX_LATENCY, "a barrier of one group")
_BARRIER_CPI = Bounds(
    "cycle", 1 / _MAX_STARTS, _MAX_LATENCY, "barriers of sub-groups on a full compute unit"
)
_STARTUP = Bounds("s", highest=1e-2, why="a short transfer")
_LINK = Bounds("byte/s", 1e7, 1e12, "a link between host and device")


def measure_launches(bench: Bench) -> Iterator[Finding]:
    """Measure the time of an empty launch by the device's timer."""
    runs = [measure_launch_overhead(bench.session, bench.clock, runs=24) for _ in range(3)]
    overhead = estimate([run.time_s for run in runs])
    yield _LAUNCH.finding("launch overhead", overhead, "nothing: one group")


def measure_clock(bench: Bench) -> Iterator[Finding]:
    """Compare the device's cycle counter with its event timer; without one, take what is declared.

    Sets the bench's clock.
    """
    declared = bench.known_clock_hz
    program = bench.load(COMMON_SOURCE)
    out = bench.session.allocate(8 * bench.lanes)

    def run(turns: int) -> tuple[int, float]:
        arguments = (out, np.int32(turns), np.float32(1.0000001), np.float32(0.5))
        elapsed = bench.run_s(program, "cycles", 1, bench.lanes, arguments)
        return int(bench.session.download(out, np.dtype(np.int64), 1)[0]), elapsed

    ratios: list[float] = []
    if run(_CLOCK_TURNS)[0] > 0:  # by differences: launching takes time, but no cycles of a kernel
        for _ in range(bench.effort.repetitions):
            (few, short), (many, long) = run(_CLOCK_TURNS), run(3 * _CLOCK_TURNS)
            ratios.append((many - few) / (long - short) if long > short else 0.0)
    if ratios:
        measured = estimate(ratios)
        if measured.value <= 0:
            raise MeasurementError(
                "the device's cycle counter: longer runs take no longer; the machine is too busy"
            )
        highest = 1.1 * declared if declared else float("inf")
        bounds = Bounds("Hz", 0.2 * declared, highest, "the driver's highest clock")
        yield bounds.finding("clock", measured, "cycles: the device's counter over the event timer")
        bench.known_clock_hz = measured.value
    elif declared:
        yield Bounds("Hz").finding("clock", MeasuredValue(declared), "declared")


def measure_class(test: InstructionTest, bench: Bench) -> Iterator[Finding]:
    """Measure latency and throughput of a class of instructions."""
    alone = 1 if bench.is_cpu else bench.lanes
    for what, bounds, chains, groups, group in (
        ("latency", _LATENCY, 1, 1, alone),
        ("cpi", _CPI, CHAINS, bench.full_groups, bench.group),
    ):
        step, kernel = bench.step_cycles(
            chain_source(test, chains),
            f"chain{chains}_{test.identifier}",
            groups,
            group,
            UNROLLED,
            test.arguments(),
        )
        cost = step.scaled(1 / test.instructions)
        yield bounds.finding(f"{test.name} {what}", cost, kernel)


def measure_barriers(bench: Bench) -> Iterator[Finding]:
    """Measure the cost of a barrier of a sub-group, alone and at full occupancy."""
    full = max(1, 2048 // bench.lanes) * bench.units
    for name, bounds, groups in (
        ("barrier latency", _BARRIER, 1),
        ("barrier cpi", _BARRIER_CPI, full),
    ):
        cycles = bench.step_cycles(COMMON_SOURCE, "barriers", groups, bench.lanes, 4)
        yield bounds.finding(name, *cycles)


def measure_local(bench: Bench) -> Iterator[Finding]:
    """Measure latency and cost of local loads without bank conflicts."""
    after = (np.int32(bench.lanes),)
    cycles = bench.step_cycles(COMMON_SOURCE, "local_latency", 1, bench.lanes, 8, after)
    yield _LOCAL_LATENCY.finding("local latency", *cycles)
    after = (np.int32(1), np.int32(bench.lanes))
    cycles = bench.step_cycles(
        COMMON_SOURCE, "local_chase", bench.full_groups, bench.group, 8, after
    )
    yield _LOCAL_CPI.finding("local cpi", *cycles)


def measure_bandwidth(bench: Bench) -> Iterator[Finding]:
    """Measure copies of arrays that no cache holds, and loads by stride.

    Bytes are those that work items ask for; those of a copy count twice, read and written.
    """
    program = bench.load(COMMON_SOURCE)
    words = bench.array_bytes // WORD
    source, target = (bench.session.allocate(words * WORD) for _ in range(2))

    def finding(name: str, kernel: str, groups: int, moved: int, *arguments: object) -> Finding:
        run: Callable[[], float] = partial(
            bench.run_s, program, kernel, groups, bench.group, arguments
        )
        times = [
            min(run() for _ in range(bench.effort.tries)) for _ in range(bench.effort.repetitions)
        ]
        rate = estimate([moved / elapsed for elapsed in times], moved / min(times))
        said = f"{kernel}: {words * WORD} byte, {groups} groups of {bench.group}"
        return _BANDWIDTH.finding(name, rate, said)

    groups = words // 4 // bench.group
    moved = 2 * 4 * WORD * groups * bench.group
    yield finding("copy bandwidth", "copy4", groups, moved, target, source)
    for stride in STRIDES:
        # a CPU takes work items in turn: one with several turns would jump through the array
        most = words // stride // bench.group * bench.group
        items = most if bench.is_cpu else min(most, 8 * bench.full_groups * bench.group)
        turns = max(1, words // (items * stride))
        shape = (np.int32(items), np.int32(turns), np.int32(stride))
        yield finding(
            f"load bandwidth stride {stride}",
            "load",
            items // bench.group,
            items * turns * WORD,
            *(target, source, *shape, np.float32(-1.5)),
        )


def moved_together(rates: dict[int, float]) -> int | None:
    """Return how many bytes of global memory move together, from load bandwidth by stride."""
    if 1 not in rates:
        return None
    costs = {stride: rates[1] / rate for stride, rate in rates.items()}
    worst = max(costs.values())
    if worst < 1.5:
        return None
    return WORD * min(stride for stride, cost in costs.items() if cost >= 0.8 * worst)


def chase_order(lines: int, seed: int = 0) -> NDArray[np.int32]:
    """Return a cycle through all lines in random order: where the next word is, for each line.

    Only the first word of each line is set.
    """
    order = np.random.default_rng(seed).permutation(lines).astype(np.int32)
    words = _LINE_BYTES // WORD
    following = np.zeros(lines * words, np.int32)
    following[order * words] = np.roll(order, -1) * words
    return following


def measure_latency(bench: Bench) -> Iterator[Finding]:
    """Measure the time of a dependent load of memory: in an array that no cache holds."""
    program = bench.load(COMMON_SOURCE)
    out = bench.session.allocate(4 * WORD)
    lines = bench.array_bytes // _LINE_BYTES
    memory = bench.session.upload(chase_order(lines))
    random = np.random.default_rng(1)

    def run(turns: int) -> float:
        start = np.int32(int(random.integers(lines)) * (_LINE_BYTES // WORD))
        return bench.run_s(program, "chase", 1, 1, (out, memory, np.int32(turns), start))

    latency = time_per_turn(run, bench.effort).scaled(bench.clock_hz / 8)
    yield _LOAD.finding("memory latency", latency, f"chase: a random cycle of {lines} lines")


def measure_transfers(bench: Bench) -> Iterator[Finding]:
    """Measure transfers from and to ordinary (pageable) memory of the host, by size."""
    session = bench.session
    sizes = [size for size in _TRANSFER_SIZES if size <= bench.array_bytes]
    largest = min(_TRANSFER_SIZES[-1], bench.array_bytes)
    host = np.zeros(largest, np.uint8)
    memory = session.allocate(largest)

    def transfer_s(direction: str, size: int) -> float:
        begin = bench.clock.now()
        if direction == "h2d":
            session.copy_in(memory, host[:size])
        else:
            session.copy_out(host[:size], memory)
        return bench.clock.now() - begin

    for direction in ("h2d", "d2h"):
        times = [min(transfer_s(direction, size) for _ in range(5)) for size in sizes]
        again = [transfer_s(direction, largest) for _ in range(3)]
        spread = (max(again) - min(again)) / min(again)
        startup_s, rate = fit_transfer(sizes, times)
        kernel = f"copies of {sizes[0]} to {sizes[-1]} byte by the host's clock"
        yield _STARTUP.finding(f"{direction} startup", MeasuredValue(startup_s, spread), kernel)
        yield _LINK.finding(f"{direction} bandwidth", MeasuredValue(rate, spread), kernel)


_PIPELINES = (
    "which classes of instructions share a pipeline is not measured: all of arithmetic are put on"
    " one, 'alu', unless 'subsystem' and 'issue_limit' in the device's document say otherwise"
)
_Experiment = tuple[str, Callable[[Bench], Iterator[Finding]], str]
"""Name; from a bench to findings; why it makes no sense on a CPU."""


def _experiments(effort: Effort) -> list[_Experiment]:
    """List the experiments, most wanted first."""
    classes = [
        (f"class {test.name}", partial(measure_class, test), "")
        for test in INSTRUCTION_TESTS
        if not effort.classes or test.name in effort.classes
    ]
    in_turn = "a CPU executes the work items of a group in turn: nothing waits"
    return [
        ("launch overhead", measure_launches, ""),
        ("clock", measure_clock, ""),
        ("bandwidth", measure_bandwidth, ""),
        *classes,
        ("latency", measure_latency, ""),
        ("local memory", measure_local, "local memory of a CPU is ordinary memory"),
        ("barriers", measure_barriers, in_turn),
        ("transfers", measure_transfers, "host and device share their memory"),
    ]


def characterize(
    session: Session,
    *,
    clock: EventClock | None = None,
    effort: Effort = FULL,
    max_seconds: float | None = None,
) -> Characterization:
    """Run the microbenchmarks on a device; those that begin after `max_seconds` are left out."""
    device = session.device
    bench = Bench(session, clock or EventClock(), effort)
    environment = gather_environment(device.limits, session.versions())
    findings: list[Finding] = []
    left_out = {"pipelines": _PIPELINES}
    began = bench.clock.now()
    for name, measure, not_on_cpus in stepped(_experiments(effort), "measuring"):
        if bench.is_cpu and not_on_cpus:
            left_out[name] = not_on_cpus
        elif max_seconds is not None and bench.clock.now() - began > max_seconds:
            left_out[name] = "no time was left"
        else:
            try:
                findings += measure(bench)
            except MeasurementError as error:
                left_out[name] = str(error)
    return Characterization(
        device=device.identity,
        environment=environment,
        findings=tuple(findings),
        left_out=left_out,
        parameters=device_parameters(device, findings),
    )


_DRIVER = "the device's driver"
_FIELDS = {
    "clock_hz": "clock",
    "launch_overhead_s": "launch overhead",
    "bandwidth_byte_per_s": "copy bandwidth",
    "mem_ld_cycles": "memory latency",
    "latency_steps": "memory latency",
    "issue_cycles": "fma.f32 cpi",
}
"""Numbers that a finding gives as it is, by field."""


def device_parameters(device: Device, findings: Iterable[Finding]) -> DeviceParameters:
    """Write down what is known of a device: plausible findings, and what its driver says."""
    limits = device.limits
    known = {finding.name: finding for finding in findings if finding.is_plausible}
    values: dict[str, Any] = {
        "num_compute_units": device.identity.compute_units,
        "max_work_items_per_group": limits.max_group_size,
        "max_local_bytes_per_group": limits.local_memory_bytes,
    }
    if limits.sub_group_size:
        values["sub_group_size"] = limits.sub_group_size
    sources = dict.fromkeys(values, _DRIVER)

    for field, name in _FIELDS.items():
        if name in known:
            values[field], sources[field] = known[name].value, _source(known[name])
    rates = {
        stride: known[f"load bandwidth stride {stride}"].value
        for stride in STRIDES
        if f"load bandwidth stride {stride}" in known
    }
    if (line := moved_together(rates)) is not None:
        values["cache_line_bytes"] = line
        sources["cache_line_bytes"] = "measured: load bandwidth by stride"
    lanes, units = max(1, limits.sub_group_size), device.identity.compute_units
    if "fma.f32 cpi" in known and "clock" in known:
        rate = lanes * units * known["clock"].value / known["fma.f32 cpi"].value
        values["peak_flops"], sources["peak_flops"] = 2 * rate, _source(known["fma.f32 cpi"])
    for field, (value, finding) in _older_constants(known, rates, lanes, units).items():
        values[field], sources[field] = value, _source(finding)
    values["classes"] = _classes(known, lanes, units)
    values["links"] = _links(known)
    parameters = declare_device(
        device.identity.slug, name=device.identity.name, sources=sources, **values
    )
    if limits.compute_capability in COMPUTE_CAPABILITIES:
        return with_capability_limits(
            parameters.replaced(compute_capability=limits.compute_capability)
        )
    return parameters


def _older_constants(
    known: dict[str, Finding], rates: dict[int, float], lanes: int, units: int
) -> dict[str, tuple[float, Finding]]:
    """Return the constants of Hong & Kim and of Ma et al. that follow from findings.

    An instruction is issued every cycle of the fastest class; a memory instruction departs when the
    one before has been served: a coalesced one as a whole, an uncoalesced one by transaction (one
    for each work item, where the stride is a line or more). A step of Ma's machine is an operation
    of a core, of which a compute unit has as many as results of the fastest class a cycle.
    """
    constants: dict[str, tuple[float, Finding]] = {}
    fastest = known.get("fma.f32 cpi")
    if fastest is not None:
        constants["cores_per_compute_unit"] = (max(1, round(lanes / fastest.value)), fastest)
    if "clock" not in known or 1 not in rates:
        return constants

    def cycles(stride: int) -> float:
        return known["clock"].value * units * lanes * WORD / rates[stride]

    constants["departure_del_coal_cycles"] = (cycles(1), known["load bandwidth stride 1"])
    line = moved_together(rates)
    apart = [stride for stride in rates if line is not None and stride * WORD >= line]
    if apart:
        finding = known[f"load bandwidth stride {min(apart)}"]
        constants["departure_del_uncoal_cycles"] = (cycles(min(apart)) / lanes, finding)
    return constants


def _source(finding: Finding) -> str:
    return f"measured, spread {finding.spread:.1%}: {finding.kernel}"


def _classes(known: dict[str, Finding], lanes: int, units: int) -> dict[str, InstructionClass]:
    classes: dict[str, InstructionClass] = {}

    def add(name: str, subsystem: str, kind: InstructionKind, cpi: float, latency: str) -> None:
        classes[name] = InstructionClass(
            name=name,
            subsystem=subsystem,
            cpi=cpi,
            latency=known[latency].value,
            kind=kind,
            source=_source(known[latency]),
        )

    for test in INSTRUCTION_TESTS:
        cpi, latency = f"{test.name} cpi", f"{test.name} latency"
        if cpi in known and latency in known:
            add(test.name, "alu", "compute", known[cpi].value, latency)
    if {"barrier latency", "barrier cpi"} <= known.keys():
        add("bar.sync", "barrier", "barrier", known["barrier cpi"].value, "barrier latency")
    if {"local latency", "local cpi"} <= known.keys():
        add("ld.local.s32", "local", "compute", known["local cpi"].value, "local latency")
    if {"memory latency", "load bandwidth stride 1", "clock"} <= known.keys():
        rate = known["load bandwidth stride 1"].value / (units * lanes * WORD)
        cpi = known["clock"].value / rate
        add("ld.global.s32", "memory", "memory", cpi, "memory latency")
    return classes


def _links(known: dict[str, Finding]) -> dict[str, LinkParameters]:
    return {
        direction: LinkParameters(
            startup_s=known[f"{direction} startup"].value,
            bandwidth_byte_per_s=known[f"{direction} bandwidth"].value,
            source=_source(known[f"{direction} bandwidth"]),
        )
        for direction in ("h2d", "d2h")
        if {f"{direction} startup", f"{direction} bandwidth"} <= known.keys()
    }
