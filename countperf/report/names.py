"""Plain names of the parts of a time, and the group that each belongs to.

Models name parts by features, such as ``issue.scalar.gmem.load.set_conflict``. People read "scalar
loads that miss L1 by set conflicts", in the group "memory: L2". A table maps them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
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


_FEW = 3


def uncharged_lines(names: Sequence[str], *, every: bool = False) -> list[str]:
    """Write which properties a model leaves out: few by name, of more how many, or all of them."""
    if not every:
        said = [plain_name(name).text for name in names]
        said = said if len(said) <= _FEW else [f"{len(said)} properties (--explain lists them)"]
        return [f"not charged by this model: {', '.join(said)}"]
    paragraphs = (
        wrap(f"{group}: {', '.join(held)}", _WIDTH, break_long_words=False, break_on_hyphens=False)
        for group, held in _by_group(names).items()
    )
    return ["not charged by this model:", *(f"  {line}" for part in paragraphs for line in part)]


def _by_group(names: Sequence[str]) -> dict[str, list[str]]:
    groups = {
        group: [name for name in names if plain_name(name).group == group] for group in GROUPS
    }
    return {group: held for group, held in groups.items() if held}


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str]
    group: str
    text: str

    def write(self, found: re.Match[str]) -> str:
        """Put the words for what a pattern found into the text."""
        words = {
            name: (_STEPS if name == "step" else _WORDS).get(part or "", part or "")
            for name, part in found.groupdict().items()
        }
        return " ".join(self.text.format(**words).split())


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


_WORD = r"\w+"
_PARTS = {
    "unit": "vector|scalar",
    "type": r"[fiu]\d+",
    "direction": "load|store",
    "access": "load|store|min",
    "step": "same|next|offset|shifted|masked|near|walk|l1_reuse|data|strided",
    "level": r"beyond_l\w+",
    "bits": r"\d+",
    "number": r"\d+",
    "used": r"\d",
    "of": r"\d",
}


def _rules(table: str) -> list[_Rule]:
    """Read rules: groups in brackets, then patterns and texts, two blanks between them.

    In a pattern, ``{kind}`` is what `_PARTS` has for it, or else a word; ``{kind:a|b}`` is a or b.
    """
    rules: list[_Rule] = []
    group = OTHER
    for line in table.strip().splitlines():
        if line.startswith("["):
            group = line.strip("[]")
            continue
        template, text = line.split("  ")
        pattern = re.sub(
            r"\{(\w+):?([^}]*)\}",
            lambda part: f"(?P<{part[1]}>{part[2] or _PARTS.get(part[1], _WORD)})",
            template.replace(".", r"\."),
        )
        rules.append(_Rule(re.compile(pattern), group, text))
    return rules


_RULES = _rules(r"""
[compute]
issue.{unit}.arithmetic.{type}  {unit} {type} add, multiply, fma
issue.{unit}.minor  {unit} comparisons, selections, conversions
issue.{unit}.divide  {unit} integer divisions
issue.{unit}.iterations  {unit} loop iterations
issue.{unit}.entries  {unit} entries of loops
issue.{unit}.idle  {unit} slots without work
issue.{unit}.{kind:div|pow}.{type}  {unit} {type} {kind}
issue.{unit}.special.{type}.{name}  {unit} {type} {name}
issue.{unit}.conditional.{type}.{name}  {unit} {type} {name} under conditions
divisions_{type}  {type} divisions in machine code
square_roots  square roots in machine code
cycles_loop_in_l2  cycles of innermost loops on data in L2
code.all  instructions of all kinds
code.arithmetic_{lanes}  {lanes} add, multiply, fma in machine code
code.iop_{lanes}  {lanes} integer instructions
code.{kind:div|sqrt|special}_{type}_{lanes}  {lanes} {type} {kind} in machine code
code.branch  branches
code.broadcast  broadcasts to lanes
code.call  calls of functions
code.convert  conversions
code.cycles  cycles of machine code
code.cycles_loop  cycles of innermost loops
code.cycles_operations  micro-operations
code.cycles_throughput  cycles of machine code without stalls
code.extract  extractions from vectors
code.insert  insertions into vectors
code.mask  instructions on masks
code.move  register moves
code.other  other instructions
code.shuffle_lane  shuffles within 128-bit parts
code.shuffle_cross  shuffles across 128-bit parts
flop.{kind}.{type}(?:.{name})?  {type} {kind} {name}
iop.{kind}.{type}(?:.{name})?  {type} {kind} {name}
subgroups.\d+.arithmetic  arithmetic instructions of sub-groups
compute|issue|busy  arithmetic and issue
[memory: L1]
issue.{unit}.guarded.gmem.{direction}  {unit} global {direction} with a mask
issue.{unit}.gmem.{direction}.{step}  {unit} {direction} {step}
bytes.group.{direction}.{how}  {how} bytes of groups' {direction}
segments.group.{direction}  contiguous segments of groups' {direction}
{direction}_bytes  bytes of groups' {direction}
{direction}_distinct  distinct bytes of {direction}
code.gather  gather instructions
code.gather_lanes  lanes that gathers load
code.scatter  scatter instructions
code.scatter_lanes  lanes that scatters store
code.load_constant  loads of constants
code.{direction}_{lanes}  {lanes} {direction} in machine code
code.spill_{direction}_{lanes}  {lanes} {direction} of spills
[memory: L2]
issue.{unit}.gmem.{direction}.{step:l2_reuse|set_conflict}  {unit} {direction} {step}
{direction}_lines_l2  cache lines of {direction} that miss L1
{direction}_lines_conflict  cache lines of {direction} that miss L1 by set conflicts
miss.conflict.{direction}  {direction} in machine code that miss L1 by set conflicts
spill.beyond_l1.{direction}  {direction} of private values that miss L1
[memory: beyond L2]
issue.{unit}.gmem.{direction}.{step:beyond_l2}  {unit} {direction} {step}
{direction}_{level}  bytes of {direction} {level}
{direction}_segments_{level}  contiguous segments of {direction} {level}
{direction}_beyond_streams{number}  bytes of {direction} in more than {number} streams per group
{direction}_beyond_streams  bytes of {direction} in many streams
[memory: pages]
{unit}_{direction}_{step:[a-z]\w*}_out_of_reach  address translation of {unit} {direction} {step}
{direction}_{at:lines|memory_lines|data}_out_of_reach  address translation of {at} of {direction}
[memory: global]
gmem.{access}.{bits}.uniform  {bits}-bit {access} of one address
gmem.{access}.{bits}.stride1  unit-stride {bits}-bit {access}
gmem.{access}.{bits}.indirect  {bits}-bit {access} at addresses read from data
gmem.{access}.{bits}.{used}of{of}  {bits}-bit {access} with a stride of {of}, {used} of {of} used
gmem.{access}.{bits}.{used}ofn  {bits}-bit {access} with a stride above 4, {used} quarters used
transactions.{size:\d+x\d+}(?:.{direction})?  transactions of {size} items x bytes {direction}
subgroups.\d+.{direction}  {direction} of sub-groups
distinct.load  distinct bytes, loaded
distinct.store  distinct bytes, stored
memory  traffic to global memory
[memory: local]
issue.{unit}.guarded.lmem.{direction}  {unit} local {direction} with a mask
issue.{unit}.lmem.{direction}.{step:\w+}  {unit} local {direction} {step}
lmem.{direction}.{bits}  {bits}-bit local {direction}
subgroups.\d+.(?:local|passes)  instructions of sub-groups, or passes of banks
[latency chains]
waiting_cycles  stall cycles of dependent instructions
issue.{unit}.chain.{type}.{kind}  dependent {unit} {type} {kind}
arithmetic_in_a_row  arithmetic of one sub-group in all waves
barriers_in_a_row  barriers of one sub-group in all waves
latency  exposed latency
[overhead]
groups  starting work groups
items  starting work items
rows  starting rows of work items
barrier.local  local barriers
issue.{unit}.passes.{where}  {unit} loops over the items of groups {where}
issue.{unit}.rows.{where}  {unit} loops over rows of items {where}
issue.{unit}.carried  loop-carried {unit} values kept in memory
issue.{unit}.live_across_barrier  {unit} values live across barriers
issue.{unit}.pmem.{kind:load|store|gather|scatter}  {unit} {kind} accesses to private arrays
groups_in_l2  starting work groups whose data is in L2
subgroups.\d+.launched  sub-groups
subgroups.\d+.barrier  barriers of sub-groups
barriers_by_group  barriers while few groups are resident
[launch]
launches|launch  launching
barrier.global  global barriers
transfer.{way}  transfer {way}
""")
