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

Costs of global memory are those at R, the bytes of DRAM over the bytes accessed (Lemeire, Cornelis
& Konstantinidis, section 6.3). A device may state the cost of what L2 serves as ``ld.l2.s32``; else
it follows from the bandwidth of L2 or is that of DRAM, and latencies are those of DRAM.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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
    base, excess = split_excess(name)
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


def count_charged_bits(alpha: Mapping[str, float]) -> float:
    """Return what costs of accesses to global memory stand for, in bits of a work item."""
    total = 0.0
    for name, count in alpha.items():
        if name.startswith(("load.global.", "store.global.")):
            kind, excess = split_excess(name)
            total += count * float(kind.rpartition(".")[2]) * excess
    return total


def split_excess(name: str) -> tuple[str, float]:
    """Split the waste off a class: ``load.global.32.x8`` is ``load.global.32`` and 8."""
    parts = name.split(".")
    if len(parts) > 3 and parts[3].startswith("x"):
        return ".".join(parts[:3]), float(".".join(parts[3:])[1:])
    return name, 1.0


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


def charge_traffic(
    device: DeviceParameters, ratio: float, reaching_l2: float = 1.0, *, overlaps: bool = False
) -> DeviceParameters:
    """Return a device whose accesses to global memory cost what they do at a kernel's traffic.

    ``ratio`` is R, and ``reaching_l2`` the share of the bytes accessed that L1 does not serve.
    Where L1, L2 and memory overlap, the slowest decides; else bytes of L2 and of memory take turns.
    """

    def charge(kind: InstructionClass) -> InstructionClass:
        dram = replace(kind, cpi=kind.cpi / (device.achievable_bandwidth_share or 1.0))
        if not 0 < ratio < 1:
            return memory_cost(ratio, dram)
        l2, l2_latency = _find_l2_cost(kind, device)
        cpi, latency = ratio * dram.cpi, dram.latency
        if overlaps:
            cpi = max(cpi, reaching_l2 * (l2 or 0.0), _find_cost_at(kind, device, "l1") or 0.0)
        else:
            cpi += max(0.0, reaching_l2 - ratio) * (dram.cpi if l2 is None else l2)
        if latency is not None and l2_latency is not None:
            missing = max(reaching_l2, ratio)
            l1_latency = device.l1_latency_cycles or l2_latency
            of_caches = (missing - ratio) * l2_latency + (1 - missing) * l1_latency
            latency = ratio * latency + of_caches
        return replace(dram, cpi=cpi, latency=latency)

    kinds = device.classes.items()
    classes = {name: charge(kind) if name.startswith(_GLOBAL) else kind for name, kind in kinds}
    return device.with_values(classes=classes)


def _find_l2_cost(
    kind: InstructionClass, device: DeviceParameters
) -> tuple[float | None, float | None]:
    """Return cost and latency of an access that L2 serves, as far as they are known."""
    stated = device.classes.get("ld.l2.s32")
    dram = device.classes.get("ld.global.s32")
    if stated is None or dram is None:
        return _find_cost_at(kind, device, "l2"), device.l2_latency_cycles
    return stated.cpi * kind.cpi / dram.cpi, stated.latency


def _find_cost_at(kind: InstructionClass, device: DeviceParameters, cache: str) -> float | None:
    """Return what an access costs at the bandwidth of a cache in the place of the peak's."""
    bandwidth = getattr(device, f"{cache}_bandwidth_byte_per_s")
    peak = device.bandwidth_byte_per_s
    return kind.cpi * peak / bandwidth if peak and bandwidth else None
