"""All experiments in order of importance; each result is stored when it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from countperf.documents.locks import locked
from countperf.errors import IncompatibleMeasurementsError, MeasurementError
from countperf.harness.backend import Session
from countperf.harness.characterization import compute, memory
from countperf.harness.characterization.bench import FULL, Bench, Effort
from countperf.harness.characterization.document import Characterization, Finding
from countperf.harness.characterization.parameters import device_parameters
from countperf.harness.clock import Clock, EventClock
from countperf.harness.environment import gather_environment
from countperf.harness.progress import Progress, ProgressEvent, silent

_NO_BARRIERS = "a CPU executes the work items of a group in turn: nothing waits"
_NO_LOCAL_MEMORY = "local memory of a CPU is ordinary memory"
_NO_PIPELINES = "sub-groups are the elements of a vector: they are not issued one by one"
_NO_LINK = "host and device share their memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """Something that is measured."""

    name: str  # what
    # from a bench and what was found so far to findings
    measure: Callable[[Bench, dict[str, Finding]], Iterator[Finding]]
    not_on_cpus: str = ""  # why it makes no sense on a CPU


def experiments(bench: Bench) -> tuple[Experiment, ...]:
    """List the experiments on a device, most wanted first."""

    def simple(
        name: str, measure: Callable[[Bench], Iterator[Finding]], not_on_cpus: str = ""
    ) -> Experiment:
        return Experiment(name=name, measure=lambda b, _: measure(b), not_on_cpus=not_on_cpus)

    def costs(found: dict[str, Finding]) -> dict[str, float]:
        ending = " cpi"
        return {
            name.removesuffix(ending): each.value
            for name, each in found.items()
            if name.endswith(ending) and each.is_plausible
        }

    classes = [
        Experiment(
            name=f"class {test.name}",
            measure=lambda b, found, test=test: compute.measure_class(b, test, found),
        )
        for test in compute.wanted_tests(bench)
    ]
    return (
        simple("launch overhead", memory.measure_launches),
        simple("clock", compute.measure_clock),
        simple("bandwidth", memory.measure_bandwidth),
        *classes,
        simple("latency", memory.measure_latency),
        simple("local memory", memory.measure_local, _NO_LOCAL_MEMORY),
        simple("barriers", compute.measure_barriers, _NO_BARRIERS),
        Experiment(
            name="mixes",
            measure=lambda b, found: compute.measure_mixes(b, costs(found)),
            not_on_cpus=_NO_PIPELINES,
        ),
        simple("transfers", memory.measure_transfers, _NO_LINK),
        simple("working sets", memory.measure_working_sets),
    )


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
    bench = Bench(session, clock or EventClock(), effort)
    with nullcontext() if store is None else locked(store):
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
    plan = [each for each in experiments(bench) if not only or each.name in only]
    for done, experiment in enumerate(plan):
        if experiment.name in state.finished:
            continue
        left_out = {k: v for k, v in state.left_out.items() if k != experiment.name}
        reason = experiment.not_on_cpus if bench.is_cpu else ""
        if not reason and max_seconds is not None and clock.now() - began > max_seconds:
            reason = "no time was left"
        if reason:
            left_out[experiment.name] = reason
            state = state.model_copy(update={"left_out": left_out})
            continue
        progress(
            ProgressEvent(kind="calibrating", case=experiment.name, done=done, total=len(plan))
        )
        finished = state.finished
        try:
            for finding in experiment.measure(bench, found):
                found[finding.name] = finding
        except MeasurementError as error:
            left_out[experiment.name] = str(error)
        else:
            finished = (*finished, experiment.name)
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
        raise IncompatibleMeasurementsError(message)
    environment = gather_environment(
        device.limits.sizes(),
        device.limits.max_clock_mhz,
        device_state=session.state(),
        versions=session.versions(),
    )
    return Characterization(
        device=device.identity,
        environment=environment,
        parameters=device_parameters(device, ()),
    )
