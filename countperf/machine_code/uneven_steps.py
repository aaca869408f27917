"""Instructions whose results do not grow evenly with their operands."""

from __future__ import annotations

import re
from collections.abc import Sequence

from countperf.machine_code.integer_operands import Action, operands_of, reader
from countperf.machine_code.machine_state import REGISTERS, Machine

_STEPS = re.compile(
    r"^(?:s[ha]rx?|ro[rl]|and|or|xor|bzhi|bextr|bt|[tl]zcnt|popcnt|bls|i?div|i?mul|movz|cbw"
    r"|vps[rl][la]|vpand|vpor|vpxor|vpternlog|vpcmp|vp?test|vpm(?:in|ax|ul)|vpmov\w2m|v?p?movmsk"
    r"|v?p?blendv|vpack|vpabs|vp?maskmov|vpshufb|vpinsr[bw]|vpextr[bw]|vpbroadcast[bw])"
)
"""Instructions whose results do not grow linearly when their operands do."""
_LINEAR = re.compile(r"^vp(?:slld|mulld)$")
_IMPLIED = re.compile(r"^i?(?:div|mul)")
_SHIFT_RIGHT = re.compile(r"^s[ha]r[bwlq]?$")


_BITWISE = re.compile(r"^(?:and|or|xor)[lq]?$")
_NARROW = re.compile(r"^%(?:e|r\d+d)")
_CONSTANT = re.compile(r"^\$(0x[0-9a-f]+|\d+)$")
_VECTOR = re.compile(r"^%[xyz]mm(\d+)")


def note_of_step(mnemonic: str, operands: str) -> Action | None:
    """Return the action that notes operands of a result that grows by steps, if any."""
    parts = operands_of(operands)
    is_product = mnemonic.startswith("imul") and len(parts) > 1  # of which the high half is lost
    if is_product or not _STEPS.match(mnemonic) or (len(parts) > 1 and parts[0] == parts[1]):
        return None
    if _LINEAR.match(mnemonic):  # lane by lane, whatever is carried out of these
        return None
    vectors = [int(found[1]) for part in parts if (found := _VECTOR.match(part))]
    by = _CONSTANT.match(parts[0])
    if mnemonic == "vpsllq" and by is not None and len(vectors) == 2:
        number, left = vectors[0], -int(by[1], 0)
        return lambda machine: machine.journal.stepped.append((left, machine.vectors[number]))
    if vectors:

        def note_vectors(machine: Machine) -> None:
            lanes = (lane for number in vectors for lane in machine.vectors[number])
            machine.journal.stepped.append((None, tuple(lanes)))

        return note_vectors
    shift = _low_bits(mnemonic, parts)
    implied = ("%rax", "%rdx") if _IMPLIED.match(mnemonic) else ()
    named = (*parts, *implied) if shift is None else parts[-1:]
    reads = [reader(part, 64 if part in REGISTERS else 32) for part in named]

    def note(machine: Machine) -> None:
        machine.journal.stepped.append((shift, tuple(read(machine) for read in reads)))

    return note


def _low_bits(mnemonic: str, parts: Sequence[str]) -> int | None:
    """Return how many low bits of an operand an instruction changes in its own way.

    What grows by multiples of ``1 << bits`` leaves them as they are, so that the result grows
    evenly: of shifts to the right by constants, and of ``and``, ``or`` and ``xor`` with constants
    whose other bits are all zeros or all ones. None for other instructions.
    """
    constant = _CONSTANT.match(parts[0]) if parts else None
    if _SHIFT_RIGHT.match(mnemonic) and (constant or len(parts) == 1):
        return int(constant[1], 0) if constant else 1
    if constant is None or len(parts) != 2 or not _BITWISE.match(mnemonic):
        return None
    value = int(constant[1], 0)
    width = 32 if mnemonic.endswith("l") or _NARROW.match(parts[1]) else 64
    if value >> (width - 1):
        value = ~value & ((1 << width) - 1)
    return value.bit_length()
