"""Walks through lines, against a simulation of caches that replace what is needed last."""

from collections.abc import Iterable
from itertools import groupby
from typing import Any

import loopy as lp
import numpy as np
import pytest

from countperf import count_kernel
from countperf.execution.memory_hierarchy import (
    DEFAULT_CACHES,
    CountedCaches,
    load_hierarchy,
)

_LINE = 64


def _returns_missed(addresses: Iterable[int], size: int, ways: int) -> float:
    """Return which share of the returns to a line misses a cache, neighbors in time aside.

    What is needed last is replaced (Belady, IBM Systems Journal 5, 1966): no cache misses less.
    """
    walk = [line for line, _ in groupby(address // _LINE for address in addresses)]
    coming, following = dict[int, int](), [len(walk)] * len(walk)
    for i in reversed(range(len(walk))):
        following[i] = coming.get(walk[i], len(walk))
        coming[walk[i]] = i
    sets = size // _LINE // ways
    kept: list[dict[int, int]] = [{} for _ in range(sets)]
    missed = 0
    for line, again in zip(walk, following, strict=True):
        lines = kept[line % sets]
        missed += line not in lines
        lines[line] = again
        if len(lines) > ways:
            del lines[max(lines, key=lines.__getitem__)]
    first = len(set(walk))
    return (missed - first) / (len(walk) - first)


def _executed(
    t_unit: Any, access: str, caches: CountedCaches = DEFAULT_CACHES, **sizes: int
) -> dict[str, int]:
    """Return how often the access is executed at some sizes, by its steps."""
    counts = count_kernel(t_unit, view="structure", caches=caches).evaluate(sizes)
    names = [n for n, c in counts.items() if c and f".{access}.32." in n and n.startswith("site")]
    every = [n for n in names if ".guarded." not in n]
    return {name.partition(f".{access}.32.")[2]: int(counts[name]) for name in every}


def _walked(t_unit: Any, access: str, caches: CountedCaches = DEFAULT_CACHES, **sizes: int) -> str:
    """Return the step of all executions of the access, at some sizes."""
    (name,) = _executed(t_unit, access, caches, **sizes)
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


_MISSED = {
    "l1_reuse": (0, 0.02),
    "l1_reuse_conflict1": (0.05, 0.5),
    "l1_reuse_conflict2": (0.5, 0.75),
    "l1_reuse_conflict3": (0.75, 1),
}
"""Shares of misses in a first-level cache, by step; nearly all of ``l2_reuse``, ``beyond_l2``."""


@pytest.mark.parametrize(
    ("device", "n", "m", "step"),
    [
        ("amd-zen3", 1024, 8, "l1_reuse"),  # 8 ways, 4096 bytes apart
        ("amd-zen3", 1024, 12, "l1_reuse_conflict1"),
        ("amd-zen5", 1024, 12, "l1_reuse"),  # 12 ways
        ("amd-zen3", 1024, 24, "l1_reuse_conflict2"),
        ("amd-zen5", 1024, 24, "l1_reuse_conflict1"),
        ("amd-zen3", 1024, 40, "l1_reuse_conflict3"),
        ("amd-zen4", 1536, 16, "l1_reuse"),  # two sets of 8 ways
        ("amd-zen4", 1536, 28, "l1_reuse_conflict1"),
        ("intel-model167", 1536, 24, "l1_reuse"),
        ("amd-zen3", 1024, 1500, "beyond_l2_conflict3"),  # a second level of 1024 sets
        ("amd-zen4", 1024, 1500, "l2_reuse_conflict3"),  # of 2048 sets
        ("amd-zen5", 1024, 1500, "beyond_l2_conflict3"),
        ("intel-model167", 1024, 1500, "l2_reuse_conflict3"),
        ("amd-zen3", 1040, 500, "l1_reuse"),  # a first level of 512 lines
        ("amd-zen3", 1040, 740, "l2_reuse"),
        ("amd-zen4", 1040, 740, "l2_reuse"),
        ("amd-zen5", 1040, 740, "l1_reuse"),  # of 768 lines
        ("intel-model167", 1040, 740, "l1_reuse"),
        ("amd-zen3", 1040, 12000, "beyond_l2"),  # a second level of 8192 lines
        ("amd-zen4", 1040, 12000, "l2_reuse"),  # of 16384
        ("amd-zen4", 1040, 30000, "beyond_l2"),
        ("intel-model167", 1040, 30000, "l2_reuse"),  # of 32768
        ("amd-zen5", 1024, 16, "l1_reuse_conflict1"),
        ("amd-zen5", 1024, 40, "l1_reuse_conflict2"),
        ("amd-zen5", 3072, 200, "l1_reuse_conflict3"),
        ("amd-zen5", 1024, 900, "l2_reuse_conflict3"),
        ("amd-zen5", 1024, 3000, "beyond_l2_conflict3"),
        ("amd-zen5", 1536, 24, "l1_reuse"),
        ("amd-zen5", 1536, 40, "l1_reuse_conflict1"),
        ("amd-zen5", 1536, 80, "l1_reuse_conflict2"),
        ("amd-zen5", 1536, 500, "l1_reuse_conflict3"),
        ("amd-zen5", 1040, 9, "l1_reuse"),
        ("amd-zen5", 1040, 700, "l1_reuse"),
        ("amd-zen5", 1040, 2000, "l2_reuse"),
        ("amd-zen5", 1040, 40000, "beyond_l2"),
    ],
)
def test_columns_by_the_caches_of_a_device(device: str, n: int, m: int, step: str) -> None:
    memory = load_hierarchy(device)
    t_unit = _unit("{ [i, j]: 0 <= i < n and 0 <= j < m }", "out[i] = sum(j, a[j, i])", ("m", "n"))
    t_unit = lp.split_iname(t_unit, "i", 16, outer_tag="g.0", inner_tag="l.0")
    assert _walked(t_unit, "gmem.load", memory.counted, n=n, m=m) == step

    low, high = _MISSED.get(step, (0.25, 1))
    walk = [4 * (j * n + i) for i in range(8) for j in range(m)]
    first, second = memory.caches[:2]
    assert low <= _returns_missed(walk, first.size_bytes, first.ways) <= high
    if n == 1040:
        missed = _returns_missed(walk, second.size_bytes, second.ways)
        assert (missed > 0.3) == (step == "beyond_l2")


@pytest.mark.parametrize(
    ("device", "items", "step"),
    [
        ("amd-zen3", 8, "l1_reuse"),
        ("amd-zen3", 12, "l1_reuse_conflict1"),
        ("amd-zen5", 12, "l1_reuse"),
        ("amd-zen4", 24, "l1_reuse_conflict2"),
        ("amd-zen5", 24, "l1_reuse_conflict1"),
    ],
)
def test_rows_apart_by_the_caches_of_a_device(device: str, items: int, step: str) -> None:
    memory = load_hierarchy(device)
    t_unit = _unit("{ [i, j]: 0 <= i < n and 0 <= j < 16 }", "a[i, j] = i + j", ("n", 1024))
    t_unit = lp.split_iname(t_unit, "i", items, outer_tag="g.0", inner_tag="l.0")
    t_unit = lp.tag_inames(t_unit, {"j": "l.1"})
    t_unit = lp.remove_unused_arguments(t_unit)
    lane = _walked(t_unit, "gmem.store", memory.counted, n=1200).partition("-")[0]
    assert lane == step

    low, high = _MISSED[step]
    walk = [4 * (i * 1024 + j) for j in range(16) for i in range(items)]
    assert low <= _returns_missed(walk, memory.caches[0].size_bytes, memory.caches[0].ways) <= high


@pytest.mark.parametrize(
    ("device", "sizes"),
    [
        ("amd-zen3", {8192: "data", 8200: "data_l2_reuse", 131073: "data_beyond_l2"}),
        ("amd-zen4", {8192: "data", 131073: "data_l2_reuse", 262145: "data_beyond_l2"}),
        ("amd-zen5", {12288: "data", 12289: "data_l2_reuse", 262144: "data_l2_reuse"}),
        ("intel-model167", {12288: "data", 262145: "data_l2_reuse", 524289: "data_beyond_l2"}),
    ],
)
def test_arrays_that_data_leads_anywhere_in(device: str, sizes: dict[int, str]) -> None:
    t_unit = lp.make_kernel(
        "{ [i]: 0 <= i < n }",
        "out[i] = a[k[i]]",
        [
            lp.GlobalArg("a,out", np.float32, shape="n"),
            lp.GlobalArg("k", np.int32, shape="n"),
            lp.ValueArg("n", np.int32),
        ],
        assumptions="n >= 1",
        lang_version=(2018, 2),
    )
    t_unit = lp.split_iname(t_unit, "i", 16, outer_tag="g.0", inner_tag="l.0")
    caches = load_hierarchy(device).counted
    for n, step in sizes.items():  # elements of 4 bytes, of arrays that fill a cache or nearly so
        assert _executed(t_unit, "gmem.load", caches, n=n) == {"next": n, step: n}


@pytest.mark.parametrize("assumptions", ["n >= 1 and n mod 96 = 0", "n >= 1"])
def test_loops_with_guards_walk_as_far_as_others(assumptions: str) -> None:
    t_unit = lp.make_kernel(
        "{ [i]: 0 <= i < n }",
        "out[i] = 2 * a[i]",
        [lp.GlobalArg("a, out", np.float32, shape="n"), lp.ValueArg("n", np.int32)],
        assumptions=assumptions,
        lang_version=(2018, 2),
    )
    t_unit = lp.split_iname(t_unit, "i", 96, outer_tag="g.0", inner_iname="j")
    t_unit = lp.split_iname(t_unit, "j", 32, inner_tag="l.0")
    assert (
        _walked(t_unit, "gmem.load", n=9600) == "l1_reuse"
    )  # three lines, and on to the next item


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
    assert steps == {"l1_reuse_conflict3"}  # rows of 2048 bytes


@pytest.mark.parametrize(
    ("copies", "items", "step"),
    [
        (2, 16, "l1_reuse_conflict1"),
        (4, 12, "l1_reuse"),
        (8, 16, "l1_reuse_conflict1"),
        (8, 40, "l1_reuse_conflict2"),
        (8, 100, "l1_reuse_conflict3"),
    ],
)
def test_of_copies_on_a_line_the_first_leads_there(copies: int, items: int, step: str) -> None:
    n, m = 8 * items, 1024 // copies  # rows of 4096 bytes
    t_unit = _unit(
        f"{{ [i, j, k]: 0 <= i < n and 0 <= j < m and 0 <= k < {copies} }}",
        f"out[i] = sum((j, k), a[i, {copies}*j + k])",
        ("n", f"{copies}*m"),
    )
    t_unit = lp.split_iname(t_unit, "i", items, outer_tag="g.0", inner_tag="l.0")
    t_unit = lp.tag_inames(t_unit, {"k": "unr"})
    by_item = dict.fromkeys(("l1_reuse", step), 0)
    for steps, executions in _executed(t_unit, "gmem.load", n=n, m=m).items():
        by_item[steps.partition(".")[0]] += executions
    walked = by_item.pop(step)
    assert walked == n * m * (copies if step == "l1_reuse" else 1)
    assert walked + sum(by_item.values()) == n * m * copies

    low, high = _MISSED[step]
    walk = [
        4 * (1024 * i + copies * j + k)
        for j in range(m)
        for i in range(items)
        for k in range(copies)
    ]
    assert low <= _returns_missed(walk, 48 << 10, 12) <= high


@pytest.mark.parametrize(
    ("items", "step"), [(12, "l1_reuse"), (20, "l1_reuse_conflict1"), (40, "l1_reuse_conflict2")]
)
def test_each_of_copies_on_lines_apart_leads_to_others(items: int, step: str) -> None:
    t_unit = _unit(
        "{ [i, j, k]: 0 <= i < n and 0 <= j < m and 0 <= k < 4 }",
        "out[i] = sum((j, k), a[i, 64*k + j])",
        ("n", "1024"),
    )
    t_unit = lp.split_iname(t_unit, "i", items, outer_tag="g.0", inner_tag="l.0")
    t_unit = lp.tag_inames(t_unit, {"k": "unr"})
    n, m = 8 * items, 16
    executions = _executed(t_unit, "gmem.load", n=n, m=m)
    assert {s.partition(".")[0] for s in executions} == {step}
    assert sum(executions.values()) == 4 * n * m

    low, high = _MISSED[step]
    walk = [4 * (1024 * i + 64 * k + j) for j in range(m) for i in range(items) for k in range(4)]
    assert low <= _returns_missed(walk, 48 << 10, 12) <= high


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
    assert f"site.free.flat.16x1.iop.{kind}.i32" in names
