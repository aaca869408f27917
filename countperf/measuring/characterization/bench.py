"""Findings of a characterization, and a device on which microbenchmarks run."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np
from pydantic import Field, NonNegativeFloat

from countperf.devices.device import EventClock, Program, Session
from countperf.devices.identity import DeviceIdentity
from countperf.devices.machine import read_clocks
from countperf.devices.parameters import DeviceParameters
from countperf.documents import Document, Part
from countperf.errors import MeasurementError
from countperf.measuring import Environment
from countperf.text import Printed, Result, Table, format_percent, plain


class Finding(Part):
    """A measured number."""

    name: str  # what was measured, such as ``fma.f32 latency``
    value: float  # the number, and the largest minus the smallest repetition relative to it
    spread: NonNegativeFloat
    unit: str  # of the value
    kernel: str  # the microbenchmark it comes from, with what it was run with
    is_plausible: bool = True  # whether it is within what is possible
    remark: str = ""  # what it was compared with, or why it is not plausible


class Characterization(Document, Result):
    """Findings of the microbenchmarks."""

    format: Literal["countperf-characterization"] = "countperf-characterization"
    version: Literal[1] = 1
    device: DeviceIdentity  # the device
    environment: Environment  # of the run
    findings: tuple[Finding, ...] = ()  # every number
    left_out: dict[str, str] = Field(default_factory=dict)  # what was not measured, and why
    parameters: DeviceParameters  # what mechanistic models read

    def find(self, name: str) -> Finding | None:
        """Return the finding of that name, if there is one."""
        return next((finding for finding in self.findings if finding.name == name), None)

    __str__ = Result.__str__

    def lay_out(self) -> Printed:
        """Give numbers with their spread, marks at those not plausible, and what is missing."""
        cells = tuple(
            (
                "" if finding.is_plausible else "!!",
                finding.name,
                f"{finding.value:.4g}",
                finding.unit,
                f"spread {format_percent(finding.spread)}",
                "" if finding.is_plausible else finding.remark,
            )
            for finding in self.findings
        )
        count = f": {len(cells)} numbers" if cells else ""
        return Printed(
            head=[f"{self.device.slug}, {self.device.name}{count}"],
            rows=[plain(finding) for finding in self.findings],
            shown=Table(header=(), rows=cells),
            notes=[f"left out: {name}: {reason}" for name, reason in self.left_out.items()],
            facts=self.to_object(),
        )


MAX_TURNS = 2**26
_FIRST_TURNS = 8
_ITEMS_PER_UNIT = 4096  # two waves on GPUs that hold 2048 work items per compute unit
_GROUP = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Effort of a characterization."""

    shortest_s: float = 1e-3  # the shorter run of each measurement takes this long at least, s
    repetitions: int = 3  # so often both runs are compared
    tries: int = 3  # of which the fastest counts
    array_bytes: int = 2**30  # largest array, byte
    classes: tuple[str, ...] = ()  # classes of instructions that are measured


QUICK = Effort(shortest_s=5e-4, repetitions=3, tries=2, array_bytes=2**26)
FULL = Effort()


@dataclass(frozen=True, slots=True)
class MeasuredValue:
    """A number with its spread."""

    value: float  # the number
    spread: float = 0.0  # median distance of the repetitions from it, relative to it

    def scaled(self, factor: float) -> MeasuredValue:
        """Return the number in another unit."""
        return MeasuredValue(self.value * factor, self.spread)


def estimate(repetitions: Sequence[float], value: float | None = None) -> MeasuredValue:
    """Summarize repetitions."""
    middle = median(repetitions) if value is None else value
    distance = median(abs(repetition - middle) for repetition in repetitions)
    return MeasuredValue(middle, distance / abs(middle) if middle else 0.0)


def time_per_turn(run: Callable[[int], float], effort: Effort) -> MeasuredValue:
    """Measure the time of a turn of a loop, without what it takes to launch it."""
    turns = _FIRST_TURNS
    elapsed = run(turns)
    while elapsed < effort.shortest_s and turns < MAX_TURNS:
        turns *= 4 if elapsed < effort.shortest_s / 8 else 2
        elapsed = min(run(turns), run(turns))
    shorts: list[float] = []
    longs: list[float] = []
    for _ in range(effort.repetitions):
        shorts.append(min(run(turns) for _ in range(effort.tries)))
        longs.append(min(run(3 * turns) for _ in range(effort.tries)))
    differences = [(long - short) / (2 * turns) for short, long in zip(shorts, longs, strict=True)]
    # other load on the machine only ever adds time
    return estimate(differences, (min(longs) - min(shorts)) / (2 * turns))


@dataclass(frozen=True, slots=True)
class Bounds:
    """Unit of a quantity, and between which values it is possible."""

    unit: str
    lowest: float = 0.0
    highest: float = float("inf")
    why: str = ""  # what bounds it

    def finding(self, name: str, estimate: MeasuredValue, kernel: str) -> Finding:
        """Make a finding, plausible if it is possible and its repetitions agree."""
        value = estimate.value
        between = f"between {self.lowest:.3g} and {self.highest:.3g} {self.unit}: {self.why}"
        remark = between if self.why else ""
        plausible = self.lowest < value <= self.highest
        if not plausible:
            remark = f"not {between}" if self.why else f"not above {self.lowest:.3g} {self.unit}"
        elif estimate.spread > 0.5:
            plausible, remark = False, f"repetitions differ by {estimate.spread:.0%}"
        return Finding(
            name=name,
            value=value,
            spread=estimate.spread,
            unit=self.unit,
            kernel=kernel,
            is_plausible=plausible,
            remark=remark,
        )


