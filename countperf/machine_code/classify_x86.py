"""x86-64 machine code as ``objdump`` writes it: what its instructions do.

Rules
-----
1. The syntax is AT&T's, from GNU's or LLVM's objdump; the last operand is where the result goes.
2. An instruction with an operand in memory also loads it, stores to it, or both.
3. The lanes of a packed instruction are those of its widest register, masked ones among them.
4. What is at a distance from ``%rsp`` or ``%rbp`` without an index is a spill; arguments that came
   on the stack are taken for such. What is at a distance from ``%rip`` is a constant.
5. Bitwise operations count as integer ones whatever the registers hold.

Source of the instructions: Intel, "Intel 64 and IA-32 Architectures Software Developer's Manual",
volume 2.

Counts: the code that an OpenCL runtime compiled is read and followed (`interpreter`) for a group of
each kind, at given sizes; nothing runs. Counts are those of all groups.

=======================  ==========================================================================
property                 instructions
=======================  ==========================================================================
``code.all``             all
``code.arithmetic_*``    additions, products, fused ones, comparisons, roundings; ``scalar`` or
                         ``vector``, as in the next three
``code.div_*``           divisions, and so on for ``sqrt`` and ``special``; with the type
``code.iop_*``           integer operations; ``code.idiv``: divisions
``code.load_*``          loads; ``scalar``, ``vector`` (of other than whole registers: by bits),
                         ``constant``; and ``code.store_*``
``code.spill_load_*``    of places on the stack, ``integer`` or ``vector``; ``code.spill_store_*``
``code.gather``          and ``code.gather_lanes``: elements of them; ``code.scatter`` likewise
``code.shuffle_lane``    permutations within 128 bits; ``code.shuffle_cross``: of all lanes
others                   ``insert``, ``extract``, ``broadcast``, ``convert``, ``mask``, ``move``,
                         ``branch``, ``call``, ``other``
``code.cycles``          cycles of a processor of reference (`throughput`); ``cycles_loop``, those
                         of innermost loops; ``cycles_overlapped``, where short loops overlap
                         what follows; ``cycles_throughput``, if nothing waited for results;
                         ``cycles_operations``, micro operations; where groups differ,
                         ``cycles_largest``, of one of the largest, and ``cycles_busiest``, of
                         the compute unit that has the most
``code.groups_unknown``  groups of which data decides what they execute
``miss.conflict.load``   loads that come back too late for a first-level cache, since their lines
                         crowd a set; and ``miss.conflict.store``
=======================  ==========================================================================

Runtimes for CPUs run the items of a group one after the other between barriers, so that whatever
an item needs behind a barrier waits in arrays on the stack, which may be a power of two apart.
*Conflicting* accesses are those of a block, such as the body of a loop over items, that go to more
lines of a set than a cache has ways. If they come by in turns, as in a loop, of :math:`n` lines at
least a share of :math:`(n - w)/(n - 1)` is gone again, whatever is replaced (Belady, 1966, "A Study
of Replacement Algorithms for a Virtual-Storage Computer", IBM Systems Journal 5(2)): that share of
the accesses counts. Addresses are those of the first time that an instruction is executed.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from countperf.counting.structure.memory_hierarchy import DEFAULT_CACHES, LINE_BYTES, CacheSize
from countperf.machine_code.interpreter import MachineProgram
from countperf.machine_code.operands import WIDTHS, operands_of, widest

HEADER = re.compile(r"^([0-9a-f]+) <(.+)>:$")
LINE = re.compile(r"^\s*([0-9a-f]+):\s+([^#]*[^#\s])")
PREFIXES = re.compile(r"^(?:(?:data16|[cdefgs]s|bnd|notrack|lock|rep\w*|rex\S*|\{\w+\})\s+)+")
_STACK = re.compile(r"\(%r[sb]p\)")
_EMBEDDED = re.compile(r"\{1to(\d+)\}")
_KINDS = {
    "fma": r"fn?m(?:add|sub)+\d*",
    "add": r"(?:add|sub)+|hadd|hsub",
    "mul": "mul|dp",
    "div": "div",
    "sqrt": "sqrt",
    "special": r"(?:rcp|rsqrt)\d*|exp2|getexp|getmant|scalef|reduce",
    "minmax": "min|max|range",
    "compare": r"u?comi|cmp\w*?|fpclass",
    "round": "round|rndscale",
}
_FLOPS = tuple((kind, re.compile(f"(?:{text})([ps])([sd])")) for kind, text in _KINDS.items())
_TYPES = {"s": ("f32", 32), "d": ("f64", 64)}
_FULL_MOVE = re.compile(r"mov(?:[au]|nt)p[sd]|mov(?:dq[au]|ntdq)\w*|lddqu|p?maskmov\w+")
_SCALAR_MOVES = {"movss": 32, "movd": 32, "movsd": 64, "movq": 64}
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
_SMALL = (
    (8, re.compile(r"p\w+rb|pbroadcastb")),
    (16, re.compile(r"p\w+rw|pbroadcastw")),
    (32, re.compile(r"p\w+rd|pbroadcastd|broadcastss|(?:insert|extract)ps|cvts[si]\w*")),
    (64, re.compile(r"p\w+rq|pbroadcastq|broadcastsd|movddup|broadcast[fi]32x2|cvtsd\w*")),
    (128, re.compile(r"\w+(?:128|32x4|64x2)")),
    (256, re.compile(r"\w+(?:32x8|64x4)")),
)
_NOTHING = re.compile(r"nop[wl]?|endbr64|data16|xchgw?")
_MOVES = re.compile(r"mov(?:abs)?[bwlq]?")
_WIDENING = re.compile(r"mov[sz]")
_ENDS = re.compile(r"ret[lq]?|ud2|hlt|jmp[lq]?")
_UNCOUNTED = re.compile(r"push|pop[qlw]?$|leave|prefetch|vzero|f")
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


@lru_cache(maxsize=2**14)
def classify(mnemonic: str, operands: str) -> tuple[str, ...]:
    """Say what an instruction does."""
    parts = operands_of(operands)
    if width := 8 * widest(operands):
        return _vector(mnemonic.removeprefix("v"), parts, width)
    if mnemonic.startswith("j"):
        return ("branch",)
    if mnemonic.startswith("call"):
        return ("call",)
    if mnemonic.startswith("k"):
        return ("mask",)
    return _integer(mnemonic, parts)


def _vector(name: str, parts: Sequence[str], width: int) -> tuple[str, ...]:
    """Classify what has a vector register among its operands."""
    memory = next((part for part in parts if "(" in part), "")
    direction = "store" if memory and memory == parts[-1] else "load"
    embedded = _EMBEDDED.search(memory)
    if flop := _flop(name, width):
        classes, kind = [flop[0]], flop[1]
    elif _FULL_MOVE.fullmatch(name):
        classes, kind = [] if memory else ["move"], f"vector.{width}"
    elif name in _SCALAR_MOVES:
        classes, kind = _scalar_move(parts, memory), f"scalar.{_SCALAR_MOVES[name]}"
    elif _HALF_MOVE.fullmatch(name):
        classes, kind = ["insert" if direction == "load" else "extract"], "scalar.64"
    else:
        classes = [next((key for key, text in _OTHERS if text.match(name)), "iop.vector")]
        small = next((bits for bits, text in _SMALL if text.fullmatch(name)), width)
        kind = f"vector.{small}" if small >= 8 * WIDTHS["x"] else f"scalar.{small}"
    if classes[:1] in (["gather"], ["scatter"]):
        return tuple(classes)
    if embedded:
        classes.append("broadcast")
        kind = f"scalar.{width // int(embedded[1])}"
    return (*classes, *([_access(direction, memory, kind)] if memory else []))


def _flop(name: str, width: int) -> tuple[str, str] | None:
    """Return the class of arithmetic, and what an operand in memory would be."""
    for kind, text in _FLOPS:
        if match := text.fullmatch(name):
            type_name, bits = _TYPES[match[2]]
            if match[1] == "s":
                return f"flop.{kind}.{type_name}.1", f"scalar.{bits}"
            return f"flop.{kind}.{type_name}.{width // bits}", f"vector.{width}"
    return None


def _scalar_move(parts: Sequence[str], memory: str) -> list[str]:
    if memory:
        return []
    if "mm" not in parts[0]:
        return ["insert"]
    return ["move" if "mm" in parts[-1] else "extract"]


def _integer(name: str, parts: Sequence[str]) -> tuple[str, ...]:
    """Classify what has integer registers only."""
    if _NOTHING.fullmatch(name):
        return ()
    if _ENDS.fullmatch(name) or _UNCOUNTED.match(name):
        return ("other",)
    if name.startswith("lea") or not parts:
        return ("iop.scalar",)
    memory = next((part for part in parts if "(" in part), "")
    loads = [_access("load", memory, "integer")] if memory else []
    stores = [_access("store", memory, "integer")] if memory and memory == parts[-1] else []
    if _MOVES.fullmatch(name):
        return tuple(stores or loads or ["move"])
    if _WIDENING.match(name):
        return tuple(loads or ["iop.scalar"])
    if name.startswith("set"):
        return ("iop.scalar", *stores)
    if name.startswith(("div", "idiv")):
        return ("idiv", *loads)
    return ("iop.scalar", *loads, *([] if _READ_ONLY.match(name) else stores))


def _access(direction: str, memory: str, kind: str) -> str:
    if "%rip" in memory:
        return "load.constant"
    if _STACK.search(memory):
        return f"spill.{direction}.{kind.rpartition('.')[2]}"
    return f"{direction}.{kind}"


ROOT = "code"
"""First part of the names of these properties."""

CONFLICT = "miss.conflict"
"""First part of the names of properties of accesses that miss a first-level cache."""

_SIMPLE = ("add", "mul", "fma", "minmax", "compare", "round")
_CROSS = re.compile(r"v?p?erm(?!il)|vperm|valign|vshuf[fi]|vpmov|vinsert|vextract")
_WIDE_ELEMENTS = re.compile(r"(?:q|qps|qpd|dpd)$")


def missed(
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
        for direction in _directions(line.mnemonic, line.operands):
            misses[f"{CONFLICT}.{direction}"] += round(share * executed[number])
    return misses


def set_conflicts(
    blocks: Iterable[Sequence[int]],
    accessed: Mapping[int, int],
    cache: CacheSize = DEFAULT_CACHES.code,
) -> dict[int, float]:
    """Return which share of the accesses misses, of instructions whose lines share a set."""
    shares: dict[int, float] = {}
    for block in blocks:
        by_set: defaultdict[int, defaultdict[int, list[int]]] = defaultdict(
            lambda: defaultdict(list[int])
        )
        for number in block:
            if number in accessed:
                line = accessed[number] // LINE_BYTES
                by_set[line % cache.sets][line].append(number)
        for lines in by_set.values():
            if len(lines) > cache.ways:
                share = (len(lines) - cache.ways) / (len(lines) - 1)
                shares.update((number, share) for some in lines.values() for number in some)
    return shares


def _directions(mnemonic: str, operands: str) -> list[str]:
    """Return the directions of an instruction's accesses: ``load``, ``store`` or both."""
    kinds = (kind.removeprefix("spill.") for kind in classify(mnemonic, operands))
    return [kind.split(".")[0] for kind in kinds if kind.startswith(("load", "store"))]


