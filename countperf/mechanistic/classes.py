"""Instruction classes of kernels, and their costs on devices that state those of a few classes.

A kernel's classes are ``add.f32``, ``fma.f64``, ``special.f32.rsqrt`` (kind, type, function),
``load.global.32``, ``store.local.64`` (direction, memory, bits of an element) and ``barrier``;
``load.global.32.x8`` where a sub-group moves 8 times the bytes that it asks for, and
``load.local.32.x2`` where it takes two passes over the banks.

Devices describe what someone measured, such as ``mul.f32`` or ``ld.global.s32``. A class that the
device does not state takes the cost of the nearest one that it does, by these rules (ours; each
is what the throughput tables of the CUDA C++ Programming Guide have in common):

1. ``add``, ``mul``, ``fma`` of a real type, and its minima, comparisons, selections and
   conversions cost the same.
2. Additions, shifts, logical operations and the like on integers cost what ``add.s32`` does, else
   what ``mul.s32`` does; signed and unsigned ones cost the same; 64-bit ones take two.
3. Special functions cost what the device states for any of them (``cos.approx.f32``), in their
   type; a real power takes a logarithm, a multiplication and an exponential.
4. Stores cost what loads do. An element of 64 bits takes twice the cost of one of 32.

Where a profiler measured that DRAM moved more bytes than a kernel accesses in global memory, costs
of global memory are those at this ratio (Lemeire, Cornelis, Konstantinidis, section 6.3). Below 1,
they stay those of DRAM: nothing measures what the second-level cache costs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from countperf.devices.parameters import DeviceParameters, InstructionClass
from countperf.errors import DeviceParameterError
from countperf.text import some_of

BARRIER = "barrier"
_GLOBAL = ("ld.global.", "st.global.", "load.global.", "store.global.")

_LIKE_ADDITION = (
    *("add", "mul", "fma", "minmax", "compare"),
    *("select", "convert", "shift", "bitwise", "branch"),
)
_FUNCTIONS = ("rsqrt", "sqrt", "rcp", "sin", "cos", "exp", "log", "ex2", "lg2", "tanh")


def with_known_classes(
    device: DeviceParameters, names: Iterable[str]
) -> tuple[DeviceParameters, dict[str, DeviceParameterError]]:
    """Add the classes for which there is a cost, and return the errors of the others."""
    classes = dict(device.classes)
    unknown: dict[str, DeviceParameterError] = {}
    for name in sorted(set(names)):
        try:
            classes[name] = kernel_class(device, name)
        except DeviceParameterError as error:
            unknown[name] = error
    return device.with_values(classes=classes), unknown


def kernel_class(device: DeviceParameters, name: str) -> InstructionClass:
    """Return the cost of a class of a kernel on a device, or say that nothing stands in for it."""
    base, excess = name, 1.0
    if name.count(".") > 2 and name.split(".")[3].startswith("x"):  # load.global.32.x2.5
        base, excess = ".".join(name.split(".")[:3]), float(name.split(".x", 1)[1])
    tried: list[str] = []
    for other, times in _stand_ins(base):
        tried.append(other)
        if (stated := device.classes.get(other)) is not None:
            latency = stated.latency
            adapted = replace(
                stated,
                name=name,
                cpi=stated.cpi * times,
                latency=None if latency is None else latency + (times - 1) * stated.cpi,
                source=stated.source if name == other else f"{stated.source} (as {other})",
            )
            return memory_cost(excess, adapted)
    message = (
        f"device {device.slug!r}: no instruction class {name!r}, and none that stands in for it"
        f" ({', '.join(dict.fromkeys(tried))}; known: {some_of(tuple(device.classes))}); add one to"
        " the device's document"
    )
    raise DeviceParameterError(message, field=f"classes.{name}")


def memory_cost(dram_ratio: float, dram: InstructionClass) -> InstructionClass:
    """Return the cost of a memory instruction for which DRAM moves more than it asks for."""
    more = max(0.0, dram_ratio - 1)
    latency = None if dram.latency is None else dram.latency + more * dram.cpi
    return replace(dram, cpi=(1 + more) * dram.cpi, latency=latency)


def _stand_ins(name: str) -> Iterator[tuple[str, float]]:
    """Yield classes that may stand in for one, the nearest first, and how many of them it takes."""
    yield name, 1
    if name == BARRIER:
        yield "bar.sync", 1
        return
    kind, middle, *rest = name.split(".")
    if kind in ("load", "store"):
        bits = int(rest[0])
        for size, times in ((bits, 1.0), (32, max(1.0, bits / 32))):
            for direction, short in ((kind, "ld" if kind == "load" else "st"), ("load", "ld")):
                yield f"{direction}.{middle}.{size}", times
                yield from ((f"{short}.{middle}.{letter}{size}", times) for letter in "sbf")
    elif not middle.startswith("f"):
        yield from _integers(kind, int(middle[1:]))
    elif kind in _LIKE_ADDITION:
        yield from ((f"{other}.{middle}", 1) for other in ("fma", "add", "mul"))
    elif kind in ("special", "pow"):
        times = 2 if kind == "pow" else 1
        yield f"special.{middle}", times
        for other in dict.fromkeys((rest[0] if rest else "exp", *_FUNCTIONS)):
            yield f"{other}.approx.{middle}", times
            yield f"{other}.{middle}", times


def _integers(kind: str, bits: int) -> Iterator[tuple[str, float]]:
    times = 2 if bits > 32 else 1
    yield from ((f"{kind}.{letter}{bits}", 1) for letter in "iusb")
    yield from ((f"{kind}.{letter}32", times) for letter in "iusb")
    if kind in _LIKE_ADDITION:
        for other in ("add", "mul") if kind != "mul" else ():
            yield from ((f"{other}.{letter}32", times) for letter in "is")


def with_dram_ratio(device: DeviceParameters, ratio: float | None) -> DeviceParameters:
    """Return a device whose accesses to global memory cost what they do at a measured ratio."""
    if ratio is None or ratio <= 1:
        return device
    said = f"; DRAM moved {ratio:.3g} of the bytes"
    classes = {
        name: replace(memory_cost(ratio, kind), source=f"{kind.source}{said}")
        if name.startswith(_GLOBAL)
        else kind
        for name, kind in device.classes.items()
    }
    return device.with_values(classes=classes)
