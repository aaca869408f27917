"""Characterization of a device by microbenchmarks: the constants that mechanistic models need.

Times are differences between runs of different length, so that launching does not count. Source:
Lemeire, Cornelis, Konstantinidis, "Analysis of the analytical performance models for GPUs and
extracting the underlying Pipeline model" (2023), sections 3 to 6.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeFloat

from countperf.devices import parameters as described
from countperf.devices.device import Device, EventClock, Launch, Session
from countperf.devices.identity import DeviceIdentity, read_clocks
from countperf.documents import Document, Part
from countperf.errors import MeasurementError
from countperf.measuring.campaign import gather_environment
from countperf.measuring.cases import Environment
from countperf.measuring.size_choice import measure_launch_overhead
from countperf.steps import step_through
from countperf.text import Printed, Result, columns_of, format_percent, plain


class Finding(Part):
    """A measured number."""

    name: str  # what was measured, such as ``fma.f32 latency``
    value: float
    spread: NonNegativeFloat  # median distance of the repetitions from it, relative to it
    unit: str  # of the value
    kernel: str  # the microbenchmark it comes from, with what it was run with
    is_plausible: bool = True
    remark: str = ""  # why it is not


class Characterization(Document, Result):
    """Findings of the microbenchmarks."""

    format: Literal["countperf-characterization"] = "countperf-characterization"
    version: Literal[1] = 1
    device: DeviceIdentity  # the device
    environment: Environment  # of the run
    findings: tuple[Finding, ...] = ()  # every number
    left_out: dict[str, str] = Field(default_factory=dict)  # what was not measured, and why
    parameters: described.DeviceParameters  # what mechanistic models read

    __str__ = Result.__str__

    def lay_out(self) -> Printed:
        """Give numbers with their spread, marks at those not plausible, and what is missing."""
        count = f": {len(self.findings)} numbers" if self.findings else ""
        return Printed(
            head=[f"{self.device.slug}, {self.device.name}{count}"],
            rows=[
                {**plain(found), "doubt": "" if found.is_plausible else f"!! {found.remark}"}
                for found in self.findings
            ],
            columns={
                **columns_of("name"),
                **columns_of("value unit"),
                **columns_of("spread", format_percent),
                **columns_of("doubt"),
            },
            notes=[f"left out: {name}: {reason}" for name, reason in self.left_out.items()],
            facts=self.to_object(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Effort of a characterization."""

    shortest_s: float = 1e-3  # the shorter run of each measurement takes this long at least, s
    repetitions: int = 3  # so often both runs are compared
    tries: int = 3  # of which the fastest counts
    array_bytes: int = 2**30  # largest array, byte
    classes: tuple[str, ...] = ()  # classes of instructions that are measured; by default all


QUICK = Effort(shortest_s=5e-4, tries=2, array_bytes=2**26)
FULL = Effort()

# --- kernels; compilers shall find nothing to leave out: operands come as arguments and differ
# between work items, every result depends on the one before, and is stored at the end

COMMON_SOURCE = Path(__file__).with_name("microbenchmarks.cl").read_text(encoding="utf-8")
UNROLLED = 32  # steps of a chain in one turn of its loop
CHAINS = 4  # independent chains of a work item where throughput is measured
_TYPES = {"f32": ("float", np.float32), "f64": ("double", np.float64), "s32": ("int", np.int32)}


class InstructionTest(NamedTuple):
    """A class of instructions, and a step of a chain of them."""

    name: str  # of the class, as in `DeviceParameters.classes`: instruction and type
    step: str  # statement that updates ``x`` by ``a`` and ``b``
    instructions: int = 1  # how many instructions of the class a step has
    values: tuple[float, float] = (1.0000001, 0.5)  # of ``a`` and ``b``

    def kernel(self, chains: int) -> str:
        """Return the name of the kernel of so many chains."""
        return f"chain{chains}_{self.name.replace('.', '_')}"

    def source(self, chains: int) -> str:
        """Write the kernel: `UNROLLED` steps a turn, spread over independent chains."""
        c_type, _ = _TYPES[self.name[-3:]]
        names = [f"x{number}" for number in range(chains)]
        declared = "".join(
            f"  {c_type} {name} = a + b * ({c_type}) (LOCAL_ID + {name[1:]});\n" for name in names
        )
        steps = (re.sub(r"\bx\b", names[n % chains], self.step) for n in range(UNROLLED))
        body = "".join(f"    {step};\n" for step in steps)
        return (
            f"KERNEL {self.kernel(chains)}"
            f"(GLOBAL {c_type} *RESTRICT out, int n, {c_type} a, {c_type} b)\n{{\n"
            f"{declared}  for (int k = 0; k < n; ++k) {{\n{body}  }}\n"
            f"  out[GLOBAL_ID] = {' + '.join(names)};\n}}\n"
        )


