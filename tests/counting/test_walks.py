"""Walks through lines, against a simulation of caches that replace what was used longest ago."""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

import loopy as lp
import numpy as np
import pytest

from countperf import count_kernel

_LINE = 64


def _returns_kept(addresses: Iterable[int], size: int, ways: int) -> float:
    """Return which share of the returns to a line finds it in a cache, neighbors in time aside."""
    sets = size // _LINE // ways
    kept: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(sets)]
    seen: set[int] = set()
    returns = found = 0
    last = None
    for address in addresses:
        line = address // _LINE
        lines = kept[line % sets]
        if line in seen and line != last:
            returns += 1
            found += line in lines
        seen.add(line)
        last = line
        lines.pop(line, None)
        lines[line] = None
        if len(lines) > ways:
            lines.popitem(last=False)
    return found / returns


def _walked(t_unit: Any, access: str, **sizes: int) -> str:
    """Return the step of all executions of the access, at some sizes."""
    counts = count_kernel(t_unit, view="structure").evaluate(sizes)
    (name,) = [
        n for n, count in counts.items() if count and f".{access}.32." in n and n.startswith("exec")
    ]
    return name.rpartition(".")[2]


def _unit(domain: str, statement: str, shape: tuple[Any, ...]) -> Any:
    return lp.make_kernel(
        domain,
        statement,
        [
            lp.GlobalArg("a", np.float32, shape=shape),
            lp.GlobalArg("out", np.float32, shape="n"),
            lp.ValueArg("n,m", np.int32),
        ],
        assumptions="n >= 1 and m >= 1" if "< m" in domain else "n >= 1",
        lang_version=(2018, 2),
    )


@pytest.mark.parametrize(
    ("n", "m", "step"),
    [
        (1024, 8, "far"),
        (1024, 9, "wide"),
        (3072, 200, "wide"),
        (1024, 300, "vast"),
        (1040, 9, "far"),
        (1040, 400, "far"),
        (1040, 1000, "wide"),
        (1040, 20000, "vast"),
    ],
)
def test_columns_that_items_walk_down(n: int, m: int, step: str) -> None:
    t_unit = _unit("{ [i, j]: 0 <= i < n and 0 <= j < m }", "out[i] = sum(j, a[j, i])", ("m", "n"))
    t_unit = lp.split_iname(t_unit, "i", 16, outer_tag="g.0", inner_tag="l.0")
    assert _walked(t_unit, "gmem.load", n=n, m=m) == step

    walk = [4 * (j * n + i) for i in range(16) for j in range(m)]
    assert (_returns_kept(walk, 1 << 15, 8) > 0.9) == (step == "far")
    assert (_returns_kept(walk, 1 << 20, 16) > 0.9) == (step != "vast")


@pytest.mark.parametrize(
    ("m", "items", "step"), [(1024, 8, "far"), (1024, 16, "wide"), (1000, 16, "far")]
)
def test_rows_apart_that_items_of_a_group_begin(m: int, items: int, step: str) -> None:
    t_unit = _unit("{ [i, j]: 0 <= i < n and 0 <= j < 16 }", "a[i, j] = i + j", ("n", "m"))
    t_unit = lp.split_iname(t_unit, "i", items, outer_tag="g.0", inner_tag="l.0")
    t_unit = lp.tag_inames(t_unit, {"j": "l.1"})
    t_unit = lp.remove_unused_arguments(t_unit)
    lane = _walked(t_unit, "gmem.store", n=1600, m=m).partition("_")[0]
    assert lane == step

    walk = [4 * (i * m + j) for j in range(16) for i in range(items)]
    assert (_returns_kept(walk, 1 << 15, 8) > 0.9) == (step == "far")


def test_unrolled_loops_walk_like_others() -> None:
    steps = set()
    for tag in (None, "unr"):
        t_unit = _unit(
            "{ [i, j, k]: 0 <= i < n and 0 <= j < m and 0 <= k < 8 }",
            "out[i] = sum((j, k), a[8*j + k, i])",
            ("8*m", "n"),
        )
        t_unit = lp.split_iname(t_unit, "i", 16, outer_tag="g.0", inner_tag="l.0")
        t_unit = lp.tag_inames(t_unit, {"k": tag}) if tag else t_unit
        steps.add(_walked(t_unit, "gmem.load", n=512, m=40))
    assert steps == {"far"}  # rows of 2048 bytes: a pitch of 16 KiB from one j to the next


def test_bytes_of_a_kernel_are_those_of_the_lines_it_touches() -> None:
    for stride, each in ((1, 4), (3, 12), (8, 32), (16, 64), (40, 64)):
        t_unit = _unit("{ [i]: 0 <= i < n }", f"out[i] = a[{stride}*i]", (f"{stride}*n",))
        t_unit = lp.remove_unused_arguments(t_unit)
        t_unit = lp.split_iname(t_unit, "i", 16, outer_tag="g.0", inner_tag="l.0")
        counts = count_kernel(t_unit, view="structure").evaluate(n=1600)
        assert counts["bytes.kernel.load"] == 1600 * each


@pytest.mark.parametrize(
    ("value", "kind"), [("a[i] // 8", "shift"), ("a[i] % 64", "shift"), ("a[i] // 7", "div")]
)
def test_divisions_by_powers_of_two_are_shifts(value: str, kind: str) -> None:
    t_unit = lp.make_kernel(
        "{ [i]: 0 <= i < n }",
        f"b[i] = {value}",
        [lp.GlobalArg("a,b", np.int32, shape="n"), lp.ValueArg("n", np.int32)],
        assumptions="n >= 1",
        lang_version=(2018, 2),
    )
    t_unit = lp.split_iname(t_unit, "i", 16, outer_tag="g.0", inner_tag="l.0")
    names = set(count_kernel(t_unit, view="structure"))
    assert f"exec.free.flat.16x1.iop.{kind}.i32" in names
