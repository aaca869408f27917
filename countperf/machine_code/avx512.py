"""Integers in vector registers: compilers keep what loops count in them, too.

Values are those of `countperf.machine_code.integer_unit`; floating-point results, and what has no
rule here, are unknown. A vector has 16 lanes of 32 bits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from countperf.machine_code.avx2 import (
    element_source,
    element_test,
    elements_of,
    is_element_test,
    lanes_from,
    masked_store,
    pairs_of,
)
from countperf.machine_code.gather_scatter import lanes_of
from countperf.machine_code.integer_unit import (
    REGISTERS,
    UNKNOWN_LANES,
    Action,
    Flags,
    Lanes,
    Machine,
    Read,
    Value,
    address_of,
    operands_of,
    reader,
    signed,
    writer,
)
from countperf.machine_code.lane_moves import masked_move, move_source
from countperf.machine_code.vector_registers import LANES, VECTOR, Source, joined, source_of, split

_HALF = (1 << 32) - 1
_MOVES = re.compile(r"^v?mov(?:dq[au]\d*|[au]p[sd]|ntdq|ntp[sd])$")
_SCALARS = {"vmovd": 1, "movd": 1, "vmovss": 1, "movss": 1, "vmovq": 2, "movq": 2, "vmovsd": 2}
_BITWISE = re.compile(r"^vp?(and|or|xor|andn)(?:[dq]|p[sd])?$")
_ARITHMETIC = re.compile(r"^vp(add|sub|mul|mull|maxu|minu)([dq])$")
_SHIFTS = re.compile(r"^vp(sll|srl|sra)([dq])$")
_BROADCASTS = re.compile(r"^vp?broadcast(?:[dq]|s[sd]|i32x[248]|i64x[24]|f\w+|i128)$")
_SPREAD_LANES = (
    *(("sd", 2), ("ss", 1), ("d", 1), ("q", 2), ("32x2", 2), ("32x8", 8), ("64x4", 8), ("", 4)),
)
"""Lanes that a broadcast repeats, by the end of its name."""
_PIECES = re.compile(r"^v(extract|insert)[if](128|32x4|64x2|32x8|64x4)$")
_PIECE_LANES = {"128": 4, "32x4": 4, "64x2": 4, "32x8": 8, "64x4": 8}

_WIDENINGS = re.compile(r"^vpmov([sz])xdq$")
_INTERLEAVES = re.compile(r"^v(?:p?unpck)([lh])(q?dq|ps|pd)$")

_TABLES = re.compile(r"^vperm([ti])2(d|q|ps|pd)$")
_PERMUTATIONS = re.compile(r"^vperm(d|q|ps|pd)$")
_QUARTERS = re.compile(r"^v(perm2|shuf)[if](?:128|64x2|32x4)$")

_COMBINE: Mapping[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "mull": lambda a, b: a * b,
    "maxu": max,
    "minu": min,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "andn": lambda a, b: ~a & b,
}


def target_of(operands: str) -> int | None:
    """Return the vector register that an instruction writes; None if it writes none."""
    parts = operands_of(operands)
    found = VECTOR.match(parts[-1]) if parts else None
    return None if found is None else int(found[2])


def leads_to_integers(mnemonic: str, operands: str) -> bool:
    """Say whether an instruction takes a vector's integers to integer registers."""
    if mnemonic.startswith(("kortest", "ktest")) or is_element_test(mnemonic):
        return True
    return mnemonic.startswith(
        ("vpextr", "vextractps", "vmovd", "vmovq", "movd", "movq", "kmov")
    ) and (operands_of(operands)[-1] in REGISTERS)


# {{{ masks

_MASK = re.compile(r"^%k([0-7])(\{.*)?$")
_WRITTEN_UNDER = re.compile(r"\{%k([0-7])\}(\{z\})?")
_COMPARISON = re.compile(r"^vpcmp(eq|lt|le|gt|ge|neq|nlt|nle)(u?)([bwdq])$")
_TEST = re.compile(r"^vptest(n?)m([bwdq])$")
_SIGNS = re.compile(r"^vpmov([bwdq])2m$")
_SPREAD_MASKS = re.compile(r"^vpmovm2([bwdq])$")
_BITS = {"b": 8, "w": 16, "d": 32, "q": 64}
_ORDER: Mapping[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "neq": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "nlt": lambda a, b: a >= b,
    "ge": lambda a, b: a >= b,
    "le": lambda a, b: a <= b,
    "nle": lambda a, b: a > b,
    "gt": lambda a, b: a > b,
}
_ALL = (1 << 64) - 1