_FLOATING = {
    "add": "x = x + a",
    "mul": "x = x * a",
    "fma": "x = fma(x, a, b)",
    "div": "x = a / x",
    "rsqrt": "x = rsqrt(x)",
    "exp": "x = exp(-x)",
    "sin": "x = sin(x + a)",
}
INSTRUCTION_TESTS: tuple[InstructionTest, ...] = (
    *(InstructionTest(f"{name}.f32", step) for name, step in _FLOATING.items()),
    # an addition and an exclusive or: sums alone would be folded
    InstructionTest("add.s32", "x = (x ^ a) + b", 2, (21845, 13)),
    InstructionTest("mul.s32", "x = x * x", 1, (5, 2)),
    InstructionTest("div.s32", "x = a / (x | 1)", 1, (2000000011, 3)),
    *(InstructionTest(f"{name}.f64", step) for name, step in _FLOATING.items()),
)
"""The classes that are measured, most wanted first."""

_FIRST_TURNS, _MAX_TURNS = 8, 2**26
_ITEMS_PER_UNIT = 4096  # two waves on GPUs that hold 2048 work items per compute unit
_GROUP = 256

Estimate = tuple[float, float]  # a number with its spread, that of a `Finding`


def summarize(repetitions: Sequence[float], value: float | None = None) -> Estimate:
    """Return a number, by default the median of its repetitions, and how far these are from it."""
    middle = median(repetitions) if value is None else value
    distance = median(abs(repetition - middle) for repetition in repetitions)
    return middle, distance / abs(middle) if middle else 0.0


def time_per_turn(run: Callable[[int], float], effort: Effort) -> Estimate:
    """Measure the time of a turn of a loop, without what it takes to launch it."""
    turns = _FIRST_TURNS
    elapsed = run(turns)
    while elapsed < effort.shortest_s and turns < _MAX_TURNS:
        turns *= 4 if elapsed < effort.shortest_s / 8 else 2
        elapsed = min(run(turns), run(turns))
    pairs = [
        tuple(min(run(n) for _ in range(effort.tries)) for n in (turns, 3 * turns))
        for _ in range(effort.repetitions)
    ]
    differences = [(long - short) / (2 * turns) for short, long in pairs]
    shortest, longest = map(min, zip(*pairs, strict=True))  # other load only ever adds time
    return summarize(differences, (longest - shortest) / (2 * turns))


Possible = tuple[str, float, float]  # unit of a quantity, and between which values it is possible
_SECONDS: Possible = "s", 0.0, 1e-2  # of an empty launch, or a short transfer
_LATENCY: Possible = "cycle", 0.2, 20000
_CPI: Possible = "cycle", 1 / 8, 5000  # no compute unit starts more instructions in a cycle
_RATE: Possible = "byte/s", 1e6, 5e13


def _judge(name: str, estimate: Estimate, kernel: str, possible: Possible) -> Finding:
    """Make a finding, plausible if it is possible and its repetitions agree."""
    (value, spread), (unit, lowest, highest) = estimate, possible
    remark = f"repetitions differ by {spread:.0%}" if spread > 0.5 else ""
    if not lowest < value <= highest:
        remark = f"not between {lowest:.3g} and {highest:.3g} {unit}"
    return Finding(
        name=name,
        value=value,
        spread=spread,
        unit=unit,
        kernel=kernel,
        is_plausible=not remark,
        remark=remark,
    )


