from __future__ import annotations

import json

from countperf.machine_code.code import CompiledCode, CompiledRegion
from countperf.report.compiled import compiled


def _loop(name: str) -> CompiledRegion:
    counts = {"branch": 1, "flop.fma.f32.1": 2}
    return CompiledRegion(name=name, depth=1, is_innermost=True, trips=None, counts=counts)


CODE = CompiledCode(
    kernel="sums",
    source="x86-64 machine code from PoCL",
    group_shape=(2, 1, 1),
    regions=(
        CompiledRegion(
            name="body", depth=0, is_innermost=False, trips=1, counts={"move": 1, "iop.scalar": 4}
        ),
        _loop("1"),
        _loop("2"),
        CompiledRegion(
            name="3", depth=1, is_innermost=True, trips=8, counts={"store.vector.256": 1}
        ),
    ),
    aside={"flop.fma.f32.1": 2, "move": 1},
)


def test_text_puts_loops_that_are_the_same_together() -> None:
    assert compiled({"sums": CODE}).text().splitlines() == [
        "kernel sums: x86-64 machine code from PoCL, for a group of 2x1x1 work items",
        "  innermost loops: 0 % of the arithmetic packed, 1 lanes an instruction, 100 % of the"
        " instructions fused; for each, 0 that move lanes and 0 spills",
        "  body: 4 iop.scalar, 1 move",
        "  loop 1 to 2, each (innermost): 2 flop.fma.f32.1, 1 branch",
        "  loop 3 (innermost, 8 iterations): 1 store.vector.256",
        "  aside, for other cases: 3 instructions",
    ]


def test_the_object_is_json_and_has_everything() -> None:
    found = json.loads(json.dumps(compiled({"sums": CODE}).object()))["sums"]

    assert found["totals"] == {
        "branch": 2,
        "flop.fma.f32.1": 4,
        "iop.scalar": 4,
        "move": 1,
        "store.vector.256": 1,
    }
    assert found["regions"][3]["trips"] == 8
    assert found["shares"]["packed"] == found["shares_innermost"]["packed"] == 0
    assert found["registers"] is None