@lru_cache(maxsize=2**15)
def properties_of(mnemonic: str, operands: str) -> tuple[tuple[str, int], ...]:
    """Return what executing an instruction counts as, by property name."""
    names: list[tuple[str, int]] = [("all", 1)]
    for kind in classify(mnemonic, operands):
        if kind in ("gather", "scatter"):
            bits = 64 if _WIDE_ELEMENTS.search(mnemonic) else 32
            names += [(kind, 1), (f"{kind}_lanes", 8 * widest(operands) // bits)]
        else:
            names.append((_name_class(kind, mnemonic), 1))
    return tuple((f"{ROOT}.{name}", number) for name, number in names)


def _name_class(kind: str, mnemonic: str) -> str:
    parts = kind.split(".")
    match parts[0]:
        case "flop":
            unit = "scalar" if parts[3] == "1" else "vector"
            name = "arithmetic" if parts[1] in _SIMPLE else f"{parts[1]}_{parts[2]}"
            return f"{name}_{unit}"
        case "load" | "store":
            unit = "scalar" if parts[1] == "integer" else parts[1]
            return f"{parts[0]}_{unit}"
        case "spill":
            return f"spill_{parts[1]}_{'integer' if parts[2] == 'integer' else 'vector'}"
        case "shuffle":
            return f"shuffle_{'cross' if _CROSS.match(mnemonic) else 'lane'}"
        case _:
            return "_".join(parts)
