"""x86-64 machine code as ``objdump`` writes it: what its instructions do.

The syntax is AT&T's: the last operand is where the result goes. Properties are described in
``docs/concepts/machine-code.md``. Of *conflicting* accesses, which go to more lines of a set than a
cache has ways, :math:`(n - w)/(n - 1)` at least miss in a loop over :math:`n` lines, whatever is
replaced (Belady, 1966, "A Study of Replacement Algorithms for a Virtual-Storage Computer", IBM
Systems Journal 5(2)).

Source of the instructions: Intel, "Intel 64 and IA-32 Architectures Software Developer's Manual",
volume 2.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from countperf.counting.structure.memory_hierarchy import DEFAULT_CACHES, LINE_BYTES, CacheSize
from countperf.machine_code.interpreter import MachineProgram
from countperf.machine_code.machine_state import operands_of, widest

ROOT = "code"  # first part of the names of these properties

CONFLICT = "miss.conflict"
"""First part of the names of properties of accesses that miss a first-level cache."""

HEADER = re.compile(r"^([0-9a-f]+) <(.+)>:$")
LINE = re.compile(r"^\s*([0-9a-f]+):\s+([^#]*[^#\s])")
PREFIXES = re.compile(r"^(?:(?:data16|[cdefgs]s|bnd|notrack|lock|rep\w*|rex\S*|\{\w+\})\s+)+")
_STACK = re.compile(r"\(%r[sb]p\)")
_FLOP = re.compile(
    r"(?:fn?m(?:add|sub)+\d*|(?:add|sub)+|hadd|hsub|mul|dp|min|max|range|u?comi|cmp\w*?|fpclass"
    r"|round|rndscale|(?P<div>div)|(?P<sqrt>sqrt)"
    r"|(?P<special>(?:rcp|rsqrt)\d*|exp2|getexp|getmant|scalef|reduce))(?P<unit>[ps])(?P<type>[sd])"
)
_FULL_MOVE = re.compile(r"mov(?:[au]|nt)p[sd]|mov(?:dq[au]|ntdq)\w*|lddqu|p?maskmov\w+")
_SCALAR_MOVE = re.compile(r"movs[sd]|mov[dq]")
_HALF_MOVE = re.compile(r"mov[lh]p[sd]")
_OTHERS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("gather", re.compile(r"p?gather")),
    ("scatter", re.compile(r"p?scatter")),
    ("insert", re.compile(r"p?insr|insert")),
    ("extract", re.compile(r"p?extr|p?movmsk")),
    ("broadcast", re.compile(r"p?broadcast|movddup")),
    ("convert", re.compile(r"cvt|pmov")),
    (
        "shuffle",
        re.compile(r"mov|p?(?:shuf|erm|unpck|blend|ack|alignr|compress|expand)|perm|align"),
    ),
)
_ELEMENT = re.compile(
    r"p\w+r[bwdq]|pbroadcast[bwdq]|broadcasts[sd]|(?:insert|extract)ps|cvts[sid]\w*|movddup"
    r"|broadcast[fi]32x2"
)
"""Instructions whose operand in memory is smaller than a vector."""

_CROSS = re.compile(r"vperm|valign|vshuf[fi]")
_DIRECTION = re.compile(r"(?:spill_)?(load|store)_")
_WIDE_ELEMENTS = re.compile(r"(?:q|qps|qpd|dpd)$")
_NOTHING = re.compile(r"nop[wl]?|endbr64|data16|xchgw?")
_MOVES = re.compile(r"mov(?:abs)?[bwlq]?")
_UNCOUNTED = re.compile(r"(?:ret[lq]?|ud2|hlt|jmp[lq]?|pop[qlw]?)$|push|leave|prefetch|vzero|f")
_READ_ONLY = re.compile(r"cmp|test|bt[lqw]?$|mul|imul")


def instruction_in(line: str) -> tuple[int, str, str] | None:
    """Read a line of a listing: address, mnemonic and operands; None if it has no instruction.

    Prefixes and comments are left out, and the names of places that branches and calls go to.
    """
    match = LINE.match(line)
    if match is None:
        return None
    mnemonic, operands = [*PREFIXES.sub("", match[2]).split(maxsplit=1), ""][:2]
    if mnemonic.startswith(("j", "call")):
        operands = operands.split(" <")[0]
    return int(match[1], 16), mnemonic, operands.strip()


@lru_cache(maxsize=2**15)
def properties_of(mnemonic: str, operands: str) -> tuple[tuple[str, int], ...]:
    """Return what executing an instruction counts as, by property name."""
    names = [("all", 1)]
    for name in classify(mnemonic, operands):
        names.append((name, 1))
        if name in ("gather", "scatter"):
            size = 8 if _WIDE_ELEMENTS.search(mnemonic) else 4
            names.append((f"{name}_lanes", widest(operands) // size))
    return tuple((f"{ROOT}.{name}", number) for name, number in names)


def classify(mnemonic: str, operands: str) -> list[str]:
    """Say what an instruction does, by the names of properties."""
    parts = operands_of(operands)
    memory = next((part for part in parts if "(" in part), "")
    if widest(operands):
        return _classify_vector(mnemonic, parts, memory)
    for start, name in (("j", "branch"), ("call", "call"), ("k", "mask")):
        if mnemonic.startswith(start):
            return [name]
    return _classify_integer(mnemonic, parts, memory)


def _classify_vector(mnemonic: str, parts: Sequence[str], memory: str) -> list[str]:
    """Classify what has a vector register among its operands."""
    name, unit, kinds = mnemonic.removeprefix("v"), "vector", list[str]()
    direction = "store" if memory == parts[-1] else "load"
    if flop := _FLOP.fullmatch(name):
        unit = "vector" if flop["unit"] == "p" else "scalar"
        kind = next((kind for kind in ("div", "sqrt", "special") if flop[kind]), "")
        bits = 32 if flop["type"] == "s" else 64
        kinds = [f"{kind}_f{bits}_{unit}" if kind else f"arithmetic_{unit}"]
    elif _FULL_MOVE.fullmatch(name):
        kinds = [] if memory else ["move"]
    elif _SCALAR_MOVE.fullmatch(name):
        unit = "scalar"
        if not memory:
            of_vectors = ["mm" in parts[0], "mm" in parts[-1]]
            kinds = ["move" if all(of_vectors) else "extract" if of_vectors[0] else "insert"]
    elif _HALF_MOVE.fullmatch(name):
        unit, kinds = "scalar", ["insert" if direction == "load" else "extract"]
    else:
        kind = next((key for key, text in _OTHERS if text.match(name)), "iop_vector")
        if kind in ("gather", "scatter"):
            return [kind]
        if kind == "shuffle":
            kind = "shuffle_cross" if _CROSS.match(mnemonic) else "shuffle_lane"
        unit, kinds = "scalar" if _ELEMENT.fullmatch(name) else "vector", [kind]
    if "{1to" in memory:
        unit = "scalar"
        kinds.append("broadcast")
    return [*kinds, *([_name_access(direction, memory, unit)] if memory else [])]


def _classify_integer(name: str, parts: Sequence[str], memory: str) -> list[str]:
    """Classify what has integer registers only."""
    if _NOTHING.fullmatch(name):
        return []
    if _UNCOUNTED.match(name):
        return ["other"]
    if name.startswith("lea") or not parts:
        return ["iop_scalar"]
    loads = [_name_access("load", memory, "integer")] if memory else []
    stores = [_name_access("store", memory, "integer")] if memory and memory == parts[-1] else []
    if _MOVES.fullmatch(name):
        return stores or loads or ["move"]
    if name.startswith(("movs", "movz")):
        return loads or ["iop_scalar"]
    if name.startswith("set"):
        return ["iop_scalar", *stores]
    if name.startswith(("div", "idiv")):
        return ["idiv", *loads]
    return ["iop_scalar", *loads, *([] if _READ_ONLY.match(name) else stores)]


def _name_access(direction: str, memory: str, unit: str) -> str:
    if "%rip" in memory:
        return "load_constant"
    if _STACK.search(memory):
        return f"spill_{direction}_{'integer' if unit == 'integer' else 'vector'}"
    return f"{direction}_{'scalar' if unit == 'integer' else unit}"


def count_misses(
    program: MachineProgram,
    executed: Mapping[int, int],
    accessed: Mapping[int, int],
    cache: CacheSize = DEFAULT_CACHES.code,
) -> Counter[str]:
    """Return what a group accesses that comes back too late for a first-level cache."""
    shares = set_conflicts((block for block, _ in program.straight(executed)), accessed, cache)
    misses: Counter[str] = Counter()
    for number, share in shares.items():
        line = program.lines[number]
        for name in classify(line.mnemonic, line.operands):
            if match := _DIRECTION.match(name):
                misses[f"{CONFLICT}.{match[1]}"] += round(share * executed[number])
    return misses


def set_conflicts(
    blocks: Iterable[Sequence[int]],
    accessed: Mapping[int, int],
    cache: CacheSize = DEFAULT_CACHES.code,
) -> dict[int, float]:
    """Return which share of the accesses misses, of instructions whose lines share a set."""
    shares: dict[int, float] = {}
    for block in blocks:
        lines = {number: accessed[number] // LINE_BYTES for number in block if number in accessed}
        crowd = Counter(line % cache.sets for line in set(lines.values()))
        for number, line in lines.items():
            if (size := crowd[line % cache.sets]) > cache.ways:
                shares[number] = (size - cache.ways) / (size - 1)
    return shares