def _mask_action(mnemonic: str, parts: list[str]) -> Action | None:
    """Return what an instruction does that sets a mask, or tests or moves masks."""
    target = _MASK.match(parts[-1])
    if mnemonic.startswith(("kortest", "ktest")):
        return _mask_test(mnemonic, parts)
    if target is None:
        source = _MASK.match(parts[0])
        if source is not None and mnemonic.startswith("kmov"):
            number, bits = int(source[1]), _BITS[mnemonic[4]]
            low = (1 << bits) - 1
            write = writer(parts[-1], max(bits, 32) if parts[-1] in REGISTERS else bits)

            def take(machine: Machine) -> None:
                value, known = machine.masks[number]
                write(machine, value & low if known & low == low else None)

            return take
        return None
    number = int(target[1])
    under = _WRITTEN_UNDER.search(parts[-1])
    compute = _mask_of(mnemonic, parts)

    def put(machine: Machine) -> None:
        value, known = (0, 0) if compute is None else compute(machine)
        if under is not None:
            other, other_known = machine.masks[int(under[1])]
            known = (known & other_known) | (known & ~value) | (other_known & ~other)
            value &= other
        machine.masks[number] = value & known, known

    return put


_MaskSource = Callable[[Machine], tuple[int, int]]


def _mask_of(mnemonic: str, parts: list[str]) -> _MaskSource | None:
    if found := _COMPARISON.match(mnemonic):
        return _compared(_ORDER[found[1]], parts, _BITS[found[3]], found[2] == "u")
    if (found := _TEST.match(mnemonic)) and len(parts) == 3:
        is_zero = found[1] == "n"
        order = (lambda a, b: a & b == 0) if is_zero else (lambda a, b: a & b != 0)
        return _compared(order, parts, _BITS[found[2]], is_unsigned=True)
    if found := _SIGNS.match(mnemonic):
        return _signs(parts, _BITS[found[1]])
    if not mnemonic.startswith("k"):
        return None
    bits = _BITS.get(mnemonic[-1], 64)
    low = (1 << bits) - 1
    if mnemonic.startswith("kmov"):
        return _moved_mask(parts[0], bits)
    numbers = [int(found[1]) for part in parts[:-1] if (found := _MASK.match(part)) is not None]
    if mnemonic.startswith(("kxnor", "kxor")) and len(numbers) == 2 and numbers[0] == numbers[1]:
        return lambda _: (low if mnemonic.startswith("kxnor") else 0, _ALL)
    if mnemonic.startswith("knot") and len(numbers) == 1:
        return lambda machine: (
            ~machine.masks[numbers[0]][0] & machine.masks[numbers[0]][1] & low,
            machine.masks[numbers[0]][1] | (_ALL & ~low),
        )
    if mnemonic.startswith("kshift") and len(numbers) == 1 and parts[0].startswith("$"):
        by, is_left = int(parts[0].lstrip("$"), 0), mnemonic.startswith("kshiftl")
        return _shifted_mask(numbers[0], by, bits, is_left=is_left)
    return _combined_masks(mnemonic, numbers, bits) if len(numbers) == 2 else None


def _moved_mask(text: str, bits: int) -> _MaskSource:
    """Return what moves a mask, or the low bits of an integer, into a mask."""
    low = (1 << bits) - 1
    if (found := _MASK.match(text)) is not None:
        number = int(found[1])
        return lambda machine: (machine.masks[number][0] & low, machine.masks[number][1])
    read = reader(text, bits)

    def moved(machine: Machine) -> tuple[int, int]:
        value = read(machine)
        return (0, _ALL & ~low) if value is None else (value & low, _ALL)

    return moved


