"""Experiments on arithmetic: the clock, classes of instructions, mixes of two, barriers."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

import numpy as np

from countperf.errors import MeasurementError
from countperf.harness.characterization.bench import Bench
from countperf.harness.characterization.document import Finding, make_finding
from countperf.harness.characterization.estimates import MixVerdict, judge_mix
from countperf.harness.characterization.kernels import (
    CHAINS,
    COMMON_SOURCE,
    INSTRUCTION_TESTS,
    UNROLLED,
    InstructionTest,
    chain_source,
    mix_source,
)
from countperf.harness.characterization.timing import Estimate, estimate

MIX_RATIOS = (1, 2, 4, 8, 16)
MIXED = ("add.s32", "rsqrt.f32", "mad.s32", "fma.f64")
FAST = "fma.f32"

_CLOCK_TURNS = 2**18
_MAX_STARTS = 8  # no compute unit starts more sub-group instructions in a cycle
_MAX_LATENCY = 5000  # cycles; a division of f64 in software takes hundreds


def wanted_tests(bench: Bench) -> tuple[InstructionTest, ...]:
    """Return the classes that are measured on a device."""
    chosen = bench.effort.classes
    return tuple(test for test in INSTRUCTION_TESTS if not chosen or test.name in chosen)


def measure_clock(bench: Bench) -> Iterator[Finding]:
    """Compare the device's cycle counter with its event timer; without one, take what is declared.

    Sets the bench's clock.
    """
    declared = bench.known_clock_hz
    program = bench.session.load(COMMON_SOURCE)
    out = bench.output(bench.lanes)

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
        measured = estimate(ratios).checked("the device's cycle counter")
        yield make_finding(
            "clock",
            measured,
            "Hz",
            "cycles: the device's counter over the event timer",
            lowest=0.2 * declared,
            highest=1.1 * declared if declared else float("inf"),
            why="the driver's highest clock",
        )
        bench.known_clock_hz = measured.value
    elif declared:
        yield make_finding("clock", Estimate(value=declared, spread=0.0), "Hz", "declared")


def measure_class(
    bench: Bench, test: InstructionTest, found: dict[str, Finding]
) -> Iterator[Finding]:
    """Measure latency and throughput of a class of instructions."""
    program = bench.session.load(chain_source(test, 1) + chain_source(test, CHAINS))
    if test.carries and f"{test.carries} cpi" not in found:
        raise MeasurementError(
            f"{test.name}: {test.carries} was not measured, which its steps have"
        )
    alone = 1 if bench.is_cpu else bench.lanes
    out = bench.output(bench.full_groups * bench.group)
    name = f"chain1_{test.identifier}"
    turn = bench.per_turn(program, name, 1, alone, (out,), test.arguments())
    yield make_finding(
        f"{test.name} latency",
        _per_instruction(test, turn.scaled(bench.clock_hz / UNROLLED), found, "latency"),
        "cycle",
        f"{name}: a group of {alone}",
        lowest=0.2,
        highest=_MAX_LATENCY,
        why="a dependent instruction",
    )
    name, groups = f"chain{CHAINS}_{test.identifier}", bench.full_groups
    turn = bench.per_turn(program, name, groups, bench.group, (out,), test.arguments())
    issued = groups * bench.group / bench.lanes * UNROLLED / bench.units
    yield make_finding(
        f"{test.name} cpi",
        _per_instruction(test, turn.scaled(bench.clock_hz / issued), found, "cpi"),
        "cycle",
        f"{name}: {groups} groups of {bench.group}",
        lowest=1 / _MAX_STARTS,
        highest=_MAX_LATENCY,
        why=f"at most {_MAX_STARTS} starts per cycle",
    )


def _per_instruction(
    test: InstructionTest, step: Estimate, found: dict[str, Finding], what: str
) -> Estimate:
    """Return the cost of an instruction from that of a step."""
    carried = found[f"{test.carries} {what}"].value if test.carries else 0.0
    own = step.value - carried
    spread = step.spread * step.value / own if own > 0 else step.spread
    return Estimate(value=own / test.instructions, spread=spread)


def measure_mixes(bench: Bench, costs: dict[str, float]) -> Iterator[Finding]:
    """Decide how pairs of classes share a compute unit, and find the issue limit."""
    tests = {test.name: test for test in INSTRUCTION_TESTS}
    limits: list[float] = []
    slow_names = [name for name in MIXED if name in costs and FAST in costs]
    for slow_name in slow_names:
        throughputs: dict[int, Estimate] = {}
        for ratio in MIX_RATIOS:
            throughputs[ratio] = _mix(bench, tests[FAST], tests[slow_name], ratio)
        slow_steps = tests[slow_name].instructions
        verdict = judge_mix(
            {ratio: each.value for ratio, each in throughputs.items()},
            costs[FAST],
            costs[slow_name] * slow_steps,
        )
        yield _mix_finding(slow_name, throughputs, verdict)
        if verdict.issue_limit is not None:
            limits.append(verdict.issue_limit)
    if limits:
        yield make_finding(
            "issue limit",
            Estimate(value=median(limits), spread=(max(limits) - min(limits)) / median(limits)),
            "instruction/cycle",
            "mixes whose throughput follows Eq. (45)",
            highest=_MAX_STARTS,
            why="starts per cycle of a compute unit",
        )


def _mix(bench: Bench, fast: InstructionTest, slow: InstructionTest, ratio: int) -> Estimate:
    """Measure the throughput of the fast class, instruction/cycle of a compute unit."""
    program = bench.session.load(mix_source(fast, slow, ratio))
    groups = bench.full_groups
    out = bench.output(groups * bench.group)
    turn = bench.per_turn(
        program,
        f"mix{ratio}_{slow.identifier}",
        groups,
        bench.group,
        (out,),
        (*fast.arguments(), *slow.arguments()),
    ).checked(f"mix of {fast.name} and {slow.name}")
    issued = groups * bench.group / bench.lanes * CHAINS * ratio / bench.units
    return Estimate(value=issued / (turn.value * bench.clock_hz), spread=turn.spread)


def _mix_finding(slow: str, throughputs: dict[int, Estimate], verdict: MixVerdict) -> Finding:
    rates = ", ".join(f"{ratio}: {each.value:.3g}" for ratio, each in throughputs.items())
    return Finding(
        name=f"mix of {FAST} and {slow}",
        value=max(each.value for each in throughputs.values()),
        spread=max(each.spread for each in throughputs.values()),
        unit="instruction/cycle",
        kernel=f"mix<ratio>: throughput of {FAST} by ratio {rates}",
        is_plausible=verdict.error < 0.25,
        remark=f"{verdict.sharing}; the model is off by {verdict.error:.0%}",
    )


def measure_barriers(bench: Bench) -> Iterator[Finding]:
    """Measure the cost of a barrier by the size of the group, alone and at full occupancy."""
    program = bench.session.load(COMMON_SOURCE)
    largest = bench.session.device.limits.max_group_size
    sizes = [bench.lanes * 2**k for k in range(11) if bench.lanes * 2**k <= largest]
    out = bench.output(bench.units * 4096 + largest)
    for size in sizes:
        turn = bench.per_turn(program, "barriers", 1, size, (out,))
        yield make_finding(
            f"barrier latency {size}",
            turn.scaled(bench.clock_hz / 4),
            "cycle",
            f"barriers: one group of {size}",
            lowest=0.5,
            highest=_MAX_LATENCY,
            why="a barrier of one group",
        )
    groups = max(1, 2048 // bench.lanes) * bench.units
    turn = bench.per_turn(program, "barriers", groups, bench.lanes, (out,))
    yield make_finding(
        "barrier cpi",
        turn.scaled(bench.clock_hz / (4 * groups / bench.units)),
        "cycle",
        f"barriers: {groups} groups of {bench.lanes}",
        lowest=1 / _MAX_STARTS,
        highest=_MAX_LATENCY,
        why="barriers of sub-groups on a full compute unit",
    )
