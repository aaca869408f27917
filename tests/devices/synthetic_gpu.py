# ruff: noqa: ARG002
"""A GPU that runs nothing: it takes as long as its parameters say, so that they can be found."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countperf.devices.device import Device, EventClock, Launch, RunTime, Session
from countperf.devices.identity import DeviceType
from countperf.errors import MeasurementError
from countperf.measuring.characterization import CHAINS, INSTRUCTION_TESTS, UNROLLED
from tests.devices.fakes import IDENTITY, LIMITS

LANES = 32


@dataclass(frozen=True, kw_only=True)
class Truth:
    """Constants of the device; times in s, costs in cycles."""

    units: int = 4
    clock_hz: float = 1e9
    overhead_s: float = 5e-6
    host_overhead_s: float = 2e-6
    costs: Mapping[str, tuple[float, float]] = field(
        default_factory=lambda: {
            "fma.f32": (0.25, 4.0),
            "add.s32": (0.5, 5.0),
            "rsqrt.f32": (2.0, 20.0),
            "mul.f64": (16.0, 40.0),
            "fma.f64": (16.0, 40.0),
        }
    )
    other: tuple[float, float] = (3.0, 30.0)
    memory_latency: float = 600.0
    bandwidth: float = 1e11
    line_bytes: int = 32
    local: tuple[float, float] = (1.0, 25.0)
    barrier: tuple[float, float] = (2.0, 18.0)
    h2d: tuple[float, float] = (1e-5, 1e10)
    d2h: tuple[float, float] = (2e-5, 5e9)

    def cost(self, name: str) -> tuple[float, float]:
        return self.costs.get(name, self.other)


@dataclass
class Memory:
    size: int
    cycles: int = 0


class SyntheticClock(EventClock):
    """Event times of the device; the host's clock is the device's simulated time."""

    def __init__(self, session: SyntheticSession) -> None:
        self._session = session

    def now(self) -> float:
        return self._session.now

    def time_run(self, launch: Any) -> RunTime:
        (elapsed_s,) = launch()
        return RunTime(time_s=elapsed_s, host_s=elapsed_s + self._session.truth.host_overhead_s)


class SyntheticSession(Session):
    """Stands for an open device."""

    def __init__(self, truth: Truth, device_type: DeviceType = "gpu") -> None:
        self.truth = truth
        self.now = 0.0
        self.broken: set[str] = set()
        changes = {"compute_units": truth.units, "device_type": device_type}
        identity = IDENTITY.model_copy(update=changes)
        limits = replace(
            LIMITS,
            max_group_size=1024,
            sub_group_size=LANES,
            cache_line_bytes=64,
            max_clock_mhz=round(truth.clock_hz / 1e6),
        )
        self.device = Device(label="fake:0", identity=identity, limits=limits, handle=None)

    def load(self, source: str, *, fresh: bool = False) -> Launch:
        names, truth = set(re.findall(r"KERNEL (\w+)\(", source)), self.truth

        def launch(name: str, groups: int, size: int, arguments: Sequence[Any]) -> list[float]:
            assert name in names
            if name in self.broken:
                raise MeasurementError(f"{name} does not run")
            warps = -(-groups // min(truth.units, groups)) * -(-size // LANES)
            cycles = _cycles(truth, name, warps, groups, size, arguments)
            elapsed_s = round(1e9 * (truth.overhead_s + cycles / truth.clock_hz)) * 1e-9
            self.now += elapsed_s + truth.host_overhead_s
            return [elapsed_s]

        return launch

    def build_kernel(self, t_unit: Any, unused_local_bytes: int | None = None) -> Any:
        raise NotImplementedError

    def allocate(self, size: int) -> Memory:
        return Memory(size)

    def upload(self, array: NDArray[Any]) -> Memory:
        return Memory(array.nbytes)

    def download(self, memory: Memory, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
        return np.full(count, memory.cycles, dtype)

    def copy_in(self, memory: Memory, array: NDArray[Any]) -> None:
        startup, bandwidth = self.truth.h2d
        self.now += startup + array.nbytes / bandwidth

    def copy_out(self, array: NDArray[Any], memory: Memory) -> None:
        startup, bandwidth = self.truth.d2h
        self.now += startup + array.nbytes / bandwidth


_TESTS = {test.kernel(chains): test for test in INSTRUCTION_TESTS for chains in (1, CHAINS)}


def _cycles(
    truth: Truth, name: str, warps: int, groups: int, group: int, arguments: Sequence[Any]
) -> float:
    """Return the cycles that a launch takes, launching itself apart."""
    numbers = [int(each) for each in arguments if isinstance(each, np.integer)]
    if test := _TESTS.get(name):
        chains = CHAINS if name == test.kernel(CHAINS) else 1
        cpi, latency = (cost * test.instructions for cost in truth.cost(test.name))
        return numbers[0] * UNROLLED * max(latency / chains, warps * cpi)
    match name:
        case "nothing":
            return 0.0
        case "cycles":
            arguments[0].cycles = numbers[0] * 4
            return numbers[0] * 4.0
        case "barriers":
            return 4 * numbers[0] * max(truth.barrier[1], warps * truth.barrier[0])
        case "local_loads":
            return 8 * numbers[0] * max(truth.local[1], warps * truth.local[0])
        case "chase":
            return 8 * numbers[0] * truth.memory_latency
        case "copy4":
            return 32 * groups * group / truth.bandwidth * truth.clock_hz
        case "load":
            items, turns, stride = numbers[:3]
            waste = min(stride, truth.line_bytes // 4)
            return 4 * items * turns * waste / truth.bandwidth * truth.clock_hz
        case _:
            raise AssertionError(name)
