"""All experiments in order of importance; each result is stored when it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from countperf.documents.locks import locked
from countperf.errors import MeasurementError
from countperf.harness.backend import Session
from countperf.harness.characterization.bench import FULL, Bench, Effort
from countperf.harness.characterization.document import Characterization, Finding
from countperf.harness.characterization.experiments import (
    Found,
    measure_bandwidth,
    measure_barriers,
    measure_class,
    measure_clock,
    measure_latency,
    measure_launches,
    measure_local,
    measure_mixes,
    measure_transfers,
    wanted_tests,
)
from countperf.harness.characterization.parameters import device_parameters
from countperf.harness.clock import Clock, EventClock
from countperf.harness.environment import gather_environment
from countperf.harness.progress import Progress, ProgressEvent, silent

_Experiment = tuple[str, Callable[[Bench, Found], Iterator[Finding]], str]
"""Name; from a bench, and what was found so far, to findings; why it makes no sense on a CPU."""


def _experiments(bench: Bench) -> list[_Experiment]:
    """List the experiments on a device, most wanted first."""
    classes = [(f"class {t.name}", partial(measure_class, t), "") for t in wanted_tests(bench)]
    in_turn = "a CPU executes the work items of a group in turn: nothing waits"
    in_vectors = "sub-groups are the elements of a vector: they are not issued one by one"
    return [
        ("launch overhead", measure_launches, ""),
        ("clock", measure_clock, ""),
        ("bandwidth", measure_bandwidth, ""),
        *classes,
        ("latency", measure_latency, ""),
        ("local memory", measure_local, "local memory of a CPU is ordinary memory"),
        ("barriers", measure_barriers, in_turn),
        ("mixes", measure_mixes, in_vectors),
        ("transfers", measure_transfers, "host and device share their memory"),
    ]


def characterize(
    session: Session,
    *,
    clock: Clock | None = None,
    effort: Effort = FULL,
    store: Path | str | None = None,
    max_seconds: float | None = None,
    only: Sequence[str] = (),
    progress: Progress = silent,
) -> Characterization:
    """Run the microbenchmarks on a device."""
    with nullcontext() if store is None else locked(store):
        bench = Bench(session, clock or EventClock(), effort)
        return _measured(bench, store, max_seconds, only, progress)


def _measured(
    bench: Bench,
    store: Path | str | None,
    max_seconds: float | None,
    only: Sequence[str],
    progress: Progress,
) -> Characterization:
    session, clock = bench.session, bench.clock
    state = _resumed(session, store)
    found = {each.name: each for each in state.findings}
    if "clock" in found:
        bench.known_clock_hz = found["clock"].value
    began = clock.now()
    plan = [each for each in _experiments(bench) if not only or each[0] in only]
    for done, (name, measure, not_on_cpus) in enumerate(plan):
        if name in state.finished:
            continue
        left_out = {k: v for k, v in state.left_out.items() if k != name}
        reason = not_on_cpus if bench.is_cpu else ""
        if not reason and max_seconds is not None and clock.now() - began > max_seconds:
            reason = "no time was left"
        if reason:
            left_out[name] = reason
            state = state.model_copy(update={"left_out": left_out})
            continue
        progress(ProgressEvent(kind="calibrating", case=name, done=done, total=len(plan)))
        finished = state.finished
        try:
            for finding in measure(bench, found):
                found[finding.name] = finding
        except MeasurementError as error:
            left_out[name] = str(error)
        else:
            finished = (*finished, name)
        findings = tuple(found.values())
        state = state.model_copy(
            update={
                "findings": findings,
                "left_out": left_out,
                "finished": finished,
                "parameters": device_parameters(session.device, findings),
            }
        )
        if store is not None:
            state.write_file(store)
    if store is not None:
        state.write_file(store)
    return state


def _resumed(session: Session, store: Path | str | None) -> Characterization:
    device = session.device
    if store is not None and Path(store).exists():
        stored = Characterization.read_file(store)
        if stored.device.matches(device.identity):
            return stored
        message = (
            f"{store} is of {stored.device.name}, not {device.identity.name}; use another file"
        )
        raise MeasurementError(message)
    return Characterization(
        device=device.identity,
        environment=gather_environment(device.limits, session.versions()),
        parameters=device_parameters(device, ()),
    )
