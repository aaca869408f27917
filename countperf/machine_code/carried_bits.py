"""Integer instructions with two results, with carries, and those that move or find single bits.

They complete the rules of `countperf.machine_code.integer_unit`: compilers guard loops with them
(overflow of products, borrows) and count in them.

Source of the instructions: Intel, "Intel 64 and IA-32 Architectures Software Developer's Manual",
volume 2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from countperf.machine_code.conditions import condition_of
from countperf.machine_code.integer_operands import (
    Action,
    operands_of,
    reader,
    signed,
    width_of,
    writer,
)
from countperf.machine_code.machine_state import REGISTERS, STACK_POINTER, Flags, Machine, Value

_SIZES = {"b": 8, "w": 16, "l": 32, "q": 64}
_carry = condition_of("b")


def _first_bit(value: int, bits: int) -> Value:
    del bits
    return (value & -value).bit_length() - 1 if value else None


def _last_bit(value: int, bits: int) -> Value:
    del bits
    return value.bit_length() - 1 if value else None


def _extracted(control: int, value: int, bits: int) -> int:
    del bits
    return value >> (control & 0xFF) & ((1 << (control >> 8 & 0xFF)) - 1)


def _gathered(value: int, mask: int) -> int:
    """Return the bits of a value that a mask names, side by side."""
    found = place = 0
    while mask:
        lowest = mask & -mask
        found |= bool(value & lowest) << place
        place, mask = place + 1, mask ^ lowest
    return found


def _spread(value: int, mask: int) -> int:
    """Return the lowest bits of a value at the places that a mask names."""
    found = 0
    while mask:
        lowest = mask & -mask
        found |= lowest if value & 1 else 0
        value, mask = value >> 1, mask ^ lowest
    return found


_FOUND: Mapping[str, Callable[[int, int], Value]] = {
    "bsf": _first_bit,
    "bsr": _last_bit,
    "blsmsk": lambda value, bits: (value ^ (value - 1)) & ((1 << bits) - 1),
}
_OF_TWO: Mapping[str, Callable[[int, int, int], int]] = {
    # operands as written: the first, the second, bits
    "bextr": _extracted,
    "pext": lambda mask, value, _bits: _gathered(value, mask),
    "pdep": lambda mask, value, _bits: _spread(value, mask),
}
_BIT_CHANGES: Mapping[str, Callable[[int, int], int]] = {
    "bts": lambda value, bit: value | bit,
    "btr": lambda value, bit: value & ~bit,
    "btc": lambda value, bit: value ^ bit,
}
_WIDENED = {
    "cbtw": ("%al", "%ax", 8),
    "cwtl": ("%ax", "%eax", 16),
    "cbw": ("%al", "%ax", 8),
    "cwde": ("%ax", "%eax", 16),
}
_STRING = re.compile(r"^(?:stos|movs|lods|scas|cmps)[bwlq]?$")
_STRING_PLACE = re.compile(r"%[de]s:\(%r[sd]i\)")
_STRING_REGISTERS = tuple(REGISTERS[name].number for name in ("%rcx", "%rsi", "%rdi"))


def carried_action(mnemonic: str, operands: str) -> Action | None:
    """Return what an instruction does that this module has a rule for; else None."""
    parts = operands_of(operands)
    if mnemonic in _WIDENED:
        return _widen(*_WIDENED[mnemonic])
    if mnemonic.rstrip("q") == "leave":
        return _leave
    if not parts or any("mm" in part for part in parts):
        return None
    name, known = mnemonic, (*_FOUND, *_OF_TWO, *_BIT_CHANGES, *_RULES)
    if name not in known and name[-1] in _SIZES:
        name = name[:-1]
    bits = width_of(mnemonic, parts)
    if name in _FOUND and len(parts) == 2:
        return _found(name, parts, bits)
    if name in _OF_TWO and len(parts) == 3:
        return _of_two(name, parts, bits)
    if name in _BIT_CHANGES and len(parts) == 2 and parts[1] in REGISTERS:
        return _changed(name, parts, bits)
    if name in _RULES:
        rule, number = _RULES[name]
        return rule(parts, bits) if len(parts) == number else None
    if _STRING.match(mnemonic) and _STRING_PLACE.search(operands):
        return _forget_string
    return None


def _widen(source: str, target: str, bits: int) -> Action:
    read, write = reader(source, bits), writer(target, 2 * bits)
    mask = (1 << 2 * bits) - 1

    def widen(machine: Machine) -> None:
        value = read(machine)
        write(machine, None if value is None else signed(value, bits) & mask)

    return widen


def _leave(machine: Machine) -> None:
    frame = REGISTERS["%rbp"].number
    top = machine.registers[frame]
    if top is not None:
        machine.registers[STACK_POINTER] = top + 8
        machine.registers[frame] = machine.load(top, 64)


def _forget_string(machine: Machine) -> None:
    for number in _STRING_REGISTERS:
        machine.registers[number] = machine.low[number] = None


def _found(name: str, parts: list[str], bits: int) -> Action:
    compute, read, write = _FOUND[name], reader(parts[0], bits), writer(parts[1], bits)

    def find(machine: Machine) -> None:
        value = read(machine)
        machine.flags = None
        if value is None:
            write(machine, None)
            return
        result = compute(value, bits)
        # bsf and bsr set the zero flag by what they read
        shown = value if name.startswith("bs") else result or 0
        machine.flags = Flags("exact", int(name == "blsmsk" and not value), 0, shown, bits)
        write(machine, result)

    return find


def _of_two(name: str, parts: list[str], bits: int) -> Action:
    compute = _OF_TWO[name]
    first, second, write = (
        reader(parts[0], bits),
        reader(parts[1], bits),
        writer(parts[2], bits),
    )

    def operate(machine: Machine) -> None:
        one, other = first(machine), second(machine)
        result = None if one is None or other is None else compute(one, other, bits)
        write(machine, result)
        if name == "bextr":
            machine.flags = None if result is None else Flags("exact", 0, 0, result, bits)

    return operate


def _changed(name: str, parts: list[str], bits: int) -> Action:
    """Change one bit; other flags than the carry are taken for those of a result of 1."""
    compute = _BIT_CHANGES[name]
    place, read, write = reader(parts[0], bits), reader(parts[1], bits), writer(parts[1], bits)

    def change(machine: Machine) -> None:
        number, value = place(machine), read(machine)
        machine.flags = None
        if number is None or value is None:
            write(machine, None)
            return
        bit = 1 << number % bits
        write(machine, compute(value, bit))
        machine.flags = Flags("exact", int(bool(value & bit)), 0, 1, bits)

    return change


def _with_carry(parts: list[str], bits: int, *, adds: bool) -> Action:
    read, keep, write = reader(parts[0], bits), reader(parts[1], bits), writer(parts[1], bits)
    whole, is_same = 1 << bits, parts[0] == parts[1]

    def operate(machine: Machine) -> None:
        assert _carry is not None
        carry, second, first = _carry(machine), read(machine), keep(machine)
        machine.flags = None
        if is_same and not adds:
            first = second = 0
        if carry is None or first is None or second is None:
            write(machine, None)
            return
        other = second + carry if adds else -second - carry
        result = (first + other) % whole
        exact = signed(first, bits) + (
            signed(second, bits) + carry if adds else -signed(second, bits) - carry
        )
        overflows = not -(whole >> 1) <= exact < whole >> 1
        carries = not 0 <= first + other < whole
        write(machine, result)
        machine.flags = Flags("exact", int(carries), int(overflows), result, bits)

    return operate


def _exchange(parts: list[str], bits: int) -> Action:
    reads = [reader(part, bits) for part in parts]
    writes = [writer(part, bits) for part in parts]

    def exchange(machine: Machine) -> None:
        first, second = reads[0](machine), reads[1](machine)
        writes[0](machine, second)
        writes[1](machine, first)

    return exchange


def _exchange_add(parts: list[str], bits: int) -> Action:
    reads = [reader(part, bits) for part in parts]
    writes = [writer(part, bits) for part in parts]
    mask = (1 << bits) - 1

    def operate(machine: Machine) -> None:
        first, second = reads[0](machine), reads[1](machine)
        writes[0](machine, second)
        result = None if first is None or second is None else (first + second) & mask
        writes[1](machine, result)
        machine.flags = None
        if first is not None and second is not None and result is not None:
            machine.flags = Flags("add", second, first, result, bits)

    return operate


def _product(parts: list[str], bits: int) -> Action:
    """Multiply by ``rdx``; the high half goes to the last operand, flags stay."""
    read, other = reader(parts[0], bits), reader("%rdx", bits)
    low, high, mask = writer(parts[1], bits), writer(parts[2], bits), (1 << bits) - 1

    def operate(machine: Machine) -> None:
        one, two = read(machine), other(machine)
        product = None if one is None or two is None else one * two
        low(machine, None if product is None else product & mask)
        high(machine, None if product is None else product >> bits)

    return operate


def _double_shift(parts: list[str], bits: int, *, to_left: bool) -> Action:
    count = reader(parts[0], 8)
    source, read, write = reader(parts[1], bits), reader(parts[2], bits), writer(parts[2], bits)
    mask = (1 << bits) - 1

    def shift(machine: Machine) -> None:
        by, other, value = count(machine), source(machine), read(machine)
        if by is not None:
            by &= bits - 1
        if by == 0:
            write(machine, value)
            return
        machine.flags = None
        if by is None or other is None or value is None:
            write(machine, None)
            return
        if to_left:
            result, carry = (value << by | other >> (bits - by)) & mask, value >> (bits - by) & 1
        else:
            result, carry = (value >> by | other << (bits - by)) & mask, value >> (by - 1) & 1
        write(machine, result)
        machine.flags = Flags("exact", carry, (result ^ value) >> (bits - 1), result, bits)

    return shift


def _swap(parts: list[str], bits: int) -> Action:
    read, write = reader(parts[0], bits), writer(parts[0], bits)

    def swap(machine: Machine) -> None:
        value = read(machine)
        if value is not None:
            value = int.from_bytes(value.to_bytes(bits // 8, "little"), "big")
        write(machine, value)

    return swap


_Rule = Callable[[list[str], int], Action]
_RULES: Mapping[str, tuple[_Rule, int]] = {
    "adc": (lambda parts, bits: _with_carry(parts, bits, adds=True), 2),
    "sbb": (lambda parts, bits: _with_carry(parts, bits, adds=False), 2),
    "xchg": (_exchange, 2),
    "xadd": (_exchange_add, 2),
    "mulx": (_product, 3),
    "shld": (lambda parts, bits: _double_shift(parts, bits, to_left=True), 3),
    "shrd": (lambda parts, bits: _double_shift(parts, bits, to_left=False), 3),
    "bswap": (_swap, 1),
}
"""Rules by mnemonic, and how many operands they take."""
