"""A device without hardware: cases, identities and a runner that follow a script."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any

from countperf.devices.device import Device, DeviceLimits, EventClock, RunTime
from countperf.devices.identity import DeviceIdentity
from countperf.measuring import KernelCase, Protocol
from countperf.measuring.runner import CaseRunner, Run

IDENTITY = DeviceIdentity(
    slug="fake-abacus",
    platform="Fake",
    vendor="Nobody",
    name="Abacus",
    driver_version="1",
    device_type="other",
    compute_units=1,
)
LIMITS = DeviceLimits(
    max_group_size=256,
    max_group_shape=(256, 256, 64),
    local_memory_bytes=2**15,
    global_memory_bytes=2**30,
    max_allocation_bytes=2**28,
)
PROTOCOL = Protocol(
    name="test",
    rounds=2,
    runs=4,
    drops=1,
    spread_limit=0.5,
    noise_limit=0.1,
    extra_rounds=1,
    separation_s=100.0,
)


def make_device(
    label: str, name: str, *, platform: str = "Fake", processor: str = "", slug: str = ""
) -> Device:
    """Make a device for looking up; it has no handle."""
    slug = slug or label.replace(":", "-")
    changes = {"slug": slug, "platform": platform, "name": name, "processor": processor}
    identity = IDENTITY.model_copy(update=changes)
    return Device(label=label, identity=identity, limits=LIMITS, handle=None)


def make_case(
    kernel: str = "fake",
    n: int = 16,
    *,
    memory: int = 64,
    build: Callable[[], Any] = lambda: "unit",
    **changes: Any,
) -> KernelCase:
    """Make a case that only a `FakeRunner` can run."""
    fields: dict[str, Any] = {
        **{"name": f"{kernel}/n={n}", "kernel": kernel, "family": "fake", "variant": "plain"},
        **{"group_shape": (16, 1), "element_type": "f32", "build": build, "tolerance": 1e-6},
        **{"make_arguments": lambda *_: {}, "reference": lambda *_: {}},
        **{"parameters": {"n": n}, "check_parameters": {"n": 16}, "global_memory_bytes": memory},
    }
    return KernelCase(**{**fields, **changes})


class FakeClock(EventClock):
    """Scripted run times; nothing is launched and nobody waits."""

    def __init__(self, durations: Iterable[float] = ()) -> None:
        self._durations = iter(durations)
        self._now = 0.0

    def now(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds

    def time_run(self, launch: object) -> RunTime:
        del launch
        duration = next(self._durations)
        self.sleep(duration + 1e-5)
        return RunTime(time_s=duration, host_s=duration + 1e-5)


class FakeRunner(CaseRunner):
    """Runs cases by a script."""

    def __init__(
        self,
        duration: Callable[[str, int, int], float] = lambda *_: 1e-3,
        *,
        broken: Mapping[str, Exception] | None = None,
    ) -> None:
        self.identity = IDENTITY
        self.limits = LIMITS
        self.clock = FakeClock()
        self.rounds: list[str] = []
        self.checked: list[str] = []
        self.setup_s = 0.0
        self.others_s: Callable[[], float | None] = lambda: None
        self.memory_s: Callable[[], tuple[float, ...]] = tuple
        self.overhead_s = 1e-5  # by how much the host's clock exceeds the event timer
        self._duration = duration
        self._broken = dict(broken or {})

    def time_of_others_s(self) -> float | None:
        return self.others_s()

    def probe_memory(self, times: int = 1) -> tuple[float, ...]:
        del times
        return self.memory_s()

    def check(self, case: KernelCase) -> None:
        self.checked.append(case.kernel)
        if case.kernel in self._broken:
            raise self._broken[case.kernel]

    @contextmanager
    def load_case(self, case: KernelCase) -> Generator[Run]:
        turn = self.rounds.count(case.name)
        self.rounds.append(case.name)
        self.clock.sleep(self.setup_s)
        runs = iter(range(10**6))

        def run() -> RunTime:
            duration = self._duration(case.name, turn, next(runs))
            self.clock.sleep(duration)
            return RunTime(time_s=duration, host_s=duration + self.overhead_s)

        yield run
