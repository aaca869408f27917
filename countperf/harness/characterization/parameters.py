"""From findings to the device document that mechanistic models read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from countperf.hardware.capabilities import COMPUTE_CAPABILITIES, with_capability_limits
from countperf.hardware.parameters import (
    DeviceParameters,
    InstructionClass,
    InstructionKind,
    LinkParameters,
    declare_device,
)
from countperf.harness.characterization.compute import FAST
from countperf.harness.characterization.document import Finding
from countperf.harness.characterization.kernels import INSTRUCTION_TESTS
from countperf.harness.characterization.memory import STRIDES, moved_together
from countperf.harness.devices import Device

_DRIVER = "the device's driver"
_WORD = 4


def device_parameters(device: Device, findings: Iterable[Finding]) -> DeviceParameters:
    """Write down what is known of a device: plausible findings, and what its driver says.

    Parameters
    ----------
    device : Device
        The device.
    findings : iterable of Finding
        What was measured; what is not plausible is left out.

    Returns
    -------
    DeviceParameters
        Each number with its source; absent where there is none.
    """
    limits = device.limits
    known = {each.name: each for each in findings if each.is_plausible}
    values: dict[str, Any] = {
        "num_compute_units": device.identity.compute_units,
        "max_work_items_per_group": limits.max_group_size,
        "max_local_bytes_per_group": limits.local_memory_bytes,
    }
    if limits.sub_group_size:
        values["sub_group_size"] = limits.sub_group_size
    sources = dict.fromkeys(values, _DRIVER)

    def take(field: str, name: str) -> None:
        if name in known:
            values[field], sources[field] = known[name].value, _source(known[name])

    take("clock_hz", "clock")
    take("launch_overhead_s", "launch overhead")
    copies = [n for n in ("copy bandwidth", "copy bandwidth stride 1") if n in known]
    if copies:
        take("bandwidth_byte_per_s", max(copies, key=lambda name: known[name].value))
    take("issue_limit", "issue limit")
    take("mem_ld_cycles", "memory latency")
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


def _source(finding: Finding) -> str:
    return f"measured, spread {finding.spread:.1%}: {finding.kernel}"


def _classes(known: dict[str, Finding], lanes: int, units: int) -> dict[str, InstructionClass]:
    found: dict[str, InstructionClass] = {}

    def add(name: str, subsystem: str, kind: InstructionKind, cpi: float, latency: str) -> None:
        found[name] = InstructionClass(
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
            subsystem = _subsystem(test.name, known)
            add(test.name, subsystem, "compute", known[cpi].value, latency)
    sizes = sorted(
        int(name.rsplit(" ", 1)[1]) for name in known if name.startswith("barrier latency ")
    )
    if sizes and "barrier cpi" in known:
        cpi = known["barrier cpi"].value
        add("bar.sync", "barrier", "barrier", cpi, f"barrier latency {sizes[0]}")
    if "local latency" in known and "local cpi stride 1" in known:
        cpi = known["local cpi stride 1"].value
        add("ld.local.s32", "local", "compute", cpi, "local latency")
    if {"memory latency", "load bandwidth stride 1", "clock"} <= known.keys():
        rate = known["load bandwidth stride 1"].value / (units * lanes * _WORD)
        cpi = known["clock"].value / rate
        add("ld.global.s32", "memory", "memory", cpi, "memory latency")
    return found


def _subsystem(name: str, known: dict[str, Finding]) -> str:
    """Return the pipeline of a class: its own if the mix with the fast class says so."""
    mix = known.get(f"mix of {FAST} and {name}")
    if mix is None or mix.remark.startswith("one subsystem"):
        return "alu"
    return name.replace(".", "_")


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
