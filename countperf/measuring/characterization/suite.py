"""Experiments in order of importance, and the device document that is made of what they find."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from countperf.devices.device import Device, EventClock, Session
from countperf.devices.parameters import (
    COMPUTE_CAPABILITIES,
    DeviceParameters,
    InstructionClass,
    InstructionKind,
    LinkParameters,
    declare_device,
    with_capability_limits,
)
from countperf.errors import MeasurementError
from countperf.measuring.characterization.bench import (
    FULL,
    INSTRUCTION_TESTS,
    Bench,
    Characterization,
    Effort,
    Finding,
)
from countperf.measuring.characterization.experiments import (
    STRIDES,
    WORD,
    measure_bandwidth,
    measure_barriers,
    measure_class,
    measure_clock,
    measure_latency,
    measure_launches,
    measure_local,
    measure_transfers,
    moved_together,
)
from countperf.measuring.environment import gather_environment
from countperf.steps import stepped

_PIPELINES = (
    "which classes of instructions share a pipeline is not measured: all of arithmetic are put on"
    " one, 'alu', unless 'subsystem' and 'issue_limit' in the device's document say otherwise"
)
_Experiment = tuple[str, Callable[[Bench], Iterator[Finding]], str]
"""Name; from a bench to findings; why it makes no sense on a CPU."""


def _experiments(effort: Effort) -> list[_Experiment]:
    """List the experiments, most wanted first."""
    classes = [
        (f"class {test.name}", partial(measure_class, test), "")
        for test in INSTRUCTION_TESTS
        if not effort.classes or test.name in effort.classes
    ]
    in_turn = "a CPU executes the work items of a group in turn: nothing waits"
    return [
        ("launch overhead", measure_launches, ""),
        ("clock", measure_clock, ""),
        ("bandwidth", measure_bandwidth, ""),
        *classes,
        ("latency", measure_latency, ""),
        ("local memory", measure_local, "local memory of a CPU is ordinary memory"),
        ("barriers", measure_barriers, in_turn),
        ("transfers", measure_transfers, "host and device share their memory"),
    ]


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
    findings: list[Finding] = []
    left_out = {"pipelines": _PIPELINES}
    began = bench.clock.now()
    for name, measure, not_on_cpus in stepped(_experiments(effort), "measuring"):
        if bench.is_cpu and not_on_cpus:
            left_out[name] = not_on_cpus
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
        parameters=device_parameters(device, findings),
    )


_DRIVER = "the device's driver"
_FIELDS = {
    "clock_hz": "clock",
    "launch_overhead_s": "launch overhead",
    "bandwidth_byte_per_s": "copy bandwidth",
    "mem_ld_cycles": "memory latency",
    "latency_steps": "memory latency",
    "issue_cycles": "fma.f32 cpi",
}
"""Numbers that a finding gives as it is, by field."""


def device_parameters(device: Device, findings: Iterable[Finding]) -> DeviceParameters:
    """Write down what is known of a device: plausible findings, and what its driver says."""
    limits = device.limits
    known = {finding.name: finding for finding in findings if finding.is_plausible}
    values: dict[str, Any] = {
        "num_compute_units": device.identity.compute_units,
        "max_work_items_per_group": limits.max_group_size,
        "max_local_bytes_per_group": limits.local_memory_bytes,
    }
    if limits.sub_group_size:
        values["sub_group_size"] = limits.sub_group_size
    sources = dict.fromkeys(values, _DRIVER)

    for field, name in _FIELDS.items():
        if name in known:
            values[field], sources[field] = known[name].value, _source(known[name])
    rates = {
        stride: known[f"load bandwidth stride {stride}"].value
        for stride in STRIDES
        if f"load bandwidth stride {stride}" in known
    }
    if (line := moved_together(rates)) is not None:
        values["cache_line_bytes"] = line
        sources["cache_line_bytes"] = "measured: load bandwidth by stride"
    lanes, units = max(1, limits.sub_group_size), device.identity.compute_units
    if "fma.f32 cpi" in known and "clock" in known:
        rate = lanes * units * known["clock"].value / known["fma.f32 cpi"].value
        values["peak_flops"], sources["peak_flops"] = 2 * rate, _source(known["fma.f32 cpi"])
    for field, (value, finding) in _older_constants(known, rates, lanes, units).items():
        values[field], sources[field] = value, _source(finding)
    values["classes"] = _classes(known, lanes, units)
    values["links"] = _links(known)
    parameters = declare_device(
        device.identity.slug, name=device.identity.name, sources=sources, **values
    )
    if limits.compute_capability in COMPUTE_CAPABILITIES:
        return with_capability_limits(
            parameters.replaced(compute_capability=limits.compute_capability)
        )
    return parameters


def _older_constants(
    known: dict[str, Finding], rates: dict[int, float], lanes: int, units: int
) -> dict[str, tuple[float, Finding]]:
    """Return the constants of Hong & Kim and of Ma et al. that follow from findings.

    An instruction is issued every cycle of the fastest class; a memory instruction departs when the
    one before has been served: a coalesced one as a whole, an uncoalesced one by transaction (one
    for each work item, where the stride is a line or more). A step of Ma's machine is an operation
    of a core, of which a compute unit has as many as results of the fastest class a cycle.
    """
    constants: dict[str, tuple[float, Finding]] = {}
    fastest = known.get("fma.f32 cpi")
    if fastest is not None:
        constants["cores_per_compute_unit"] = (max(1, round(lanes / fastest.value)), fastest)
    if "clock" not in known or 1 not in rates:
        return constants

    def cycles(stride: int) -> float:
        return known["clock"].value * units * lanes * WORD / rates[stride]

    constants["departure_del_coal_cycles"] = (cycles(1), known["load bandwidth stride 1"])
    line = moved_together(rates)
    apart = [stride for stride in rates if line is not None and stride * WORD >= line]
    if apart:
        finding = known[f"load bandwidth stride {min(apart)}"]
        constants["departure_del_uncoal_cycles"] = (cycles(min(apart)) / lanes, finding)
    return constants


def _source(finding: Finding) -> str:
    return f"measured, spread {finding.spread:.1%}: {finding.kernel}"


def _classes(known: dict[str, Finding], lanes: int, units: int) -> dict[str, InstructionClass]:
    classes: dict[str, InstructionClass] = {}

    def add(name: str, subsystem: str, kind: InstructionKind, cpi: float, latency: str) -> None:
        classes[name] = InstructionClass(
            name=name,
            subsystem=subsystem,
            cpi=cpi,
            latency=known[latency].value,
            kind=kind,
            source=_source(known[latency]),
        )

    for test in INSTRUCTION_TESTS:
        cpi, latency = f"{test.name} cpi", f"{test.name} latency"
        if cpi in known and latency in known:
            add(test.name, "alu", "compute", known[cpi].value, latency)
    if {"barrier latency", "barrier cpi"} <= known.keys():
        add("bar.sync", "barrier", "barrier", known["barrier cpi"].value, "barrier latency")
    if {"local latency", "local cpi"} <= known.keys():
        add("ld.local.s32", "local", "compute", known["local cpi"].value, "local latency")
    if {"memory latency", "load bandwidth stride 1", "clock"} <= known.keys():
        rate = known["load bandwidth stride 1"].value / (units * lanes * WORD)
        cpi = known["clock"].value / rate
        add("ld.global.s32", "memory", "memory", cpi, "memory latency")
    return classes


def _links(known: dict[str, Finding]) -> dict[str, LinkParameters]:
    return {
        direction: LinkParameters(
            startup_s=known[f"{direction} startup"].value,
            bandwidth_byte_per_s=known[f"{direction} bandwidth"].value,
            source=_source(known[f"{direction} bandwidth"]),
        )
        for direction in ("h2d", "d2h")
        if {f"{direction} startup", f"{direction} bandwidth"} <= known.keys()
    }
