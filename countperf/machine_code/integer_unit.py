"""Integer instructions of an x86-64 processor, as far as control flow needs them.

Values are unsigned integers of 64 bits, or None where they are not known: they come from the data
of a kernel, from vectors, or from an instruction that has no rule here. What an instruction makes
of unknown values is unknown.

Source of the instructions: Intel, "Intel 64 and IA-32 Architectures Software Developer's Manual",
volume 2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from countperf.machine_code.conditions import condition_of
from countperf.machine_code.integer_operands import (
    Action,
    address_of,
    operands_of,
    reader,
    signed,
    width_of,
    writer,
)
from countperf.machine_code.machine_state import REGISTERS, STACK_POINTER, Flags, Machine, Value

_PIECE = 32
_HALF = (1 << _PIECE) - 1
_BITS = {"b": 8, "w": 16, "l": 32, "q": 64}
_BINARY: Mapping[str, tuple[str, Callable[[int, int, int], int]]] = {
    "add": ("add", lambda a, b, _bits: a + b),
    "sub": ("sub", lambda a, b, _bits: a - b),
    "and": ("logic", lambda a, b, _bits: a & b),
    "or": ("logic", lambda a, b, _bits: a | b),
    "xor": ("logic", lambda a, b, _bits: a ^ b),
    "shl": ("logic", lambda a, b, bits: a << (b & (63 if bits == 64 else 31))),
    "sal": ("logic", lambda a, b, bits: a << (b & (63 if bits == 64 else 31))),
    "shr": ("logic", lambda a, b, bits: a >> (b & (63 if bits == 64 else 31))),
    "sar": ("logic", lambda a, b, bits: signed(a, bits) >> (b & (63 if bits == 64 else 31))),
    "rol": ("logic", lambda a, b, bits: a << (b % bits) | a >> (-b % bits)),
    "ror": ("logic", lambda a, b, bits: a >> (b % bits) | a << (-b % bits)),
}
_SHIFTS = ("shl", "sal", "shr", "sar", "rol", "ror")
_UNARY: Mapping[str, Callable[[int], tuple[str, int, int]]] = {
    "inc": lambda a: ("add", a, 1),
    "dec": lambda a: ("sub", a, 1),
    "neg": lambda a: ("sub", 0, a),
}
_THREE: Mapping[str, Callable[[int, int, int], int]] = {
    # operands as written: the first, the second, bits
    "shlx": lambda count, a, bits: a << (count & (bits - 1)),
    "shrx": lambda count, a, bits: a >> (count & (bits - 1)),
    "sarx": lambda count, a, bits: signed(a, bits) >> (count & (bits - 1)),
    "rorx": lambda count, a, bits: a >> (count % bits) | a << (-count % bits),
    "andn": lambda a, b, _bits: a & ~b,
    "bzhi": lambda index, a, bits: a & ((1 << min(index & 0xFF, bits)) - 1),
    "imul": lambda a, b, _bits: a * b,
}
_BIT_COUNTS: Mapping[str, Callable[[int, int], int]] = {
    "tzcnt": lambda a, bits: (a & -a).bit_length() - 1 if a else bits,
    "lzcnt": lambda a, bits: bits - a.bit_length(),
    "popcnt": lambda a, _bits: a.bit_count(),
    "blsr": lambda a, _bits: a & (a - 1) if a else 0,
    "blsi": lambda a, _bits: a & -a,
}
_PAIRS = ("mul", "imul", "div", "idiv")
_WIDENING = re.compile(r"^mov([sz])([bwl])([wlq])$")
_MOVE = re.compile(r"^mov(?:abs)?[bwlq]?$")
_NOTHING = re.compile(r"^(?:nop|endbr|prefetch|[lms]fence|vzero|data16)")
_KEEPS_FLAGS = re.compile(
    r"^(?:mov|lea|push|pop|call|ret|leave|nop|endbr|set|cmov|j|prefetch|v|k|shlx|shrx|sarx|rorx|mulx"
    r"|bswap|xchg|cqt|clt|cwt|cqo|cdq|not|vzero|data16|lfence|mfence|sfence|cbw|cwde)"
)
SETS_UNKNOWN_FLAGS = re.compile(r"^v?u?comis[sd]")
_TESTS_VECTORS = re.compile(r"^(?:k(?:or)?test|v?ptest$|vtestp)")


def action_of(mnemonic: str, operands: str) -> Action | None:
    """Return what an instruction does to the state; None if nothing.

    Branches and calls are left to whoever follows the control flow.
    """
    parts = operands_of(operands)
    if SETS_UNKNOWN_FLAGS.match(mnemonic) or _TESTS_VECTORS.match(mnemonic):
        return _forget_flags
    if mnemonic[0] in "vk" or "mm" in operands:
        return _from_vector(parts)
    if _NOTHING.match(mnemonic) or (mnemonic.startswith("xchg") and len(set(parts)) == 1):
        return None
    special = _special(mnemonic, parts)
    if special is not None:
        return special
    name = mnemonic
    plain = (_BINARY, _UNARY, _THREE, _BIT_COUNTS, _PAIRS)
    if not any(name in each for each in plain) and name != "bt" and name[-1] in _BITS:
        name = mnemonic[:-1]
    bits = width_of(mnemonic, parts[-1:] if name in _SHIFTS else parts)
    if len(parts) == 3 and name in _THREE:
        return _three(name, parts, bits)
    if name == "imul" and len(parts) == 2:
        return _three(name, [*parts, parts[1]], bits)
    if name in _BINARY and parts:
        return _binary(name, parts if len(parts) == 2 else ["$1", *parts], bits)
    if name in ("cmp", "test") and len(parts) == 2:
        return _comparison(name, parts, bits)
    if name in _BIT_COUNTS and len(parts) == 2:
        return _bit_count(name, parts, bits)
    if name == "bt" and len(parts) == 2 and "(" not in parts[1]:
        return _bit_test(parts, bits)
    if name in _UNARY and len(parts) == 1:
        return _unary(name, parts[0], bits)
    if name == "not" and len(parts) == 1:
        return _not(parts[0], bits)
    if name in _PAIRS and len(parts) == 1:
        return _pair(name, parts[0], bits)
    return _forget(parts, keeps_flags=_KEEPS_FLAGS.match(mnemonic) is not None)


def _special(mnemonic: str, parts: list[str]) -> Action | None:
    """Return what moves, widens, computes addresses, pushes or depends on conditions."""
    widening = _WIDENING.match(mnemonic)
    if widening:
        low, high = _BITS[widening[2]], _BITS[widening[3]]
        return _move(parts, low, high, is_signed=widening[1] == "s")
    if _MOVE.match(mnemonic) and len(parts) == 2:
        bits = width_of(mnemonic, parts)
        return _move(parts, bits, bits)
    if mnemonic in ("cltq", "cdqe"):
        return _move(["%eax", "%rax"], 32, 64, is_signed=True)
    if mnemonic in ("cltd", "cqto"):
        bits = 32 if mnemonic == "cltd" else 64
        return _sign(bits)
    if mnemonic.startswith("lea") and mnemonic != "leave" and len(parts) == 2:
        return _lea(parts)
    if mnemonic.startswith("push") and parts:
        return _push(parts[0])
    if mnemonic.startswith("pop") and mnemonic[3:] in ("", "q") and parts:
        return _pop(parts[0])
    if mnemonic.startswith("cmov") and len(parts) == 2:
        return _conditional(mnemonic.removeprefix("cmov"), parts)
    if mnemonic.startswith("set") and parts:
        return _set(mnemonic.removeprefix("set"), parts[0])
    return None


def _forget_flags(machine: Machine) -> None:
    machine.flags = None


def _from_vector(parts: list[str]) -> Action | None:
    if not parts:
        return None
    target = parts[-1]
    if target in REGISTERS:
        write = writer(target, max(32, REGISTERS[target].bits))
        return lambda machine: write(machine, None)
    return None


def _move(parts: list[str], low: int, high: int, *, is_signed: bool = False) -> Action:
    read, write = reader(parts[0], low), writer(parts[1], high)
    if not is_signed or low == high:
        source, target = REGISTERS.get(parts[0]), REGISTERS.get(parts[1])
        if source is None or target is None or low < 32:
            return lambda machine: write(machine, read(machine))

        def copy(machine: Machine) -> None:
            value, part = read(machine), machine.low[source.number]
            write(machine, value)
            machine.low[target.number] = part if value is None else None

        return copy
    mask = (1 << high) - 1

    def widen(machine: Machine) -> None:
        value = read(machine)
        write(machine, None if value is None else signed(value, low) & mask)

    return widen


def _sign(bits: int) -> Action:
    read = reader("%rax", bits)
    write = writer("%rdx", bits)

    def extend(machine: Machine) -> None:
        value = read(machine)
        write(machine, None if value is None else (-(value >> (bits - 1))) & ((1 << bits) - 1))

    return extend


def _lea(parts: list[str]) -> Action:
    address = address_of(parts[0])
    bits = REGISTERS[parts[1]].bits if parts[1] in REGISTERS else 64
    write, mask = writer(parts[1], bits), (1 << bits) - 1
    if address is None:
        return lambda machine: write(machine, None)

    def compute(machine: Machine) -> None:
        value = address(machine)
        write(machine, None if value is None else value & mask)

    return compute


def _push(text: str) -> Action:
    read = reader(text, 64)

    def push(machine: Machine) -> None:
        value, top = read(machine), machine.registers[STACK_POINTER]
        if top is not None:
            machine.registers[STACK_POINTER] = top - 8
            machine.store(top - 8, 64, value)

    return push


def _pop(text: str) -> Action:
    write = writer(text, 64)

    def pop(machine: Machine) -> None:
        top = machine.registers[STACK_POINTER]
        if top is not None:
            write(machine, machine.load(top, 64))
            machine.registers[STACK_POINTER] = top + 8

    return pop


def _conditional(suffix: str, parts: list[str]) -> Action:
    decide = condition_of(suffix)
    if decide is None and suffix[-1:] in _BITS:
        decide = condition_of(suffix[:-1])
    bits = width_of("", parts)
    read, keep, write = reader(parts[0], bits), reader(parts[1], bits), writer(parts[1], bits)

    def move(machine: Machine) -> None:
        is_so = None if decide is None else decide(machine)
        new, old = read(machine), keep(machine)
        if is_so is None:
            write(machine, new if new == old else None)
        else:
            write(machine, new if is_so else old)

    return move


def _set(suffix: str, text: str) -> Action:
    decide = condition_of(suffix)
    write = writer(text, 8)

    def put(machine: Machine) -> None:
        is_so = None if decide is None else decide(machine)
        write(machine, None if is_so is None else int(is_so))

    return put


def _binary(name: str, parts: list[str], bits: int) -> Action:
    kind, compute = _BINARY[name]
    read = reader(parts[0], 8 if name in _SHIFTS else bits)
    keep, write = reader(parts[1], bits), writer(parts[1], bits)
    mask, shifts = (1 << bits) - 1, name in _SHIFTS
    is_zero = name in ("xor", "sub") and parts[0] == parts[1]

    def operate(machine: Machine) -> None:
        if is_zero:
            write(machine, 0)
            machine.flags = Flags(kind, 0, 0, 0, bits)
            return
        second, first = read(machine), keep(machine)
        if first is None and name == "and":
            first = _low_part(machine, parts[1], second)
        if first is None or second is None:
            write(machine, None)
            machine.flags = None
            return
        result = compute(first, second, bits) & mask
        write(machine, result)
        if shifts:
            machine.flags = _flags_of_shift(name, machine.flags, first, second, result, bits)
        else:
            machine.flags = Flags(kind, first, second, result, bits)

    return operate


def _flags_of_shift(
    name: str, before: Flags | None, value: int, count: int, result: int, bits: int
) -> Flags | None:
    """Return the flags that a shift leaves: those of before if it shifts by nothing.

    Rotations leave all flags but carry and overflow as they were: what they leave is not known.
    """
    count &= 63 if bits == 64 else 31
    if not count:
        return before
    if name in ("rol", "ror"):
        return None
    top = bits - 1
    if name in ("shl", "sal"):
        carry = value >> (bits - count) & 1 if count <= bits else 0
        overflow = result >> top ^ carry
    elif name == "shr":
        carry, overflow = value >> (count - 1) & 1, value >> top
    else:
        carry, overflow = signed(value, bits) >> (count - 1) & 1, 0
    return Flags("exact", carry, overflow, result, bits)


def _low_part(machine: Machine, text: str, mask: Value) -> Value:
    """Return the low bits of a register of which no more is known, if a mask leaves no others."""
    register = REGISTERS.get(text)
    if register is None or mask is None or mask > 0xFF or register.shift:
        return None
    return machine.low[register.number]


def _three(name: str, parts: list[str], bits: int) -> Action:
    compute, mask = _THREE[name], (1 << bits) - 1
    first, second, write = (
        reader(parts[0], bits),
        reader(parts[1], bits),
        writer(parts[2], bits),
    )
    sets_flags, is_product, top = name in ("andn", "bzhi", "imul"), name == "imul", 1 << bits - 1

    def operate(machine: Machine) -> None:
        one, other = first(machine), second(machine)
        result = None if one is None or other is None else compute(one, other, bits) & mask
        write(machine, result)
        if sets_flags:
            overflows = 0
            if is_product and one is not None and other is not None:
                exact = signed(one, bits) * signed(other, bits)
                overflows = int(not -top <= exact < top)
            machine.flags = (
                None if result is None else Flags("exact", overflows, overflows, result, bits)
            )

    return operate


def _comparison(name: str, parts: list[str], bits: int) -> Action:
    second, first = reader(parts[0], bits), reader(parts[1], bits)
    mask = (1 << bits) - 1

    def compare(machine: Machine) -> None:
        one, other = first(machine), second(machine)
        if one is None and name == "test":
            one = _low_part(machine, parts[1], other)
        if one is None or other is None:
            machine.flags = None
        elif name == "cmp":
            machine.flags = Flags("sub", one, other, (one - other) & mask, bits)
        else:
            machine.flags = Flags("logic", one, other, one & other, bits)

    return compare


def _bit_count(name: str, parts: list[str], bits: int) -> Action:
    compute, read, write = _BIT_COUNTS[name], reader(parts[0], bits), writer(parts[1], bits)

    def operate(machine: Machine) -> None:
        value = read(machine)
        machine.flags = None
        if value is None:
            write(machine, None)
            return
        result = compute(value, bits)
        write(machine, result)
        carries = name != "popcnt" and (value == 0) != (name == "blsi")
        machine.flags = Flags("mask", int(not carries), int(carries), result, bits)

    return operate


def _bit_test(parts: list[str], bits: int) -> Action:
    """Set the carry; other flags, which stay as they were, are taken for those of a result of 1."""
    read_place = reader(parts[0], bits if parts[0] in REGISTERS else 8)
    read = reader(parts[1], bits)

    def test(machine: Machine) -> None:
        place, value = read_place(machine), read(machine)
        machine.flags = None
        if place is not None and value is not None:
            carry = value >> (place % bits) & 1
            machine.flags = Flags("mask", 1 - carry, carry, 1, bits)

    return test


def _unary(name: str, text: str, bits: int) -> Action:
    compute, mask = _UNARY[name], (1 << bits) - 1
    read, write = reader(text, bits), writer(text, bits)

    def operate(machine: Machine) -> None:
        value = read(machine)
        if value is None:
            write(machine, None)
            machine.flags = None
            return
        kind, first, second = compute(value)
        result = (first + second if kind == "add" else first - second) & mask
        write(machine, result)
        machine.flags = Flags(kind, first, second, result, bits)

    return operate


def _not(text: str, bits: int) -> Action:
    read, write, mask = reader(text, bits), writer(text, bits), (1 << bits) - 1

    def operate(machine: Machine) -> None:
        value = read(machine)
        write(machine, None if value is None else ~value & mask)

    return operate


def _pair(name: str, text: str, bits: int) -> Action:
    """Products and quotients of which one operand is in two registers."""
    read, low, high = reader(text, bits), reader("%rax", bits), reader("%rdx", bits)
    write_low, write_high = writer("%rax", bits), writer("%rdx", bits)
    mask = (1 << bits) - 1
    is_signed = name.startswith("i")
    lowest, highest = (-(1 << bits - 1), mask >> 1) if is_signed else (0, mask)

    def operate(machine: Machine) -> None:
        operand, first, second = read(machine), low(machine), high(machine)
        machine.flags = None
        results: tuple[Value, Value] = (None, None)
        if operand is not None and first is not None:
            if name.endswith("mul"):
                one, other = (signed(v, bits) if is_signed else v for v in (operand, first))
                product = one * other
                results = (product, product >> bits)
                overflows = int(not lowest <= product <= highest)
                machine.flags = Flags("exact", overflows, overflows, product & mask, bits)
            elif second is not None and operand:
                whole = second << bits | first
                whole = signed(whole, 2 * bits) if is_signed else whole
                by = signed(operand, bits) if is_signed else operand
                quotient = abs(whole) // abs(by) * (1 if (whole < 0) == (by < 0) else -1)
                results = (quotient, whole - quotient * by)
        write_low(machine, None if results[0] is None else results[0] & mask)
        write_high(machine, None if results[1] is None else results[1] & mask)

    return operate


def _forget(parts: list[str], *, keeps_flags: bool) -> Action | None:
    """Return what makes the results unknown of an instruction that has no rule."""
    known = [REGISTERS[part] for part in parts[-1:] if part in REGISTERS]
    writes = [writer(parts[-1], register.bits) for register in known]
    if not writes and keeps_flags:
        return None

    def forget(machine: Machine) -> None:
        for write in writes:
            write(machine, None)
        if not keeps_flags:
            machine.flags = None

    return forget