class Bench:
    """A session with a clock, and what the device is."""

    def __init__(self, session: Session, clock: EventClock, effort: Effort) -> None:
        self.session = session
        self.load: Callable[[str], Program] = cache(session.load)
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

    def run_s(
        self, program: Program, name: str, groups: int, group: int, arguments: Sequence[Any]
    ) -> float:
        """Run a kernel once and return its time, s."""
        return self.clock.time_run(lambda: program.launch(name, groups, group, arguments)).time_s

    def step_cycles(
        self,
        source: str,
        name: str,
        groups: int,
        group: int,
        steps: int,
        after: Sequence[Any] = (),
    ) -> tuple[MeasuredValue, str]:
        """Measure the cycles of a step of a kernel's loop, and say what was run.

        Those of the step itself where one group runs alone; else those of a compute unit for the
        step of a sub-group.
        """
        program = self.load(source)
        out = self.session.allocate(8 * groups * group)

        def run(turns: int) -> float:
            return self.run_s(program, name, groups, group, (out, np.int32(turns), *after))

        turn = time_per_turn(run, self.effort)
        issued = steps if groups == 1 else steps * groups * group / self.lanes / self.units
        said = "one group" if groups == 1 else f"{groups} groups"
        return turn.scaled(self.clock_hz / issued), f"{name}: {said} of {group}"


def fit_transfer(sizes: Sequence[int], times: Sequence[float]) -> tuple[float, float]:
    """Fit the time of a transfer as start-up (s) plus size over bandwidth (byte/s)."""
    measured = np.asarray(times, np.float64)
    design = np.column_stack([np.ones(len(measured)), np.asarray(sizes, np.float64)])
    scale = 1 / np.linalg.norm(design / measured[:, None], axis=0)
    weighted = design * scale / measured[:, None]
    solution, *_ = np.linalg.lstsq(weighted, np.ones(len(measured)), rcond=None)
    startup, slope = solution * scale
    return max(0.0, float(startup)), 1 / max(float(slope), 1e-15)


# --- The microbenchmarks' kernels, in the dialect of `countperf.devices.device`
#
# Compilers shall find nothing to leave out: operands come as arguments and differ between work
# items, every result depends on the one before, and is stored at the end.

UNROLLED = 32
"""Steps of a chain in one turn of its loop."""

CHAINS = 4
"""Independent chains of a work item where throughput is measured."""

_TYPES = {"f32": ("float", np.float32), "f64": ("double", np.float64), "s32": ("int", np.int32)}


@dataclass(frozen=True, slots=True)
class InstructionTest:
    """A class of instructions, and a step of a chain of them."""

    name: str  # of the class, as in `DeviceParameters.classes`
    type: str  # type of the operands: ``f32``, ``f64``, ``s32``
    step: str  # statement that updates ``x`` by ``a`` and ``b``
    instructions: int = 1  # how many instructions of the class a step has
    values: tuple[float, float] = (1.0000001, 0.5)  # of ``a`` and ``b``

    @property
    def c_type(self) -> str:
        """Name of the type in C."""
        return _TYPES[self.type][0]

    def arguments(self) -> tuple[np.generic, np.generic]:
        """Return the operands."""
        dtype = _TYPES[self.type][1]
        return dtype(self.values[0]), dtype(self.values[1])

    @property
    def identifier(self) -> str:
        """Name of the class as part of a name in C."""
        return self.name.replace(".", "_")


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
    *(InstructionTest(f"{name}.f32", "f32", step) for name, step in _FLOATING.items()),
    # an addition and an exclusive or: sums alone would be folded
    InstructionTest("add.s32", "s32", "x = (x ^ a) + b", 2, (21845, 13)),
    InstructionTest("mul.s32", "s32", "x = x * x", 1, (5, 2)),
    InstructionTest("div.s32", "s32", "x = a / (x | 1)", 1, (2000000011, 3)),
    *(InstructionTest(f"{name}.f64", "f64", step) for name, step in _FLOATING.items()),
)
"""The classes that are measured, most wanted first."""


def chain_source(test: InstructionTest, chains: int) -> str:
    """Write a kernel ``chain<chains>_<class>(out, n, a, b)`` of n turns.

    Each turn has `UNROLLED` steps, spread over independent chains.
    """
    names = [f"x{number}" for number in range(chains)]
    declared = "".join(
        f"  {test.c_type} {name} = a + b * ({test.c_type}) (LOCAL_ID + {number});\n"
        for number, name in enumerate(names)
    )
    steps = [re.sub(r"\bx\b", names[number % chains], test.step) for number in range(UNROLLED)]
    body = "".join(f"    {step};\n" for step in steps)
    return (
        f"KERNEL chain{chains}_{test.identifier}"
        f"(GLOBAL {test.c_type} *RESTRICT out, int n, {test.c_type} a, {test.c_type} b)\n{{\n"
        f"{declared}  for (int k = 0; k < n; ++k) {{\n{body}  }}\n"
        f"  out[GLOBAL_ID] = {' + '.join(names)};\n}}\n"
    )


COMMON_SOURCE = Path(__file__).with_name("kernels.cl").read_text(encoding="utf-8")
"""Kernels of the clock, barriers, local memory and global memory."""
