"""Plain names of the parts of a time, and the group that each belongs to.

Models name parts by features, such as ``issue.scalar.gmem.load.set_conflict``. People read "scalar
loads that miss L1 by set conflicts", in the group "memory: L2". A table maps them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from textwrap import wrap

COMPUTE = "compute"
L1, L2, FAR, TRANSLATION = "memory: L1", "memory: L2", "memory: beyond L2", "memory: pages"
GLOBAL = "memory: global"
LOCAL = "memory: local"
CHAINS = "latency chains"
OVERHEAD = "overhead"
LAUNCH = "launch"
OTHER = "other"

GROUPS = (COMPUTE, L1, L2, FAR, TRANSLATION, GLOBAL, LOCAL, CHAINS, OVERHEAD, LAUNCH, OTHER)
"""Groups of the parts of a time, in the order in which people think of them."""

_WIDTH = 100  # characters of a line of names


@dataclass(frozen=True, slots=True)
class PlainName:
    """A part of a time for people."""

    text: str  # what takes the time, a few words
    group: str  # one of `GROUPS`


@lru_cache(maxsize=4096)
def plain_name(part: str) -> PlainName:
    """Return the plain name of a part of a breakdown; the part itself where no rule covers it."""
    for rule in _RULES:
        found = rule.pattern.fullmatch(part)
        if found is not None:
            return PlainName(rule.write(found), rule.group)
    return PlainName(part, OTHER)


def has_plain_name(part: str) -> bool:
    """Return whether a rule of the table covers a part."""
    return any(rule.pattern.fullmatch(part) for rule in _RULES)


_FEW = 3


def uncharged_text(names: Sequence[str]) -> str:
    """Write which properties a model leaves out: few by name, of more how many of each group."""
    if len(names) <= _FEW:
        return f"not charged by this model: {', '.join(plain_name(name).text for name in names)}"
    of_groups = ", ".join(f"{group} {len(held)}" for group, held in _by_group(names).items())
    number = f"{len(names)} properties"
    return f"not charged by this model: {number} ({of_groups}; --explain lists them)"


def uncharged_lines(names: Sequence[str]) -> list[str]:
    """Write all properties that a model leaves out: a paragraph for each group."""
    return [
        "not charged by this model:",
        *(
            line
            for group, held in _by_group(names).items()
            for line in wrap(
                f"{group}: {', '.join(held)}",
                _WIDTH,
                initial_indent="  ",
                subsequent_indent="    ",
                break_long_words=False,
                break_on_hyphens=False,
            )
        ),
    ]


def _by_group(names: Sequence[str]) -> dict[str, list[str]]:
    found = {group: [name for name in names if plain_name(name).group == group] for group in GROUPS}
    return {group: held for group, held in found.items() if held}


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str]
    group: str
    write: Callable[[re.Match[str]], str]


_PLURAL = {"load": "loads", "store": "stores", "min": "loads or stores, the fewer ones"}
_WORDS = {
    **_PLURAL,
    "free": "without barriers",
    "sync": "between barriers",
    "loop": "in loops between barriers",
    "add": "additions",
    "arithmetic": "additions and multiplications",
    "minmax": "minima and maxima",
    "special": "special functions",
    "mul": "multiplications",
    "div": "divisions",
    "mod": "remainders",
    "pow": "powers",
    "fma": "fused multiply-adds",
    "compare": "comparisons",
    "select": "selections",
    "convert": "conversions",
    "neg": "negations",
    "dense": "contiguous",
    "sparse": "non-contiguous",
    "gmem": "global",
    "lmem": "local",
    "beyond_l2": "beyond L2",
    "beyond_llc": "beyond the last-level cache",
    "memory_lines": "lines beyond L2",
    "data": "data-dependent addresses",
    "": "",
}
_STEPS = {
    "same": "of one address by all items",
    "next": "of consecutive addresses",
    "offset": "of consecutive unaligned addresses",
    "shifted": "of consecutive addresses at any offset",
    "masked": "of consecutive addresses with idle lanes",
    "near": "of several addresses in a cache line",
    "walk": "item by item within a cache line",
    "l1_reuse": "of another cache line per item",
    "data": "at addresses read from data",
    "strided": "of consecutive addresses in another cache line per iteration",
    "l2_reuse": "that miss L1",
    "beyond_l2": "that miss L2",
    "set_conflict": "that miss L1 by set conflicts",
}


def _rule(pattern: str, group: str, text: str) -> _Rule:
    """Make a rule whose text names groups of the pattern: ``{kind}`` is a word of the tables."""

    def write(found: re.Match[str]) -> str:
        words = {
            name: _STEPS.get(part, part) if name == "step" else _WORDS.get(part or "", part or "")
            for name, part in found.groupdict().items()
        }
        return " ".join(text.format(**words).split())

    return _Rule(re.compile(pattern), group, write)


_UNIT = r"(?P<unit>vector|scalar)"
_TYPE = r"(?P<type>[fiu]\d+)"
_DIRECTION = r"(?P<direction>load|store)"
_NEAR = r"(?P<step>same|next|offset|shifted|masked|near|walk|l1_reuse|data|strided)"
_RULES = (
    _rule(r"launches|launch", LAUNCH, "launching"),
    _rule(r"groups", OVERHEAD, "starting work groups"),
    _rule(r"items", OVERHEAD, "starting work items"),
    _rule(r"rows", OVERHEAD, "starting rows of work items"),
    _rule(r"barrier\.local", OVERHEAD, "local barriers"),
    _rule(r"barrier\.global", LAUNCH, "global barriers"),
    _rule(
        rf"issue\.{_UNIT}\.passes\.(?P<where>\w+)",
        OVERHEAD,
        "{unit} loops over the items of groups {where}",
    ),
    _rule(
        rf"issue\.{_UNIT}\.rows\.(?P<where>\w+)",
        OVERHEAD,
        "{unit} loops over rows of items {where}",
    ),
    _rule(rf"issue\.{_UNIT}\.carried", OVERHEAD, "loop-carried {unit} values kept in memory"),
    _rule(rf"issue\.{_UNIT}\.live_across_barrier", OVERHEAD, "{unit} values live across barriers"),
    _rule(
        rf"issue\.{_UNIT}\.pmem\.(?P<direction>load|store|gather|scatter)",
        OVERHEAD,
        "{unit} {direction} accesses to private arrays",
    ),
    # compute, as a device issues it
    _rule(rf"issue\.{_UNIT}\.arithmetic\.{_TYPE}", COMPUTE, "{unit} {type} add, multiply, fma"),
    _rule(rf"issue\.{_UNIT}\.minor", COMPUTE, "{unit} comparisons, selections, conversions"),
    _rule(rf"issue\.{_UNIT}\.divide", COMPUTE, "{unit} integer divisions"),
    _rule(rf"issue\.{_UNIT}\.iterations", COMPUTE, "{unit} loop iterations"),
    _rule(rf"issue\.{_UNIT}\.entries", COMPUTE, "{unit} entries of loops"),
    _rule(rf"issue\.{_UNIT}\.idle", COMPUTE, "{unit} slots without work"),
    _rule(rf"issue\.{_UNIT}\.(?P<kind>div|pow)\.{_TYPE}", COMPUTE, "{unit} {type} {kind}"),
    _rule(rf"issue\.{_UNIT}\.special\.{_TYPE}\.(?P<name>\w+)", COMPUTE, "{unit} {type} {name}"),
    _rule(
        rf"issue\.{_UNIT}\.conditional\.{_TYPE}\.(?P<name>\w+)",
        COMPUTE,
        "{unit} {type} {name} under conditions",
    ),
    # memory, as a device issues it
    _rule(
        rf"issue\.{_UNIT}\.guarded\.gmem\.{_DIRECTION}", L1, "{unit} global {direction} with a mask"
    ),
    _rule(
        rf"issue\.{_UNIT}\.guarded\.lmem\.{_DIRECTION}",
        LOCAL,
        "{unit} local {direction} with a mask",
    ),
    _rule(rf"issue\.{_UNIT}\.gmem\.{_DIRECTION}\.{_NEAR}", L1, "{unit} {direction} {step}"),
    _rule(
        rf"issue\.{_UNIT}\.gmem\.{_DIRECTION}\.(?P<step>l2_reuse|set_conflict)",
        L2,
        "{unit} {direction} {step}",
    ),
    _rule(
        rf"issue\.{_UNIT}\.gmem\.{_DIRECTION}\.(?P<step>beyond_l2)",
        FAR,
        "{unit} {direction} {step}",
    ),
    _rule(
        rf"issue\.{_UNIT}\.lmem\.{_DIRECTION}\.(?P<step>\w+)",
        LOCAL,
        "{unit} local {direction} {step}",
    ),
    _rule(rf"bytes\.group\.{_DIRECTION}\.(?P<how>\w+)", L1, "{how} bytes of groups' {direction}"),
    _rule(rf"segments\.group\.{_DIRECTION}", L1, "contiguous segments of groups' {direction}"),
    _rule(rf"{_DIRECTION}_(?P<level>beyond_l\w+)", FAR, "bytes of {direction} {level}"),
    _rule(
        rf"{_DIRECTION}_segments_(?P<level>beyond_l\w+)",
        FAR,
        "contiguous segments of {direction} {level}",
    ),
    _rule(
        rf"{_DIRECTION}_beyond_streams(?P<number>\d+)",
        FAR,
        "bytes of {direction} in more than {number} streams per group",
    ),
    _rule(
        rf"{_UNIT}_{_DIRECTION}_(?P<step>[a-z]\w*)_out_of_reach",
        TRANSLATION,
        "address translation of {unit} {direction} {step}",
    ),
    # sums of the model that reads compiled code
    _rule("waiting_cycles", CHAINS, "stall cycles of dependent instructions"),
    _rule(r"divisions_(?P<type>f\d+)", COMPUTE, "{type} divisions in machine code"),
    _rule("square_roots", COMPUTE, "square roots in machine code"),
    _rule(rf"{_DIRECTION}_lines_l2", L2, "cache lines of {direction} that miss L1"),
    _rule(
        rf"{_DIRECTION}_lines_conflict",
        L2,
        "cache lines of {direction} that miss L1 by set conflicts",
    ),
    _rule("cycles_loop_in_l2", COMPUTE, "cycles of innermost loops on data in L2"),
    _rule("groups_in_l2", OVERHEAD, "starting work groups whose data is in L2"),
    _rule(rf"{_DIRECTION}_bytes", L1, "bytes of groups' {direction}"),
    _rule(rf"{_DIRECTION}_distinct", L1, "distinct bytes of {direction}"),
    _rule(rf"{_DIRECTION}_beyond_streams", FAR, "bytes of {direction} in many streams"),
    _rule(
        rf"{_DIRECTION}_(?P<level>lines|memory_lines|data)_out_of_reach",
        TRANSLATION,
        "address translation of {level} of {direction}",
    ),
    _rule(
        rf"miss\.conflict\.{_DIRECTION}",
        L2,
        "{direction} in machine code that miss L1 by set conflicts",
    ),
    _rule(rf"spill\.beyond_l1\.{_DIRECTION}", L2, "{direction} of private values that miss L1"),
    # chains
    _rule(
        rf"issue\.{_UNIT}\.chain\.{_TYPE}\.(?P<kind>\w+)",
        CHAINS,
        "dependent {unit} {type} {kind}",
    ),
    # instructions of compiled code
    _rule(r"code\.all", COMPUTE, "instructions of all kinds"),
    _rule(r"code\.arithmetic_(?P<unit>\w+)", COMPUTE, "{unit} add, multiply, fma in machine code"),
    _rule(r"code\.iop_(?P<unit>\w+)", COMPUTE, "{unit} integer instructions"),
    _rule(
        r"code\.(?P<kind>div|sqrt|special)_(?P<type>f\d+)_(?P<unit>\w+)",
        COMPUTE,
        "{unit} {type} {kind} in machine code",
    ),
    _rule(r"code\.branch", COMPUTE, "branches"),
    _rule(r"code\.broadcast", COMPUTE, "broadcasts to lanes"),
    _rule(r"code\.call", COMPUTE, "calls of functions"),
    _rule(r"code\.convert", COMPUTE, "conversions"),
    _rule(r"code\.cycles", COMPUTE, "cycles of machine code"),
    _rule(r"code\.cycles_loop", COMPUTE, "cycles of innermost loops"),
    _rule(r"code\.cycles_operations", COMPUTE, "micro-operations"),
    _rule(r"code\.cycles_throughput", COMPUTE, "cycles of machine code without stalls"),
    _rule(r"code\.extract", COMPUTE, "extractions from vectors"),
    _rule(r"code\.insert", COMPUTE, "insertions into vectors"),
    _rule(r"code\.mask", COMPUTE, "instructions on masks"),
    _rule(r"code\.move", COMPUTE, "register moves"),
    _rule(r"code\.other", COMPUTE, "other instructions"),
    _rule(r"code\.shuffle_lane", COMPUTE, "shuffles within 128-bit parts"),
    _rule(r"code\.shuffle_cross", COMPUTE, "shuffles across 128-bit parts"),
    _rule(r"code\.gather", L1, "gather instructions"),
    _rule(r"code\.gather_lanes", L1, "lanes that gathers load"),
    _rule(r"code\.scatter", L1, "scatter instructions"),
    _rule(r"code\.scatter_lanes", L1, "lanes that scatters store"),
    _rule(r"code\.load_constant", L1, "loads of constants"),
    _rule(
        r"code\.(?P<direction>load|store)_(?P<unit>\w+)", L1, "{unit} {direction} in machine code"
    ),
    _rule(
        r"code\.spill_(?P<direction>load|store)_(?P<unit>\w+)", L1, "{unit} {direction} of spills"
    ),
    # the source view
    _rule(rf"flop\.(?P<kind>\w+)\.{_TYPE}(?:\.(?P<name>\w+))?", COMPUTE, "{type} {kind} {name}"),
    _rule(rf"iop\.(?P<kind>\w+)\.{_TYPE}(?:\.(?P<name>\w+))?", COMPUTE, "{type} {kind} {name}"),
    _rule(
        r"gmem\.(?P<direction>load|store|min)\.(?P<bits>\d+)\.uniform",
        GLOBAL,
        "{bits}-bit {direction} of one address",
    ),
    _rule(
        r"gmem\.(?P<direction>load|store|min)\.(?P<bits>\d+)\.stride1",
        GLOBAL,
        "unit-stride {bits}-bit {direction}",
    ),
    _rule(
        r"gmem\.(?P<direction>load|store|min)\.(?P<bits>\d+)\.indirect",
        GLOBAL,
        "{bits}-bit {direction} at addresses read from data",
    ),
    _rule(
        r"gmem\.(?P<direction>load|store|min)\.(?P<bits>\d+)\.(?P<used>\d)of(?P<stride>\d)",
        GLOBAL,
        "{bits}-bit {direction} with a stride of {stride}, {used} of {stride} used",
    ),
    _rule(
        r"gmem\.(?P<direction>load|store|min)\.(?P<bits>\d+)\.(?P<used>\d)ofn",
        GLOBAL,
        "{bits}-bit {direction} with a stride above 4, {used} quarters used",
    ),
    _rule(r"lmem\.(?P<direction>load|store)\.(?P<bits>\d+)", LOCAL, "{bits}-bit local {direction}"),
    _rule(
        r"transactions\.(?P<size>\d+x\d+)(?:\.(?P<direction>load|store))?",
        GLOBAL,
        "transactions of {size} items x bytes {direction}",
    ),
    _rule(r"subgroups\.\d+\.arithmetic", COMPUTE, "arithmetic instructions of sub-groups"),
    _rule(
        r"subgroups\.\d+\.(?:local|passes)", LOCAL, "instructions of sub-groups, or passes of banks"
    ),
    _rule(r"subgroups\.\d+\.(?P<direction>load|store)", GLOBAL, "{direction} of sub-groups"),
    _rule(r"subgroups\.\d+\.launched", OVERHEAD, "sub-groups"),
    _rule(r"subgroups\.\d+\.barrier", OVERHEAD, "barriers of sub-groups"),
    # parameters of the model of GPUs (docs/gpu-fits.md)
    _rule("w_group", OVERHEAD, "starting work groups on a GPU"),
    _rule("w_sub_group", OVERHEAD, "starting sub-groups"),
    _rule("w_barrier", OVERHEAD, "barriers of sub-groups"),
    _rule("w_barrier_alone", OVERHEAD, "barriers while few groups are resident"),
    _rule("w_arithmetic", COMPUTE, "arithmetic instructions of sub-groups"),
    _rule("w_arithmetic_in_a_row", CHAINS, "arithmetic of one sub-group in all waves"),
    _rule("w_barrier_in_a_row", CHAINS, "barriers of one sub-group in all waves"),
    _rule("w_load", GLOBAL, "load instructions of sub-groups"),
    _rule("w_line_load", GLOBAL, "lines of 128 bytes, loaded"),
    _rule("w_sector_load", GLOBAL, "sectors of 32 bytes, loaded"),
    _rule("w_sector_store", GLOBAL, "sectors of 32 bytes, stored"),
    _rule("w_distinct_load", GLOBAL, "distinct bytes, loaded"),
    _rule("w_distinct_store", GLOBAL, "distinct bytes, stored"),
    _rule("w_pass", LOCAL, "passes over the banks of local memory"),
    # mechanistic models
    _rule(r"compute|issue|busy", COMPUTE, "arithmetic and issue"),
    _rule(r"memory", GLOBAL, "traffic to global memory"),
    _rule(r"latency", CHAINS, "exposed latency"),
    _rule(r"transfer\.(?P<direction>\w+)", LAUNCH, "transfer {direction}"),
)