def _shifted_mask(number: int, by: int, bits: int, *, is_left: bool) -> _MaskSource:
    """Return what shifts a mask by a constant."""
    low = (1 << bits) - 1

    def shifted(machine: Machine) -> tuple[int, int]:
        value, known = machine.masks[number]
        value, known = value & low, known | (_ALL & ~low)
        if is_left:
            return (value << by) & low, ((known << by) | ((1 << by) - 1)) & _ALL | (_ALL & ~low)
        return value >> by, known >> by | (_ALL & ~(low >> by))

    return shifted


def _combined_masks(mnemonic: str, numbers: Sequence[int], bits: int) -> _MaskSource:
    """Return what combines two masks bit by bit, or puts their halves together."""
    low = (1 << bits) - 1
    name = mnemonic[:-1]

    def combined(machine: Machine) -> tuple[int, int]:
        (b, b_known), (a, a_known) = machine.masks[numbers[0]], machine.masks[numbers[1]]
        if mnemonic.startswith("kunpck"):
            half = {"kunpckbw": 8, "kunpckwd": 16, "kunpckdq": 32}[mnemonic]
            part = (1 << half) - 1
            known = (b_known & part) | ((a_known & part) << half)
            return (b & part) | ((a & part) << half), known | (_ALL & ~((1 << 2 * half) - 1))
        zeros_a, zeros_b = a_known & ~a, b_known & ~b
        if name == "kand":
            return a & b, (a & b) | zeros_a | zeros_b
        if name == "kandn":
            return zeros_a & b & low, (zeros_a & b) | a | zeros_b
        if name == "kor":
            return a | b, a | b | (zeros_a & zeros_b)
        both = a_known & b_known
        if name == "kxor":
            return (a ^ b) & both, both
        if name == "kxnor":
            return ~(a ^ b) & both & low, both
        return 0, 0

    return combined


