"""Event timer against host clock."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from countperf.harness.device import EventClock, check_clocks


@pytest.mark.parametrize(
    ("event_s", "host_s", "said"),
    [
        pytest.param(1e-5, 4.6e-5, "", id="PoCL: 36 us to launch and wake up"),
        pytest.param(1e-3, 1.005e-3, "", id="Intel: 5 us"),
        pytest.param(1e-5, 9e-4, "", id="a slow launch, still below 1 ms"),
        pytest.param(1.0, 0.995, "", id="clocks whose rates differ a little"),
        pytest.param(1.0, 1.2, "", id="a busy machine wakes us late"),
        pytest.param(1.1, 1.0, "exceeds the host's", id="an event longer than the host saw"),
        pytest.param(1e-3, 1.0, "far below", id="ticks taken for nanoseconds"),
        pytest.param(1e-6, 2e-3, "far below", id="more than any launch takes"),
    ],
)
def test_clocks_agree_or_not(event_s: float, host_s: float, said: str) -> None:
    # one odd run does not decide
    overhead_s, remark = check_clocks([*[(event_s, host_s)] * 4, (1.0, 5.0)])

    assert overhead_s == pytest.approx(host_s - event_s)
    assert said in remark
    assert bool(said) == bool(remark)


class _Event:
    waited = False

    def __init__(self, start: int, end: int) -> None:
        self.profile = SimpleNamespace(start=start, end=end)

    def wait(self) -> None:
        self.waited = True


def test_several_launches_last_from_the_first_start_to_the_last_end() -> None:
    events = [_Event(1000, 2000), _Event(2500, 4000)]

    timing = EventClock().time_run(lambda: events)

    assert timing.time_s == pytest.approx(3e-6)
    assert events[-1].waited
