"""Integer instructions of an x86-64 processor, as far as control flow needs them.

What an instruction makes of unknown values is unknown, and so is what has no rule here.

Source: Intel, "Intel 64 and IA-32 Architectures Software Developer's Manual", volume 2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from countperf.machine_code.machine_state import (
    REGISTERS,
    Action,
    Flags,
    Machine,
    Read,
    address_of,
    condition_of,
    operands_of,
    read_signed,
    reader,
    width_of,
    writer,
)

_BITS = {"b": 8, "w": 16, "l": 32, "q": 64}
_KEPT = "kept"  # flags of an instruction that leaves them as they were

_Outcome = tuple[Any, ...]  # results of an instruction, and last its flags
_Rule = Callable[..., _Outcome]
"""Function from the bits of an instruction and its operands to its outcome."""


def _exact(bits: int, result: int, carry: Any = 0, overflow: Any = 0) -> Flags:
    return Flags("exact", int(carry), int(overflow), result & ((1 << bits) - 1), bits)


def _combine(kind: str, bits: int, a: int, b: int) -> _Outcome:
    result = (a + b if kind == "add" else a - b) & ((1 << bits) - 1)
    return result, Flags(kind, a, b, result, bits)


_add, _subtract = partial(_combine, "add"), partial(_combine, "sub")


def _with_carry(bits: int, a: int, b: int, carry: int, sign: int) -> _Outcome:
    whole, exact = 1 << bits, read_signed(a, bits) + sign * (read_signed(b, bits) + carry)
    raw = a + sign * (b + carry)
    overflows = not -(whole >> 1) <= exact < whole >> 1
    return raw, _exact(bits, raw, not 0 <= raw < whole, overflows)


def _logic(function: Callable[[int, int], int]) -> _Rule:
    return lambda bits, a, b: (function(a, b), _exact(bits, function(a, b)))


def _count(by: int, bits: int) -> int:
    return by & (63 if bits == 64 else 31)


def _shift_left(bits: int, a: int, by: int) -> _Outcome:
    by = _count(by, bits)
    carry = a >> (bits - by) & 1 if by <= bits else 0
    overflow = (a << by) >> (bits - 1) & 1 ^ carry
    return a << by, _exact(bits, a << by, carry, overflow) if by else _KEPT


def _shift_right(bits: int, a: int, by: int) -> _Outcome:
    """Shift a value that is negative if its sign is to be kept."""
    by = _count(by, bits)
    carry, overflow = a >> max(by - 1, 0) & 1, max(a, 0) >> (bits - 1)
    return a >> by, _exact(bits, a >> by, carry, overflow) if by else _KEPT


def _multiply(bits: int, a: int, b: int, *, is_signed: bool = True) -> _Outcome:
    lowest = -(1 << bits - 1) if is_signed else 0
    whole = read_signed(a, bits) * read_signed(b, bits) if is_signed else a * b
    overflows = not lowest <= whole < lowest + (1 << bits)
    return whole, whole >> bits, _exact(bits, whole, overflows, overflows)


def _divide(bits: int, by: int, low: int, high: int, *, is_signed: bool) -> _Outcome:
    whole = high << bits | low
    if is_signed:
        whole, by = read_signed(whole, 2 * bits), read_signed(by, bits)
    if not by:
        return None, None, None
    quotient = abs(whole) // abs(by) * (1 if (whole < 0) == (by < 0) else -1)
    return quotient, whole - quotient * by, None


def _count_zeros(bits: int, a: int) -> _Outcome:
    result = (a & -a).bit_length() - 1 if a else bits
    return result, _exact(bits, result, a == 0)


_RULES: Mapping[str, tuple[str, _Rule]] = {
    # name and number of operands: what is read and written, and the rule. Operands are numbered as
    # they are written, and n is the first with 8 bits; a and d are rax and rdx, c is the carry
    "add2": ("10>1", _add),
    "sub2": ("10>1", _subtract),
    "cmp2": ("10>", lambda bits, a, b: _subtract(bits, a, b)[1:]),
    "adc2": ("10c>1", lambda bits, a, b, c: _with_carry(bits, a, b, c, 1)),
    "sbb2": ("10c>1", lambda bits, a, b, c: _with_carry(bits, a, b, c, -1)),
    "and2": ("10>1", _logic(lambda a, b: a & b)),
    "test2": ("10>", lambda bits, a, b: (_exact(bits, a & b),)),
    "or2": ("10>1", _logic(lambda a, b: a | b)),
    "xor2": ("10>1", _logic(lambda a, b: a ^ b)),
    "andn3": ("01>2", _logic(lambda a, b: a & ~b)),
    "shl2": ("1n>1", _shift_left),
    "shr2": ("1n>1", _shift_right),
    "sar2": ("1n>1", lambda bits, a, by: _shift_right(bits, read_signed(a, bits), by)),
    "shlx3": ("10>2", lambda bits, a, by: (a << (by & (bits - 1)), _KEPT)),
    "shrx3": ("10>2", lambda bits, a, by: (a >> (by & (bits - 1)), _KEPT)),
    "sarx3": ("10>2", lambda bits, a, by: (read_signed(a, bits) >> (by & (bits - 1)), _KEPT)),
    "inc1": ("0>0", lambda bits, a: _add(bits, a, 1)),
    "dec1": ("0>0", lambda bits, a: _subtract(bits, a, 1)),
    "neg1": ("0>0", lambda bits, a: _subtract(bits, 0, a)),
    "not1": ("0>0", lambda _, a: (~a, _KEPT)),
    "imul2": ("10>1", lambda bits, a, b: _multiply(bits, a, b)[::2]),
    "imul3": ("10>2", lambda bits, a, b: _multiply(bits, a, b)[::2]),
    "mul1": ("0a>ad", lambda bits, a, b: _multiply(bits, a, b, is_signed=False)),
    "imul1": ("0a>ad", _multiply),
    "mulx3": ("0d>12", lambda bits, a, b: (*_multiply(bits, a, b, is_signed=False)[:2], _KEPT)),
    "div1": ("0ad>ad", lambda bits, *v: _divide(bits, *v, is_signed=False)),
    "idiv1": ("0ad>ad", lambda bits, *v: _divide(bits, *v, is_signed=True)),
    # other flags than the carry are taken for those of a result of 1
    "bt2": ("10>", lambda bits, a, index: (_exact(bits, 1, a >> index % bits & 1),)),
    "tzcnt2": ("0>1", _count_zeros),
    "bzhi3": ("10>2", _logic(lambda a, index: a & ((1 << (index & 0xFF)) - 1))),
    "xchg2": ("10>10", lambda _, a, b: (b, a, _KEPT)),
    **dict.fromkeys(("cltd0", "cqto0"), ("a>d", lambda bits, a: (-(a >> (bits - 1)), _KEPT))),
}
_IMPLIED = {"a": "%rax", "d": "%rdx"}
_OF_SAME: Mapping[str, tuple[str, _Rule]] = {
    # the same of instructions whose two operands are one register, whatever it holds
    "xor2": (">1", lambda bits: (0, _exact(bits, 0))),
    "sub2": (">1", lambda bits: (0, Flags("sub", 0, 0, 0, bits))),
    "sbb2": ("c>1", lambda bits, c: _with_carry(bits, 0, 0, c, -1)),
}
_NAMES = frozenset(name[:-1] for name in _RULES)
_SHIFTS = ("shl", "shr", "sar")
_KEEPING = re.compile(
    r"^(?:mov|stos|lods|lea|push|pop|call|ret|leave|nop|endbr|set|cmov|j|prefetch|sh[lr]x|sarx|rorx"
    r"|mulx|bswap|xchg|pext|pdep|cqt|clt|cwt|cqo|cdq|cbt|not|data16|[lms]fence|cbw|cwde)"
)
_SETTING = re.compile(r"^(?:v?u?comis[sd]|k(?:or)?test|v?ptest$|vtestp)")
"""Instructions with vectors or masks that set flags."""
_NOTHING = re.compile(r"^(?:nop|endbr|prefetch|[lms]fence|vzero|data16)")
_MOVE = re.compile(r"^mov(?:(?P<way>[sz])(?P<low>[bwl])(?P<high>[wlq])|(?:abs)?[bwlq]?)$")
_EXTENDED = {
    **dict.fromkeys(("cltq", "cdqe"), ("movslq", "%eax,%rax")),
    **dict.fromkeys(("cwtl", "cwde"), ("movswl", "%ax,%eax")),
    **dict.fromkeys(("cbtw", "cbw"), ("movsbw", "%al,%ax")),
}
"""Instructions without operands that are moves with them."""
_STRING = re.compile(r"^(?:stos|movs|lods|scas|cmps)[bwlq]?$")
_STRING_PLACE = re.compile(r"%[de]s:\(%r[sd]i\)")
_IMPLICIT = {"string": ("%rcx", "%rsi", "%rdi"), "leave": ("%rbp", "%rsp")}
"""Registers that instructions write without naming them."""

_UNRULED = re.compile(r"^(?:ro[lr]|rc[lr]|sh[lr]d|bt[src]|xadd)")
"""Instructions without a rule whose target may be memory."""


def action_of(mnemonic: str, operands: str) -> Action | None:
    """Return what an instruction does to integers and flags; None if nothing.

    Branches and calls are left to whoever follows the control flow, and what instructions do to
    vectors to `countperf.machine_code.vector_unit`.
    """
    mnemonic, operands = _EXTENDED.get(mnemonic, (mnemonic, operands))
    parts = operands_of(operands)
    if _NOTHING.match(mnemonic) or (mnemonic.startswith("xchg") and len(set(parts)) == 1):
        return None
    if _STRING.match(mnemonic) and _STRING_PLACE.search(operands):
        return _forget(mnemonic, [], _IMPLICIT["string"])
    if mnemonic[0] not in "vk" and "mm" not in operands:
        action = _special(mnemonic, parts) or _by_rule(mnemonic, parts)
        if action is not None:
            return action
    return _forget(mnemonic, parts, _IMPLICIT.get(mnemonic.rstrip("q"), ()))


def _by_rule(mnemonic: str, parts: list[str]) -> Action | None:
    name = mnemonic.replace("sal", "shl")
    if name not in _NAMES and name[-1] in _BITS:
        name = name[:-1]
    is_shift = name in _SHIFTS
    if is_shift and len(parts) == 1:
        parts = ["$1", *parts]
    key = f"{name}{len(parts)}"
    is_same = key in _OF_SAME and parts[0] == parts[1]
    form, compute = (_OF_SAME if is_same else _RULES).get(key, ("", None))
    if compute is None or (name.startswith("bt") and "(" in parts[1]):
        return None
    bits = 32 if name == "cltd" else width_of(mnemonic, parts[-1:] if is_shift else parts)
    read, _, written = form.partition(">")
    reads = [_reader(kind, parts, bits) for kind in read]
    writes = [writer(_IMPLIED.get(kind) or parts[int(kind)], bits) for kind in written]
    lost: _Outcome = (*(None,) * len(writes), _KEPT if _KEEPING.match(mnemonic) else None)
    mask = (1 << bits) - 1

    def operate(machine: Machine) -> None:
        values = [read(machine) for read in reads]
        *results, flags = lost if None in values else compute(bits, *values)
        if flags is not _KEPT:
            machine.flags = flags
        for write, result in zip(writes, results, strict=True):
            write(machine, None if result is None else result & mask)

    return operate


def _reader(kind: str, parts: Sequence[str], bits: int) -> Read:
    if kind == "c" and (carry := condition_of("b")):
        return carry
    text = parts[0] if kind == "n" else _IMPLIED.get(kind) or parts[int(kind)]
    return reader(text, 8 if kind == "n" else bits)


def _special(mnemonic: str, parts: list[str]) -> Action | None:
    """Return what moves, widens, computes addresses, pushes or depends on conditions."""
    if (move := _MOVE.match(mnemonic)) and len(parts) == 2:
        low, high = (_BITS.get(move[end]) or width_of(mnemonic, parts) for end in ("low", "high"))
        return _move(parts, low, high, is_signed=move["way"] == "s")
    if mnemonic.startswith("lea") and len(parts) == 2:
        return _lea(parts)
    if mnemonic.startswith("push") and parts:
        return _move_by_stack(parts[0], "-0x8(%rsp)", "-0x8(%rsp)")
    if mnemonic in ("pop", "popq") and parts:
        return _move_by_stack("0x0(%rsp)", parts[0], "0x8(%rsp)")
    if mnemonic.startswith("cmov") and len(parts) == 2:
        return _conditional(mnemonic.removeprefix("cmov"), parts)
    if mnemonic.startswith("set") and parts:
        decide, write = condition_of(mnemonic.removeprefix("set")), writer(parts[0], 8)
        return lambda machine: write(machine, None if decide is None else decide(machine))
    return None


def _move(parts: list[str], low: int, high: int, *, is_signed: bool = False) -> Action:
    read, write, mask = reader(parts[0], low), writer(parts[1], high), (1 << high) - 1

    def move(machine: Machine) -> None:
        value = read(machine)
        if is_signed and value is not None:
            value = read_signed(value, low) & mask
        write(machine, value)

    return move


def _lea(parts: list[str]) -> Action:
    address, bits = address_of(parts[0]) or (lambda _: None), width_of("", parts[1:])
    write, mask = writer(parts[1], bits), (1 << bits) - 1

    def compute(machine: Machine) -> None:
        value = address(machine)
        write(machine, None if value is None else value & mask)

    return compute


def _move_by_stack(source: str, target: str, step: str) -> Action:
    """Move between the stack and an operand, then move the stack pointer."""
    move, advance = _move([source, target], 64, 64), _lea([step, "%rsp"])

    def push_or_pop(machine: Machine) -> None:
        move(machine)
        advance(machine)

    return push_or_pop


def _conditional(suffix: str, parts: list[str]) -> Action:
    """Move if a condition holds, named with or without the width of operands."""
    bare = suffix[:-1] if suffix[-1:] in _BITS else suffix
    decide, bits = condition_of(suffix) or condition_of(bare), width_of("", parts)
    read, keep, write = reader(parts[0], bits), reader(parts[1], bits), writer(parts[1], bits)

    def move(machine: Machine) -> None:
        is_so = None if decide is None else decide(machine)
        new, old = read(machine), keep(machine)
        write(machine, (new if new == old else None) if is_so is None else new if is_so else old)

    return move


def _forget(mnemonic: str, parts: list[str], implicit: Sequence[str]) -> Action | None:
    """Return what makes the results unknown of an instruction that has no rule."""
    is_vector = mnemonic[0] in "vk" or any("mm" in part for part in parts)
    keeps_flags = not _SETTING.match(mnemonic) if is_vector else _KEEPING.match(mnemonic)
    targets = [text for text in parts[-1:] if text in REGISTERS]
    if _UNRULED.match(mnemonic):  # which may be memory, and of xadd there are two
        targets = parts[0 if mnemonic.startswith("xadd") else -1 :]
    targets += implicit
    if not targets and keeps_flags:
        return None
    writes = [writer(text, max(32 * is_vector, width_of(mnemonic, [text]))) for text in targets]

    def forget(machine: Machine) -> None:
        for write in writes:
            write(machine, None)
        if not keeps_flags:
            machine.flags = None

    return forget
