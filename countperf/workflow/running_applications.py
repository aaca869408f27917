"""Applications whose steps run together on a device at hand, so that their overlap is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from threading import Barrier, BrokenBarrierError, Event, Thread
from time import perf_counter

import numpy as np

from countperf.harness.devices import discover, find_device, select_device
from countperf.harness.runner import KernelRunner
from countperf.mechanistic.applications import Schedule, Step, TimedStep, step_name
from countperf.tuning.apart import LONGEST_S, called_apart
from countperf.workflow.applications import Application, check_transfer, steps_on_one_device
from countperf.workflow.timing import kernel_at_points

_REPETITIONS = 5
_LOOK_S = 0.05
"""Time after which a step that waits for another looks again whether a stream has failed, s."""


def run_application(
    application: Application, device: str | None = None, /, *, longest_s: float = LONGEST_S
) -> Schedule:
    """Run the steps of an application together on a device, and measure when each of them runs.

    Each stream has a queue and a thread of its own: its steps run in their order, and those of
    other streams at the same time, as far as the device lets them. Of five repetitions the shortest
    counts; a first one warms up. All that happens in a process of its own. Times are the host's,
    from before a step is enqueued until it has ended.
    """
    steps = steps_on_one_device(application)
    found = find_device(device)
    names = ", ".join(step_name(step, place) for place, step in enumerate(steps))
    return called_apart(longest_s, f"the application of {names}", _run, steps, found.label)


def _run(steps: Sequence[Step], label: str) -> Schedule:
    found = select_device(label, discover().devices)
    streams: dict[str, list[int]] = {}
    for place, step in enumerate(steps):
        streams.setdefault(step.stream, []).append(place)
    with ExitStack() as stack:
        runs: dict[int, Callable[[], object]] = {}
        for places in streams.values():
            runner = KernelRunner.open(found)
            for place in places:
                runs[place] = _prepared(stack, runner, steps[place])
        repetitions = [_repetition(steps, streams, runs) for _ in range(1 + _REPETITIONS)][1:]
    best = min(repetitions, key=lambda times: max(end for _, end in times.values()))
    return Schedule(
        source=f"measured together on {found.identity.slug}",
        steps=tuple(
            TimedStep(name=step_name(step, place), step=step, start_s=start, end_s=end)
            for place, step in enumerate(steps)
            for start, end in [best[place]]
        ),
    )


def _prepared(stack: ExitStack, runner: KernelRunner, step: Step) -> Callable[[], object]:
    """Return what runs a step and waits for its end, its memory allocated."""
    session = runner.session
    if step.kind == "kernel":
        (case,) = kernel_at_points(step.kernel, dict(step.sizes)).cases()
        return stack.enter_context(runner.loaded(case))
    check_transfer(step)
    host = np.zeros(int(step.n_bytes), np.uint8)
    memory = session.allocate(host.size)
    session.finish()
    if step.kind == "h2d":
        return lambda: session.copy_in(memory, host)
    return lambda: session.copy_out(host, memory)


def _repetition(
    steps: Sequence[Step],
    streams: Mapping[str, Sequence[int]],
    runs: Mapping[int, Callable[[], object]],
) -> dict[int, tuple[float, float]]:
    """Run all streams once; return when each step starts and ends, s after the first start."""
    ended = {step_name(step, place): Event() for place, step in enumerate(steps)}
    together = Barrier(len(streams))
    times: dict[int, tuple[float, float]] = {}
    failures: list[Exception] = []

    def run(places: Sequence[int]) -> None:
        try:
            together.wait()
            for place in places:
                for name in steps[place].after:
                    while not ended[name].wait(_LOOK_S):
                        if failures:
                            return
                start = perf_counter()
                runs[place]()
                times[place] = start, perf_counter()
                ended[step_name(steps[place], place)].set()
        except BrokenBarrierError:
            return
        except Exception as error:  # noqa: BLE001 - raised below, in the thread that asked
            failures.append(error)
            together.abort()

    threads = [Thread(target=run, args=(places,), daemon=True) for places in streams.values()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    first = min(start for start, _ in times.values())
    return {place: (start - first, end - first) for place, (start, end) in times.items()}
