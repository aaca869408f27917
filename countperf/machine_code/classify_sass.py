"""Classes of NVIDIA's machine instructions (SASS), as `CompiledRegion.counts` names them.

Memories have OpenCL's names: ``load.local.32`` is CUDA's shared memory, ``load.private.32`` what
CUDA calls local memory, such as spilled registers. Atomic accesses are ``atomic.<memory>``.
"""

from __future__ import annotations

import re
from functools import lru_cache

_SIZES = re.compile(r"\.(?:U|S)?(8|16|64|96|128)\b")
_SPACES = {"G": "global", "S": "local", "L": "private", "": "global", "C": "constant"}
_ACCESS = re.compile(r"(U?LD|ST|ATOM|RED)(G|S|L|C|CU|SM)?$")
_TYPES = {"F": "f32", "D": "f64", "H": "f16"}
_ARITHMETIC = {
    **{"ADD": "add", "ADD2": "add", "ADD32I": "add", "MUL": "mul", "MUL2": "mul", "MUL32I": "mul"},
    **{"FMA": "fma", "FMA2": "fma", "FMA32I": "fma", "MNMX": "minmax", "MNMX2": "minmax"},
    **{"SETP": "compare", "SET": "compare", "SETP2": "compare", "CHK": "compare", "CMP": "compare"},
}
_FLOAT = re.compile(r"([FDH])(ADD2?|ADD32I|MUL2?|MUL32I|FMA2?|FMA32I|MNMX2?|SETP2?|SET2?|CHK|CMP)$")
_CONVERTED = ("I2F", "I2FP", "F2I", "F2F", "F2FP", "I2I", "FRND", "F2IP", "I2IP")
_MOVES = (
    *("MOV", "MOV32I", "UMOV", "SEL", "USEL", "FSEL", "S2R", "S2UR", "CS2R", "R2UR", "R2P", "P2R"),
    *("PRMT", "UPRMT"),
)
_CONTROL = (
    *("BRA", "EXIT", "SSY", "SYNC", "PBK", "BRK", "PCNT", "CONT", "CAL", "CALL", "RET", "BSSY"),
    *("BSYNC", "BREAK", "BRX", "JMP", "JMX", "WARPSYNC"),
)
_BETWEEN_LANES = ("SHFL", "VOTE", "VOTEU", "MATCH", "REDUX")
_WAITS = (
    "NOP",
    "DEPBAR",
    "MEMBAR",
    "ERRBAR",
    "CCTL",
    "YIELD",
    "NANOSLEEP",
    "PSETP",
    "PLOP3",
    "UPLOP3",
)


@lru_cache(maxsize=2**12)
def classify_sass(opcode: str, operands: tuple[str, ...] = ()) -> str:
    """Return the class of an instruction."""
    base = opcode.split(".")[0]
    if match := _ACCESS.match(base):
        return _access(match[1], match[2] or "", opcode)
    if operands[1:3] == ("-RZ", "RZ"):
        return "move"
    if match := _FLOAT.match(base):
        lanes = 2 if match[1] == "H" else 1
        return f"flop.{_ARITHMETIC[match[2]]}.{_TYPES[match[1]]}.{lanes}"
    if base == "MUFU":
        kind = "sqrt" if ".SQRT" in opcode else "special"
        return f"flop.{kind}.{'f64' if '64H' in opcode else 'f32'}.1"
    if base in _CONVERTED:
        return "convert"
    if base in _MOVES or opcode.startswith("IMAD.MOV"):
        return "move"
    if base in _CONTROL:
        return "branch"
    if base in _BETWEEN_LANES:
        return "shuffle"
    if base == "BAR":
        return "barrier"
    return "other" if base in _WAITS else "iop.scalar"


def _access(kind: str, space: str, opcode: str) -> str:
    if space in ("C", "CU") or kind == "ULD":
        return "load.constant"
    where = _SPACES["S" if space == "SM" else space]
    if kind in ("ATOM", "RED"):
        return f"atomic.{where}"
    size = _SIZES.search(opcode)
    direction = "store" if kind == "ST" else "load"
    return f"{direction}.{where}.{size[1] if size else 32}"
