"""Instructions with vectors and masks that control flow or addresses depend on.

Most vectors of a kernel hold its numbers. Whether the control flow can depend on what an
instruction writes is found backwards, block by block, with one set of registers that are needed at
the end of any block:

1. What goes to an integer register, to flags or to memory is needed, but for results of
   floating-point arithmetic, which are never known.
2. What an instruction reads is needed if what it writes is.
3. A register that a block writes, all of it, before it reads it is not needed at its beginning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from countperf.machine_code.operands import operands_of

_REGISTER = re.compile(r"%(?:[xyz]mm(\d+)|k([0-7]))")
_WHOLE = re.compile(r"^%(?:[xyz]mm\d+|k[0-7])(?:\{%k[0-7]\}\{z\})?$")
_NUMBERS = re.compile(
    r"^v?(?:add|sub|mul|div|sqrt|rsqrt|rcp|fn?m(?:add|sub)\w*|hadd|addsub|round|rndscale|scalef"
    r"|getexp|getmant|fixupimm|range|reduce|min|max)\w*[ps][hsd]$"
)
"""Arithmetic on floating-point numbers: results that are never known."""
_READS_TARGET = re.compile(r"^(?![vk])|^v(?:pternlog|perm[it]2|pdp|pmadd52|psh[lr]dv|\w*gather)")
"""Instructions that read their destination, or leave part of it: mostly those without VEX."""
_TESTS = ("vptest", "vtestp", "kortest", "ktest", "vucomi", "vcomi", "ucomi", "comi", "ptest")


def _named(text: str) -> set[str]:
    return {f"k{match[2]}" if match[2] else f"v{match[1]}" for match in _REGISTER.finditer(text)}


class _Effect:
    """Vector and mask registers that an instruction reads and writes.

    ``decides`` is whether it writes anything else; ``kills``, whether nothing is left of what was
    in the register that it writes.
    """

    __slots__ = ("decides", "kills", "reads", "writes")

    def __init__(self, mnemonic: str, operands: str) -> None:
        parts, named = operands_of(operands), _named(operands)
        self.reads, self.writes = named, set[str]()
        self.kills = self.decides = False
        if not named:
            return
        target = _REGISTER.match(parts[-1])
        sets_mask = parts[-1].startswith("%k")
        is_test = mnemonic.startswith(("ktest", "kortest")) or (
            mnemonic.startswith(_TESTS) and not sets_mask
        )
        if target is None or is_test:
            self.decides = True
            return
        own = _named(target[0])
        others = set[str]().union(*(_named(part) for part in parts[:-1]))
        others |= _named(parts[-1].removeprefix(target[0]))
        keeps = _READS_TARGET.match(mnemonic) is not None or not _WHOLE.match(parts[-1])
        self.writes, self.kills = own, not keeps
        self.reads = others | own if keeps else others
        if "gather" in mnemonic:  # which clears its mask
            self.writes |= {name for name in others if name.startswith("k")}
        if _NUMBERS.match(mnemonic):
            self.reads = own if keeps and mnemonic.startswith("v") else set[str]()


def needed_lines(
    lines: Sequence[tuple[str, str]],
    blocks: Iterable[Sequence[int]],
    always: Iterable[int] = (),
) -> frozenset[int]:
    """Return the numbers of instructions with vectors or masks that can decide anything."""
    effects = [_Effect(*line) for line in lines]
    parts = [list(block) for block in blocks]
    at_end = {f"v{number}" for number in always}
    while True:
        before, found = len(at_end), set[int]()
        for block in parts:
            live = set(at_end)
            for number in reversed(block):
                effect = effects[number]
                if effect.decides or effect.writes & live:
                    found.add(number)
                    if effect.kills:
                        live -= effect.writes
                    live |= effect.reads
            at_end |= live
        if len(at_end) == before:
            return frozenset(found)