def _compared(
    order: Callable[[int, int], bool], parts: list[str], bits: int, is_unsigned: bool
) -> _MaskSource | None:
    if len(parts) != 3:
        return None
    register = VECTOR.match(parts[1])
    lanes = LANES[register[1]] if register is not None else 16
    pairs_in = pairs_of(parts, lanes, bits)
    rest = _ALL & ~((1 << (32 * lanes // bits)) - 1)

    def number(value: int) -> int:
        return value if is_unsigned else signed(value, bits)

    def compare(machine: Machine) -> tuple[int, int]:
        value, known = 0, rest
        for place, (a, b) in enumerate(pairs_in(machine)):
            if a is not None and b is not None:
                known |= 1 << place
                value |= order(number(a), number(b)) << place
        return value, known

    return compare


def _signs(parts: list[str], bits: int) -> _MaskSource | None:
    register = VECTOR.match(parts[0])
    if register is None:
        return None
    number, lanes = int(register[2]), LANES[register[1]]
    rest = _ALL & ~((1 << (32 * lanes // bits)) - 1)

    def take(machine: Machine) -> tuple[int, int]:
        value, known = 0, rest
        for place, element in enumerate(elements_of(machine.vectors[number][:lanes], bits)):
            if element is not None:
                known |= 1 << place
                value |= (element >> (bits - 1)) << place
        return value, known

    return take


def _mask_test(mnemonic: str, parts: list[str]) -> Action | None:
    found = [_MASK.match(part) for part in parts]
    bits = _BITS[mnemonic[-1]]
    low = (1 << bits) - 1
    numbers = [int(each[1]) for each in found if each is not None]
    if len(numbers) != 2:
        return None
    is_or = mnemonic.startswith("kor")

    def test(machine: Machine) -> None:
        (b, b_known), (a, a_known) = machine.masks[numbers[0]], machine.masks[numbers[1]]
        zeros_a, zeros_b = a_known & ~a & low, b_known & ~b & low
        machine.flags = None
        ones = (a | b if is_or else a & b) & low
        zeros = zeros_a & zeros_b if is_or else zeros_a | zeros_b
        if ones or zeros == low:  # the carry says whether all are one, which needs all of them
            is_full = ones == low
            machine.flags = (
                Flags("mask", 0, 1, 1, bits)
                if is_full
                else Flags("mask", 1, 0, int(bool(ones)), bits)
            )

    return test


# }}}


def packed_action(mnemonic: str, operands: str) -> Action | None:
    """Return what an instruction with vectors does to integers; None if nothing.

    Parameters
    ----------
    mnemonic, operands : str
        As ``objdump`` writes them, in AT&T's syntax.
    """
    parts = operands_of(operands)
    if not parts:
        return None
    if mnemonic[0] == "k" or _MASK.match(parts[-1]):
        return _mask_action(mnemonic, parts)
    special = element_test(mnemonic, operands) or masked_store(mnemonic, operands)
    if special is not None:
        return special
    under = _WRITTEN_UNDER.search(operands)
    target = VECTOR.match(parts[-1])
    if mnemonic.startswith("vpscatter") and under is not None:
        return _scattered(mnemonic, operands, int(under[1]))
    if target is None:
        return _leaving(mnemonic, parts, None if under is None else int(under[1]))
    number, lanes = int(target[2]), LANES[target[1]]
    if "gather" in mnemonic and under is not None:
        return _gathered(mnemonic, operands, number, int(under[1]))
    plain = [*parts[:-1], parts[-1].partition("{")[0]]
    source = masked_move(mnemonic, parts, lanes)
    if source is not None:
        under = None
    else:
        source = _result(mnemonic, plain, lanes)
    if under is None and source is None:
        source = element_source(mnemonic, plain, lanes)
    if under is not None and source is not None:
        size = 2 if _WIDE.search(mnemonic) else 1
        source = _under(source, number, lanes, size, int(under[1]), keeps=under[2] is None)
    if source is None:

        def forget(machine: Machine) -> None:
            machine.vectors[number] = UNKNOWN_LANES

        return forget

    def write(machine: Machine) -> None:
        found = source(machine)[:lanes]
        machine.vectors[number] = found + (0,) * (16 - len(found))

    return write


_WIDE = re.compile(r"(?:q|pd|64|64x\d)$")


def _gathered(mnemonic: str, operands: str, number: int, mask: int) -> Action:
    lanes = lanes_of(mnemonic, operands)
    if not mnemonic.startswith("vp") or lanes is None:

        def forget(machine: Machine) -> None:
            machine.vectors[number] = UNKNOWN_LANES
            machine.masks[mask] = (0, _ALL)  # when all is gathered

        return forget
    pieces = lanes.size // 4

    def gather(machine: Machine) -> None:
        bits, known = machine.masks[mask]
        found: list[Value] = []
        for lane, address in enumerate(lanes.addresses):
            old = machine.vectors[number][pieces * lane : pieces * (lane + 1)]
            if known >> lane & 1 and not bits >> lane & 1:
                found += old
                continue
            start = address(machine) if known >> lane & 1 else None
            for piece in range(pieces):
                found.append(None if start is None else machine.load(start + 4 * piece, 32))
        machine.vectors[number] = (*found, *(0,) * (16 - len(found)))
        machine.masks[mask] = (0, _ALL)

    return gather


def _scattered(mnemonic: str, operands: str, mask: int) -> Action | None:
    lanes = lanes_of(mnemonic, operands)
    source = VECTOR.match(operands_of(operands)[0])
    if lanes is None or source is None:
        return None
    number, pieces = int(source[2]), lanes.size // 4

    def scatter(machine: Machine) -> None:
        bits, known = machine.masks[mask]
        for lane, address in enumerate(lanes.addresses):
            start = address(machine)
            is_known = known >> lane & 1
            if start is None or (is_known and not bits >> lane & 1):
                continue
            for piece in range(pieces):
                value = machine.vectors[number][pieces * lane + piece] if is_known else None
                machine.store(start + 4 * piece, 32, value)
        machine.masks[mask] = (0, _ALL)

    return scatter


def _under(source: Source, number: int, lanes: int, size: int, mask: int, *, keeps: bool) -> Source:
    """Return what writes some lanes only, and keeps the others or sets them to zero."""

    def choose(machine: Machine) -> Lanes:
        new, old = source(machine), machine.vectors[number]
        new = (*new, *(0,) * (lanes - len(new)))
        value, known = machine.masks[mask]
        found: list[Value] = []
        for lane in range(lanes):
            bit = 1 << (lane // size)
            if known & bit:
                found.append(new[lane] if value & bit else old[lane] if keeps else 0)
            else:
                other = old[lane] if keeps else 0
                found.append(new[lane] if new[lane] == other else None)
        return tuple(found)

    return choose


def _leaving(mnemonic: str, parts: list[str], mask: int | None) -> Action | None:
    """Return what writes to an integer register or to memory."""
    last = parts[-1]
    if mnemonic.startswith(("vpextr", "vextractps")) and len(parts) == 3:
        place, size = int(parts[0].lstrip("$"), 0), {"d": 1, "s": 1, "q": 2}.get(mnemonic[-1])
        vector = VECTOR.match(parts[1])
        if size is not None and vector is not None:
            number = int(vector[2])
            write = writer(last, 32 * size)
            return lambda machine: write(
                machine, joined(machine.vectors[number][size * place : size * (place + 1)])
            )
    if last in REGISTERS:
        write = writer(last, max(32, REGISTERS[last].bits))
        vector = VECTOR.match(parts[0])
        size = _SCALARS.get(mnemonic)
        if size is not None and vector is not None:
            number = int(vector[2])
            return lambda machine: write(machine, joined(machine.vectors[number][:size]))
        return lambda machine: write(machine, None)
    address = address_of(last.partition("{")[0])
    vector = VECTOR.match(parts[0]) if len(parts) == 2 else None
    if address is not None and (found := _PIECES.match(mnemonic)):
        return _extracted(parts, _PIECE_LANES[found[2]], address, is_whole=mask is None)
    if vector is None or address is None:
        return None
    lanes = _SCALARS.get(mnemonic, LANES[vector[1]])
    number = int(vector[2])
    is_known = mnemonic in _SCALARS or _MOVES.match(mnemonic) is not None
    size = 2 if _WIDE.search(mnemonic) else 1

    def store(machine: Machine) -> None:
        start = address(machine)
        if start is None:
            return
        values = machine.vectors[number] if is_known else UNKNOWN_LANES
        bits, known = (_ALL, _ALL) if mask is None else machine.masks[mask]
        for lane in range(lanes):
            bit = 1 << (lane // size)
            if not known & bit:
                machine.store(start + 4 * lane, 32, None)
            elif bits & bit:
                machine.store(start + 4 * lane, 32, values[lane])

    return store


def _extracted(parts: list[str], size: int, address: Read, *, is_whole: bool) -> Action:
    """Return what stores a part of a vector; what masks leave out is not known then."""
    place, vector = int(parts[0].lstrip("$"), 0), source_of(parts[1], 16)

    def store(machine: Machine) -> None:
        start = address(machine)
        if start is None:
            return
        values = vector(machine)[size * place : size * (place + 1)]
        for lane, value in enumerate(values):
            machine.store(start + 4 * lane, 32, value if is_whole else None)

    return store


def _result(mnemonic: str, parts: list[str], lanes: int) -> Source | None:
    """Return what computes the vector that an instruction writes; None if it is not known."""
    if mnemonic in _SCALARS and len(parts) == 2:
        return _from_scalar(parts[0], _SCALARS[mnemonic])
    if _MOVES.match(mnemonic) and len(parts) == 2:
        return source_of(parts[0], lanes)
    if _BROADCASTS.match(mnemonic) and len(parts) == 2:
        return _spread(mnemonic, parts[0], lanes)
    if mnemonic.startswith("vpinsr") and mnemonic[-1] in "dq" and len(parts) == 4:
        return _inserted(parts, 1 if mnemonic[-1] == "d" else 2)
    if found := _BITWISE.match(mnemonic):
        return _elementwise(_COMBINE[found[1]], parts, lanes, 1, is_same=found[1] == "xor")
    if found := _ARITHMETIC.match(mnemonic):
        size = 1 if found[2] == "d" else 2
        return _elementwise(_COMBINE[found[1]], parts, lanes, size, is_same=found[1] == "sub")
    if (found := _SHIFTS.match(mnemonic)) and parts[0].startswith("$"):
        return _shifted(found[1], parts, lanes, 1 if found[2] == "d" else 2)
    if mnemonic == "vpshufd" and len(parts) == 3:
        return _shuffled(parts, lanes)
    if _is_ones(mnemonic, parts):
        return lambda _: (_HALF,) * lanes
    if (found := _SPREAD_MASKS.match(mnemonic)) and len(parts) == 2:
        return _spread_mask(parts[0], lanes, _BITS[found[1]])
    if mnemonic.startswith("vpternlog") and len(parts) == 4:
        return _ternary(parts, lanes)
    if found := _WIDENINGS.match(mnemonic):
        return _widened(parts[0], lanes, is_signed=found[1] == "s")
    if (found := _INTERLEAVES.match(mnemonic)) and len(parts) == 3:
        return _interleaved(
            parts, lanes, is_high=found[1] == "h", size=2 if found[2] in ("qdq", "pd") else 1
        )
    if mnemonic in ("vpermq", "vpermpd") and len(parts) == 3 and parts[0].startswith("$"):
        return _permuted(parts, lanes)
    if mnemonic in ("vpblendd", "vblendps") and len(parts) == 4:
        return _blended(parts, lanes)
    if (found := _TABLES.match(mnemonic)) and len(parts) == 3:
        return _table(found[1], parts, lanes, _size(found[2]))
    if (found := _PERMUTATIONS.match(mnemonic)) and len(parts) == 3:
        return _by_index(parts, lanes, _size(found[1]))
    if (found := _QUARTERS.match(mnemonic)) and len(parts) == 4:
        return _quarters(parts, lanes, is_pair=found[1] == "perm2")
    if mnemonic == "vshufps" and len(parts) == 4:
        return _picked(parts, lanes)
    if mnemonic in ("vmovlhps", "vmovddup"):
        return _doubled(parts, lanes, is_pair=mnemonic == "vmovlhps")
    if found := _PIECES.match(mnemonic):
        return _piece(found[1], parts, _PIECE_LANES[found[2]], lanes)
    return move_source(mnemonic, parts, lanes)


def _from_scalar(text: str, size: int) -> Source:
    register = VECTOR.match(text)
    if register is not None:
        number = int(register[2])
        return lambda machine: machine.vectors[number][:size]
    read = reader(text, 32 * size)
    return lambda machine: split(read(machine), size)


def _spread(mnemonic: str, text: str, lanes: int) -> Source:
    size = next(n for end, n in _SPREAD_LANES if mnemonic.endswith(end))
    read = _from_scalar(text, size) if text in REGISTERS else source_of(text, size)
    return lambda machine: (read(machine)[:size] * lanes)[:lanes]


def _inserted(parts: list[str], size: int) -> Source:
    place = int(parts[0].lstrip("$"), 0)
    value, vector = _from_scalar(parts[1], size), source_of(parts[2], 4)

    def insert(machine: Machine) -> Lanes:
        lanes = vector(machine)[:4]
        return (*lanes[: size * place], *value(machine), *lanes[size * (place + 1) :])

    return insert


def _elementwise(
    combine: Callable[[int, int], int], parts: list[str], lanes: int, size: int, *, is_same: bool
) -> Source | None:
    if len(parts) != 3:
        return None
    if is_same and parts[0] == parts[1]:
        return lambda _: (0,) * lanes
    second, first = source_of(parts[0], lanes), source_of(parts[1], lanes)

    def compute(machine: Machine) -> Lanes:
        one, other = first(machine), second(machine)
        if size == 1:
            return tuple(
                None if a is None or b is None else combine(a, b) & _HALF
                for a, b in zip(one[:lanes], other[:lanes], strict=True)
            )
        found: list[Value] = []
        for lane in range(0, lanes, 2):
            a, b = joined(one[lane : lane + 2]), joined(other[lane : lane + 2])
            value = None if a is None or b is None else combine(a, b) & ((1 << 64) - 1)
            found += split(value, 2)
        return tuple(found)

    return compute


def _shifted(name: str, parts: list[str], lanes: int, size: int) -> Source:
    by, source, bits = int(parts[0].lstrip("$"), 0), source_of(parts[1], lanes), 32 * size
    mask = (1 << bits) - 1

    def shift(machine: Machine) -> Lanes:
        given, found = source(machine), list[Value]()
        for lane in range(0, lanes, size):
            value = joined(given[lane : lane + size])
            if value is not None:
                if name == "sra" and value >> (bits - 1):
                    value -= 1 << bits
                value = ((value << by) if name == "sll" else (value >> by)) & mask
            found += split(value, size)
        return tuple(found)

    return shift


def _shuffled(parts: list[str], lanes: int) -> Source:
    order, source = int(parts[0].lstrip("$"), 0), source_of(parts[1], lanes)
    places = [(order >> (2 * lane)) & 3 for lane in range(4)]

    def shuffle(machine: Machine) -> Lanes:
        given = source(machine)
        return tuple(given[first + place] for first in range(0, lanes, 4) for place in places)

    return shuffle


def _piece(direction: str, parts: list[str], size: int, lanes: int) -> Source | None:
    place = int(parts[0].lstrip("$"), 0)
    if direction == "extract" and len(parts) == 3:
        whole = source_of(parts[1], 16)
        return lambda machine: whole(machine)[size * place : size * (place + 1)]
    if len(parts) == 4:
        new, old = source_of(parts[1], size), source_of(parts[2], lanes)

        def insert(machine: Machine) -> Lanes:
            given = old(machine)
            return (
                *given[: size * place],
                *new(machine)[:size],
                *given[size * (place + 1) : lanes],
            )

        return insert
    return None


def _is_ones(mnemonic: str, parts: list[str]) -> bool:
    if mnemonic in ("vpcmpeqd", "vpcmpeqq", "vpcmpeqb", "vpcmpeqw") and len(parts) == 3:
        return parts[0] == parts[1]
    return mnemonic.startswith("vpternlog") and parts[0] == "$0xff"


def _spread_mask(text: str, lanes: int, bits: int) -> Source | None:
    found = _MASK.match(text)
    if found is None:
        return None
    number, ones = int(found[1]), (1 << bits) - 1

    def spread(machine: Machine) -> Lanes:
        value, known = machine.masks[number]
        return lanes_from(
            [
                (ones if value >> place & 1 else 0) if known >> place & 1 else None
                for place in range(32 * lanes // bits)
            ],
            bits,
        )

    return spread


def _ternary(parts: list[str], lanes: int) -> Source | None:
    """Combine three vectors bit by bit, by a table of eight bits."""
    table = int(parts[0].lstrip("$"), 0)
    third, second, first = (source_of(part, lanes) for part in parts[1:])

    def combine(machine: Machine) -> Lanes:
        found: list[Value] = []
        for a, b, c in zip(
            first(machine)[:lanes], second(machine)[:lanes], third(machine)[:lanes], strict=True
        ):
            if a is None or b is None or c is None:
                found.append(None)
                continue
            value = 0
            for row in range(8):
                if table >> row & 1:
                    value |= (
                        (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
                    )
            found.append(value & _HALF)
        return tuple(found)

    return combine


def _widened(text: str, lanes: int, *, is_signed: bool) -> Source:
    source = source_of(text, lanes // 2)

    def widen(machine: Machine) -> Lanes:
        found: list[Value] = []
        for value in source(machine)[: lanes // 2]:
            high = None if value is None else _HALF if is_signed and value >> 31 else 0
            found += (value, high)
        return tuple(found)

    return widen


def _interleaved(parts: list[str], lanes: int, *, is_high: bool, size: int) -> Source:
    second, first = source_of(parts[0], lanes), source_of(parts[1], lanes)
    half = 2 // size
    places = range(half if is_high else 0, 2 * half if is_high else half)

    def interleave(machine: Machine) -> Lanes:
        one, other, found = first(machine), second(machine), list[Value]()
        for start in range(0, lanes, 4):
            for place in places:
                begin = start + size * place
                found += (*one[begin : begin + size], *other[begin : begin + size])
        return tuple(found)

    return interleave


def _permuted(parts: list[str], lanes: int) -> Source:
    order, source = int(parts[0].lstrip("$"), 0), source_of(parts[1], lanes)
    places = [2 * ((order >> (2 * place)) & 3) for place in range(4)]

    def permute(machine: Machine) -> Lanes:
        given = source(machine)
        return tuple(
            given[start + place + half]
            for start in range(0, lanes, 8)
            for place in places
            for half in (0, 1)
        )

    return permute


def _blended(parts: list[str], lanes: int) -> Source:
    chosen = int(parts[0].lstrip("$"), 0)
    second, first = source_of(parts[1], lanes), source_of(parts[2], lanes)

    def blend(machine: Machine) -> Lanes:
        one, other = first(machine), second(machine)
        return tuple((other if (chosen >> (lane % 8)) & 1 else one)[lane] for lane in range(lanes))

    return blend


def _size(suffix: str) -> int:
    return 1 if suffix in ("d", "ps") else 2


def _chosen(index: Lanes, table: Lanes, lanes: int, size: int) -> Lanes:
    """Return elements of a table by the indices of the lanes."""
    found: list[Value] = []
    number = len(table) // size
    for lane in range(0, lanes, size):
        place = index[lane]
        start = None if place is None else size * (place % number)
        found += UNKNOWN_LANES[:size] if start is None else table[start : start + size]
    return tuple(found)


def _table(which: str, parts: list[str], lanes: int, size: int) -> Source:
    """Permute two vectors; of ``t`` the target is the first of them, of ``i`` the index."""
    second = source_of(parts[0], lanes)
    middle, target = source_of(parts[1], lanes), source_of(parts[2], lanes)

    def permute(machine: Machine) -> Lanes:
        index, first = (middle, target) if which == "t" else (target, middle)
        table = (*first(machine)[:lanes], *second(machine)[:lanes])
        return _chosen(index(machine), table, lanes, size)

    return permute


def _by_index(parts: list[str], lanes: int, size: int) -> Source:
    table, index = source_of(parts[0], lanes), source_of(parts[1], lanes)
    return lambda machine: _chosen(index(machine), table(machine)[:lanes], lanes, size)


def _quarters(parts: list[str], lanes: int, *, is_pair: bool) -> Source:
    """Put together pieces of 128 bits of two vectors."""
    order = int(parts[0].lstrip("$"), 0)
    second, first = source_of(parts[1], lanes), source_of(parts[2], lanes)

    def put(machine: Machine) -> Lanes:
        one, other = first(machine)[:lanes], second(machine)[:lanes]
        if is_pair:
            table = (*one, *other)
            halves = [(order >> shift) & 0xF for shift in (0, 4)]
            pieces = [(0,) * 4 if h & 8 else table[4 * (h & 3) : 4 * (h & 3) + 4] for h in halves]
        else:
            number = lanes // 4
            bits = number.bit_length() - 1
            places = [(order >> (bits * piece)) & (number - 1) for piece in range(number)]
            pieces = [
                (one if piece < number // 2 else other)[4 * place : 4 * place + 4]
                for piece, place in enumerate(places)
            ]
        return tuple(lane for piece in pieces for lane in piece)

    return put


def _picked(parts: list[str], lanes: int) -> Source:
    order = int(parts[0].lstrip("$"), 0)
    second, first = source_of(parts[1], lanes), source_of(parts[2], lanes)
    places = [(order >> (2 * lane)) & 3 for lane in range(4)]

    def pick(machine: Machine) -> Lanes:
        one, other = first(machine), second(machine)
        return tuple(
            (one if lane < 2 else other)[start + place]
            for start in range(0, lanes, 4)
            for lane, place in enumerate(places)
        )

    return pick


def _doubled(parts: list[str], lanes: int, *, is_pair: bool) -> Source:
    second, first = source_of(parts[0], lanes), source_of(parts[-2], lanes)

    def double(machine: Machine) -> Lanes:
        if is_pair:
            return (*first(machine)[:2], *second(machine)[:2])
        given = second(machine)
        return tuple(given[start + half] for start in range(0, lanes, 4) for half in (0, 1, 0, 1))

    return double