class Bench:
    """A session with a clock, and what the device is."""

    def __init__(self, session: Session, clock: EventClock, effort: Effort) -> None:
        self.session = session
        self.load: Callable[[str], Launch] = cache(session.load)
        self.clock = clock
        self.effort = effort
        limits = session.device.limits
        self.units = session.device.identity.compute_units
        self.lanes = max(1, limits.sub_group_size)
        self.group = min(_GROUP, limits.max_group_size)
        # the host's processor, or a device that shares its memory like one
        self.is_cpu = session.device.identity.device_type == "cpu"
        per_unit = 4 if self.is_cpu else max(1, _ITEMS_PER_UNIT // self.group)
        self.full_groups = self.units * per_unit  # groups that keep all compute units busy
        # size of a large array, byte: four of them fit
        largest = min(limits.max_allocation_bytes // 4, limits.global_memory_bytes // 8)
        self.array_bytes = min(effort.array_bytes, largest)
        host_mhz = max(read_clocks().values(), default=0.0) if self.is_cpu else 0.0
        self.known_clock_hz = 1e6 * (limits.max_clock_mhz or host_mhz)

    @property
    def clock_hz(self) -> float:
        """The clock, Hz."""
        if self.known_clock_hz > 0:
            return self.known_clock_hz
        raise MeasurementError(
            "cycles are not known: the device has no cycle counter, and its driver states no clock"
        )

    def run_s(self, launch: Launch, name: str, groups: int, group: int, *arguments: Any) -> float:
        """Run a kernel once and return its time, s."""
        return self.clock.time_run(lambda: launch(name, groups, group, arguments)).time_s


# --- experiments

_WORD = 4  # byte
_LINE_WORDS = 32  # no device moves more together
_COALESCED, _UNCOALESCED = "load bandwidth", f"load bandwidth stride {_LINE_WORDS}"
_TRANSFER_SIZES = tuple(2**k for k in range(10, 27, 2))
_CLOCK_TURNS = 2**18


def _measure_launches(bench: Bench) -> Iterator[Finding]:
    runs = [measure_launch_overhead(bench.session, bench.clock, runs=24) for _ in range(3)]
    overhead = summarize([run.time_s for run in runs])
    yield _judge("launch overhead", overhead, "nothing: one group", _SECONDS)


def _measure_clock(bench: Bench) -> Iterator[Finding]:
    """Set the clock by the device's cycle counter; without one, take what is declared."""
    declared = bench.known_clock_hz
    launch = bench.load(COMMON_SOURCE)
    out = bench.session.allocate(8 * bench.lanes)

    def run(turns: int) -> tuple[int, float]:
        arguments = (out, np.int32(turns), np.float32(1.0000001), np.float32(0.5))
        elapsed = bench.run_s(launch, "cycles", 1, bench.lanes, *arguments)
        return int(bench.session.download(out, np.dtype(np.int64), 1)[0]), elapsed

    if run(_CLOCK_TURNS)[0] <= 0:
        if declared:
            yield _judge("clock", (declared, 0.0), "declared", ("Hz", 0.0, declared))
        return
    ratios: list[float] = []  # by differences: launching takes time, but no cycles of a kernel
    for _ in range(bench.effort.repetitions):
        (few, short), (many, long) = run(_CLOCK_TURNS), run(3 * _CLOCK_TURNS)
        ratios.append((many - few) / (long - short) if long > short else 0.0)
    measured = summarize(ratios)
    if measured[0] <= 0:
        raise MeasurementError(
            "the device's cycle counter: longer runs take no longer; the machine is too busy"
        )
    possible = "Hz", 0.2 * declared, 1.1 * declared or float("inf")
    said = "cycles: the device's counter over the event timer"
    yield _judge("clock", measured, said, possible)
    bench.known_clock_hz = measured[0]


def _measure_bandwidth(bench: Bench) -> Iterator[Finding]:
    """Measure copies (bytes count twice) that no cache holds, and loads side by side and apart."""
    launch, effort = bench.load(COMMON_SOURCE), bench.effort
    words = bench.array_bytes // _WORD
    source, target = (bench.session.allocate(words * _WORD) for _ in range(2))

    def find(name: str, kernel: str, groups: int, moved: int, *arguments: object) -> Finding:
        call = launch, kernel, groups, bench.group, *arguments
        times = [
            min(bench.run_s(*call) for _ in range(effort.tries)) for _ in range(effort.repetitions)
        ]
        rate = summarize([moved / elapsed for elapsed in times], moved / min(times))
        said = f"{kernel}: {words * _WORD} byte, {groups} groups of {bench.group}"
        return _judge(name, rate, said, _RATE)

    groups = words // 4 // bench.group
    moved = 2 * 4 * _WORD * groups * bench.group
    yield find("copy bandwidth", "copy4", groups, moved, target, source)
    for name, stride in ((_COALESCED, 1), (_UNCOALESCED, _LINE_WORDS)):
        # a CPU takes work items in turn: one with several turns would jump through the array
        most = words // stride // bench.group * bench.group
        items = most if bench.is_cpu else min(most, 8 * bench.full_groups * bench.group)
        turns = max(1, words // (items * stride))
        numbers = (*map(np.int32, (items, turns, stride)), np.float32(-1.5))
        moved = items * turns * _WORD
        yield find(name, "load", items // bench.group, moved, target, source, *numbers)


def _measure_steps(
    name: str, source: str, kernels: Sequence[str], steps: int, after: Sequence[Any], bench: Bench
) -> Iterator[Finding]:
    """Measure a step of a loop: its latency in one sub-group, its cost in a full compute unit."""
    launch = bench.load(source)
    alone = 1 if bench.is_cpu else bench.lanes
    for what, possible, kernel, groups, group in (
        ("latency", _LATENCY, kernels[0], 1, alone),
        ("cpi", _CPI, kernels[-1], bench.full_groups, bench.group),
    ):
        out = bench.session.allocate(8 * groups * group)
        ran = launch, kernel, groups, group, out
        turn_s, spread = time_per_turn(
            lambda turns: bench.run_s(*ran, np.int32(turns), *after),  # noqa: B023  at once
            bench.effort,
        )
        issued = steps if groups == 1 else steps * groups * group / bench.lanes / bench.units
        said = f"{kernel}: {'one group' if groups == 1 else f'{groups} groups'} of {group}"
        yield _judge(f"{name} {what}", (turn_s * bench.clock_hz / issued, spread), said, possible)


def chase_order(lines: int) -> NDArray[np.int32]:
    """Return a random cycle through all lines: in the first word of each, where the next one is."""
    order = np.random.default_rng(0).permutation(lines).astype(np.int32)
    following = np.zeros(lines * _LINE_WORDS, np.int32)
    following[order * _LINE_WORDS] = np.roll(order, -1) * _LINE_WORDS
    return following


def _measure_latency(bench: Bench) -> Iterator[Finding]:
    """Measure the time of a dependent load of memory: in an array that no cache holds."""
    launch = bench.load(COMMON_SOURCE)
    out = bench.session.allocate(4 * _WORD)
    lines = bench.array_bytes // (_LINE_WORDS * _WORD)
    memory = bench.session.upload(chase_order(lines))
    random = np.random.default_rng(1)

    def run(turns: int) -> float:
        start = np.int32(int(random.integers(lines)) * _LINE_WORDS)
        return bench.run_s(launch, "chase", 1, 1, out, memory, np.int32(turns), start)

    turn_s, spread = time_per_turn(run, bench.effort)
    latency = turn_s * bench.clock_hz / 8, spread
    yield _judge("memory latency", latency, f"chase: a random cycle of {lines} lines", _LATENCY)


def _measure_transfers(bench: Bench) -> Iterator[Finding]:
    """Measure transfers from and to ordinary (pageable) memory of the host: start-up plus size."""
    session = bench.session
    sizes = [size for size in _TRANSFER_SIZES if size <= bench.array_bytes]
    host = np.zeros(sizes[-1], np.uint8)
    memory = session.allocate(sizes[-1])
    copies: Mapping[str, Callable[[int], None]] = {
        "h2d": lambda size: session.copy_in(memory, host[:size]),
        "d2h": lambda size: session.copy_out(host[:size], memory),
    }

    def time_copy(copy: Callable[[int], None], size: int) -> float:
        begin = bench.clock.now()
        copy(size)
        return bench.clock.now() - begin

    for direction, copy in copies.items():
        times = [min(time_copy(copy, size) for _ in range(5)) for size in sizes]
        _, spread = summarize([time_copy(copy, sizes[-1]) for _ in range(3)])
        slope, startup = map(float, np.polyfit(sizes, times, 1, w=1 / np.asarray(times)))
        said = f"copies of {sizes[0]} to {sizes[-1]} byte by the host's clock"
        yield _judge(f"{direction} startup", (max(0.0, startup), spread), said, _SECONDS)
        yield _judge(f"{direction} bandwidth", (1 / max(slope, 1e-15), spread), said, _RATE)


_PIPELINES = (
    "which classes of instructions share a pipeline is not measured: all of arithmetic are put on"
    " one, 'alu', unless 'subsystem' and 'issue_limit' in the device's document say otherwise"
)
_NOT_ON_CPUS = {
    "local memory": "local memory of a CPU is ordinary memory",
    "barriers": "a CPU executes the work items of a group in turn: nothing waits",
    "transfers": "host and device share their memory",
}


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
    experiments: dict[str, Callable[[Bench], Iterator[Finding]]] = {  # most wanted first
        "launch overhead": _measure_launches,
        "clock": _measure_clock,
        "bandwidth": _measure_bandwidth,
        **{
            f"class {test.name}": partial(
                _measure_steps,
                test.name,
                test.source(1) + test.source(CHAINS),
                [test.kernel(1), test.kernel(CHAINS)],
                UNROLLED * test.instructions,
                [_TYPES[test.name[-3:]][1](value) for value in test.values],
            )
            for test in INSTRUCTION_TESTS
            if not effort.classes or test.name in effort.classes
        },
        "latency": _measure_latency,
        "local memory": partial(
            _measure_steps, "local", COMMON_SOURCE, ["local_loads"], 8, [np.int32(bench.lanes)]
        ),
        "barriers": partial(_measure_steps, "barrier", COMMON_SOURCE, ["barriers"], 4, []),
        "transfers": _measure_transfers,
    }
    findings: list[Finding] = []
    left_out = {"pipelines": _PIPELINES}
    began = bench.clock.now()
    for name, measure in step_through(experiments.items(), "measuring"):
        if bench.is_cpu and name in _NOT_ON_CPUS:
            left_out[name] = _NOT_ON_CPUS[name]
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
        parameters=describe_device(device, findings),
    )


def describe_device(device: Device, findings: Iterable[Finding]) -> described.DeviceParameters:
    """Write down what is known of a device: plausible findings, and what its driver says.

    Of Hong & Kim: a memory instruction departs when the one before has been served, a coalesced one
    as a whole, an uncoalesced one by work item.
    """
    limits, units = device.limits, device.identity.compute_units
    lanes = max(1, limits.sub_group_size)
    known = {finding.name: finding for finding in findings if finding.is_plausible}
    # work items a second where each takes a cycle
    at_once = known["clock"].value * units * lanes if "clock" in known else 0.0
    values: dict[str, Any] = {
        "num_compute_units": units,
        "max_work_items_per_group": limits.max_group_size,
        "max_local_bytes_per_group": limits.local_memory_bytes,
        "sub_group_size": limits.sub_group_size or None,
        "cache_line_bytes": limits.cache_line_bytes or None,
    }
    sources = {field: "the device's driver" for field, value in values.items() if value}
    for field, name, dividend in (  # the finding, or a number over it
        ("clock_hz", "clock", None),
        ("launch_overhead_s", "launch overhead", None),
        ("bandwidth_byte_per_s", "copy bandwidth", None),
        ("mem_ld_cycles", "memory latency", None),
        ("issue_cycles", "fma.f32 cpi", None),
        ("cores_per_compute_unit", "fma.f32 cpi", lanes),
        ("peak_flops", "fma.f32 cpi", 2 * at_once),
        ("departure_del_coal_cycles", _COALESCED, at_once * _WORD),
        ("departure_del_uncoal_cycles", _UNCOALESCED, at_once * _WORD / lanes),
    ):
        if name in known and dividend != 0:
            value = known[name].value if dividend is None else dividend / known[name].value
            is_whole = field == "cores_per_compute_unit"
            values[field] = max(1, round(value)) if is_whole else value
            sources[field] = _source(known[name])
    parameters = described.declare_device(
        device.identity.slug,
        name=device.identity.name,
        compute_capability=limits.compute_capability or None,
        sources=sources,
        classes=_list_classes(known, values.get("departure_del_coal_cycles")),
        links={
            direction: described.LinkParameters(
                startup_s=startup.value, bandwidth_byte_per_s=rate.value, source=_source(rate)
            )
            for direction in ("h2d", "d2h")
            if (startup := known.get(f"{direction} startup"))
            and (rate := known.get(f"{direction} bandwidth"))
        },
        **values,
    )
    has_limits = limits.compute_capability in described.COMPUTE_CAPABILITIES
    return described.with_capability_limits(parameters) if has_limits else parameters


def _source(finding: Finding) -> str:
    return f"measured, spread {finding.spread:.1%}: {finding.kernel}"


def _list_classes(
    known: Mapping[str, Finding], load_cycles: float | None
) -> dict[str, described.InstructionClass]:
    """Return the classes of instructions of which both cost and latency are known."""
    costs = {name.removesuffix(" cpi"): found.value for name, found in known.items()}
    if load_cycles is not None:
        costs["memory"] = load_cycles
    rows: list[tuple[str, str, described.InstructionKind, str]] = [
        *((test.name, "alu", "compute", test.name) for test in INSTRUCTION_TESTS),
        ("bar.sync", "barrier", "barrier", "barrier"),
        ("ld.local.s32", "local", "compute", "local"),
        ("ld.global.s32", "memory", "memory", "memory"),
    ]
    return {
        name: described.InstructionClass(
            name=name,
            subsystem=subsystem,
            cpi=costs[measured],
            latency=latency.value,
            kind=kind,
            source=_source(latency),
        )
        for name, subsystem, kind, measured in rows
        if measured in costs and (latency := known.get(f"{measured} latency"))
    }
