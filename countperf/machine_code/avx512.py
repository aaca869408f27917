"""Integers in vector registers, where compilers keep loop counters, too.

Values are those of `countperf.machine_code.integer_unit`; floating-point results, and what has no
rule here, are unknown. A vector has 16 lanes of 32 bits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from countperf.machine_code.avx2 import (
    element_source,
    element_test,
    is_element_test,
    masked_store,
)
from countperf.machine_code.gather_scatter import lanes_of
from countperf.machine_code.integer_operands import (
    Action,
    Read,
    address_of,
    operands_of,
    reader,
    writer,
)
from countperf.machine_code.lane_moves import PIECE_LANES, PIECES, masked_move, move_source
from countperf.machine_code.machine_state import (
    REGISTERS,
    UNKNOWN_LANES,
    Lanes,
    Machine,
    Value,
)
from countperf.machine_code.mask_registers import (
    ALL_KNOWN,
    MASK,
    SPREAD_MASKS,
    WRITTEN_UNDER,
    mask_action,
    spread_mask,
)
from countperf.machine_code.vector_registers import LANES, VECTOR, Source, joined, source_of, split

_HALF = (1 << 32) - 1
_MOVES = re.compile(r"^v?mov(?:dq[au]\d*|[au]p[sd]|ntdq|ntp[sd])$")
_SCALARS = {"vmovd": 1, "movd": 1, "vmovss": 1, "movss": 1, "vmovq": 2, "movq": 2, "vmovsd": 2}
_BITWISE = re.compile(r"^vp?(and|or|xor|andn)(?:[dq]|p[sd])?$")
_BROADCASTS = re.compile(r"^vp?broadcast(?:[dq]|s[sd]|i32x[248]|i64x[24]|f\w+|i128)$")
_SPREAD_LANES = (
    *(("sd", 2), ("ss", 1), ("d", 1), ("q", 2), ("32x2", 2), ("32x8", 8), ("64x4", 8), ("", 4)),
)
"""Lanes that a broadcast repeats, by the end of its name."""

_COMBINE: Mapping[str, Callable[[int, int], int]] = {
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


_BITS = {"b": 8, "w": 16, "d": 32, "q": 64}


def packed_action(mnemonic: str, operands: str) -> Action | None:
    """Return what an instruction with vectors does to integers; None if nothing."""
    parts = operands_of(operands)
    if not parts:
        return None
    if mnemonic[0] == "k" or MASK.match(parts[-1]):
        return mask_action(mnemonic, parts)
    special = element_test(mnemonic, operands) or masked_store(mnemonic, operands)
    if special is not None:
        return special
    under = WRITTEN_UNDER.search(operands)
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
    if source is None and (under is None or _MASKABLE.match(mnemonic)):
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
_MASKABLE = re.compile(r"^vp(?:add|sub|mul|min|max|sll|srl|sra|abs|mov[sz]x)\w*[dq]$")
"""Instructions on elements of 32 and 64 bits, each of which a bit of a mask stands for."""


def _gathered(mnemonic: str, operands: str, number: int, mask: int) -> Action:
    lanes = lanes_of(mnemonic, operands)
    if not mnemonic.startswith("vp") or lanes is None:

        def forget(machine: Machine) -> None:
            machine.vectors[number] = UNKNOWN_LANES
            machine.masks[mask] = (0, ALL_KNOWN)  # when all is gathered

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
        machine.masks[mask] = (0, ALL_KNOWN)

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
        machine.masks[mask] = (0, ALL_KNOWN)

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
    if address is not None and (found := PIECES.match(mnemonic)):
        return _extracted(parts, PIECE_LANES[found[2]], address, is_whole=mask is None)
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
        bits, known = (ALL_KNOWN, ALL_KNOWN) if mask is None else machine.masks[mask]
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
    if (found := _BITWISE.match(mnemonic)) and len(parts) == 3:
        return _bitwise(found[1], parts, lanes)
    if _is_ones(mnemonic, parts):
        return lambda _: (_HALF,) * lanes
    if (found := SPREAD_MASKS.match(mnemonic)) and len(parts) == 2:
        return spread_mask(parts[0], lanes, _BITS[found[1]])
    if mnemonic.startswith("vpternlog") and len(parts) == 4:
        return _ternary(parts, lanes)
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


def _bitwise(name: str, parts: list[str], lanes: int) -> Source:
    if name == "xor" and parts[0] == parts[1]:
        return lambda _: (0,) * lanes
    second, first = source_of(parts[0], lanes), source_of(parts[1], lanes)
    combine = _COMBINE[name]

    def compute(machine: Machine) -> Lanes:
        return tuple(
            None if a is None or b is None else combine(a, b) & _HALF
            for a, b in zip(first(machine)[:lanes], second(machine)[:lanes], strict=True)
        )

    return compute


def _is_ones(mnemonic: str, parts: list[str]) -> bool:
    if mnemonic in ("vpcmpeqd", "vpcmpeqq", "vpcmpeqb", "vpcmpeqw") and len(parts) == 3:
        return parts[0] == parts[1]
    return mnemonic.startswith("vpternlog") and parts[0] == "$0xff"


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
