"""Ctrl-C waits for the end of a step; pressed twice, it does not."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from countperf.deferred_interrupts import deferred_interrupts, end_if_interrupted


def _press() -> None:
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize(
    ("steps", "taken"),
    [
        ([_press, end_if_interrupted], 1),  # after the step
        ([_press], 1),  # at the end of the block
        ([_press, _press], 1),  # at once
        ([end_if_interrupted, _press, end_if_interrupted], 2),
    ],
)
def test_an_interrupt_waits_for_the_end_of_a_step(
    steps: Sequence[Callable[[], None]], taken: int
) -> None:
    done: list[str] = []

    def work() -> None:
        with deferred_interrupts():
            for step in steps:
                step()
                done.append("step")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert len(done) == taken
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    end_if_interrupted()  # nothing is left


def test_other_threads_change_nothing() -> None:
    seen: list[object] = []

    def work() -> None:
        with deferred_interrupts():
            seen.append(signal.getsignal(signal.SIGINT))

    with ThreadPoolExecutor(1) as pool:
        pool.submit(work)
    assert seen == [signal.default_int_handler]
