"""Walks through lines, against a simulation of caches that replace what is needed last."""

from collections.abc import Iterable
from itertools import groupby
from typing import Any

import loopy as lp
import pytest

from countperf import count_kernel
from countperf.counting.structure.memory_hierarchy import (
    DEFAULT_CACHES,
    CacheSize,
    CountedCaches,
    load_hierarchy,
)
from tests.kernels import made

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


def _count_runs(
    unit: Any, access: str, caches: CountedCaches = DEFAULT_CACHES, **sizes: int
) -> dict[str, int]:
    """Return how often the access is executed at some sizes, by its steps."""
    counts = count_kernel(unit, view="structure", caches=caches).evaluate(sizes)
    names = [n for n, c in counts.items() if c and f".{access}.32." in n and n.startswith("site")]
    every = [n for n in names if ".guarded." not in n]
    return {name.partition(f".{access}.32.")[2]: int(counts[name]) for name in every}


def _walked(unit: Any, access: str, caches: CountedCaches = DEFAULT_CACHES, **sizes: int) -> str:
    """Return the step of all executions of the access, at some sizes."""
    (name,) = _count_runs(unit, access, caches, **sizes)
    return name.rpartition(".")[2]


def _unit(domain: str, statement: str, shape: str, group: int = 16) -> Any:
    sizes = "n,m" if "< m" in domain else "n"
    assumptions = " and ".join(f"{size} >= 1" for size in sizes.split(","))
    arguments = f"a f32 {shape}; out f32 n; {sizes} i32"
    unit = made(domain, statement, arguments, split=f"i:{group}", assumptions=assumptions)
    return lp.remove_unused_arguments(unit)


def _assert_missed(step: str, walk: Iterable[int], cache: CacheSize) -> None:
    low, high = _MISSED.get(step, (0.25, 1))
    assert low <= _returns_missed(walk, cache.size_bytes, cache.ways) <= high


_MISSED = {
    "l1_reuse": (0, 0.02),
    "l1_reuse_conflict1": (0.05, 0.5),
    "l1_reuse_conflict2": (0.5, 0.75),
    "l1_reuse_conflict3": (0.75, 1),
}
"""Shares of misses in a first-level cache, by step; nearly all of ``l2_reuse``, ``beyond_l2``."""


_CONFLICT = "l1_reuse_conflict"


@pytest.mark.parametrize(
    ("device", "n", "steps"),
    [  # of 8 or 12 ways, 4096 bytes apart, and second levels of 1024 or 2048 sets
        ("amd-zen3", 1024, {8: "l1_reuse", 12: _CONFLICT + "1", 24: _CONFLICT + "2"}),
        ("amd-zen3", 1024, {40: _CONFLICT + "3", 1500: "beyond_l2_conflict3"}),
        ("amd-zen5", 1024, {12: "l1_reuse", 24: _CONFLICT + "1", 900: "l2_reuse_conflict3"}),
        ("amd-zen5", 1024, {1500: "beyond_l2_conflict3"}),
        ("amd-zen4", 1024, {1500: "l2_reuse_conflict3"}),
        ("intel-model167", 1024, {1500: "l2_reuse_conflict3"}),
        # two sets
        ("amd-zen4", 1536, {16: "l1_reuse", 28: _CONFLICT + "1"}),
        ("intel-model167", 1536, {24: "l1_reuse"}),
        ("amd-zen5", 1536, {24: "l1_reuse", 40: _CONFLICT + "1", 80: _CONFLICT + "2"}),
        ("amd-zen5", 1536, {500: _CONFLICT + "3"}),
        ("amd-zen5", 3072, {200: _CONFLICT + "3"}),
        # first levels of 512 or 768 lines, second ones of 8192, 16384 or 32768
        ("amd-zen3", 1040, {500: "l1_reuse", 740: "l2_reuse", 12000: "beyond_l2"}),
        ("amd-zen4", 1040, {740: "l2_reuse", 12000: "l2_reuse", 30000: "beyond_l2"}),
        ("amd-zen5", 1040, {740: "l1_reuse", 40000: "beyond_l2"}),
        ("intel-model167", 1040, {740: "l1_reuse", 30000: "l2_reuse"}),
    ],
)
def test_columns_by_the_caches_of_a_device(device: str, n: int, steps: dict[int, str]) -> None:
    memory = load_hierarchy(device)
    unit = _unit("{ [i, j]: 0 <= i < n and 0 <= j < m }", "out[i] = sum(j, a[j, i])", "m,n")
    for m, step in steps.items():
        assert _walked(unit, "gmem.load", memory.counted, n=n, m=m) == step
        walk = [4 * (j * n + i) for i in range(8) for j in range(m)]
        first, second = memory.caches[:2]
        _assert_missed(step, walk, first)
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
    domain = "{ [i, j]: 0 <= i < n and 0 <= j < 16 }"
    unit = lp.tag_inames(_unit(domain, "a[i, j] = i + j", "n,1024", items), {"j": "l.1"})
    lane = _walked(unit, "gmem.store", memory.counted, n=1200).partition("-")[0]
    assert lane == step
    walk = [4 * (i * 1024 + j) for j in range(16) for i in range(items)]
    _assert_missed(step, walk, memory.caches[0])


@pytest.mark.parametrize(
    ("device", "sizes"),
    [
        ("amd-zen3", {8192: "data", 8200: "data_l2_reuse", 131073: "data_beyond_l2"}),
        ("amd-zen4", {8192: "data", 131073: "data_l2_reuse", 262145: "data_beyond_l2"}),
        ("intel-model167", {12288: "data", 262145: "data_l2_reuse", 524289: "data_beyond_l2"}),
    ],
)
def test_arrays_that_data_leads_anywhere_in(device: str, sizes: dict[int, str]) -> None:
    unit = made("i<n", "out[i] = a[k[i]]", "a,out f32 n; k i32 n; n i32", split="i:16")
    caches = load_hierarchy(device).counted
    for n, step in sizes.items():  # elements of 4 bytes, of arrays that fill a cache or nearly so
        assert _count_runs(unit, "gmem.load", caches, n=n) == {"next": n, step: n}


@pytest.mark.parametrize("assumptions", ["n >= 1 and n mod 96 = 0", "n >= 1"])
def test_loops_with_guards_walk_as_far_as_others(assumptions: str) -> None:
    unit = made("i<n", "out[i] = 2 * a[i]", "a,out f32 n; n i32", assumptions=assumptions)
    unit = lp.split_iname(unit, "i", 96, outer_tag="g.0", inner_iname="j")
    unit = lp.split_iname(unit, "j", 32, inner_tag="l.0")
    # three lines, and on to the next item
    assert _walked(unit, "gmem.load", n=9600) == "l1_reuse"


def test_unrolled_loops_walk_like_others() -> None:
    domain = "{ [i, j, k]: 0 <= i < n and 0 <= j < m and 0 <= k < 8 }"
    unit = _unit(domain, "out[i] = sum((j, k), a[8*j + k, i])", "8*m,n")
    for each in (unit, lp.tag_inames(unit, {"k": "unr"})):  # rows of 2048 bytes
        assert _walked(each, "gmem.load", n=512, m=40) == "l1_reuse_conflict3"


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
    domain = f"{{ [i, j, k]: 0 <= i < n and 0 <= j < m and 0 <= k < {copies} }}"
    unit = _unit(domain, f"out[i] = sum((j, k), a[i, {copies}*j + k])", f"n,{copies}*m", items)
    by_item = dict.fromkeys(("l1_reuse", step), 0)
    unit = lp.tag_inames(unit, {"k": "unr"})
    for steps, executions in _count_runs(unit, "gmem.load", n=n, m=m).items():
        by_item[steps.partition(".")[0]] += executions
    walked = by_item.pop(step)
    assert walked == n * m * (copies if step == "l1_reuse" else 1)
    assert walked + sum(by_item.values()) == n * m * copies
    walk = [
        4 * (1024 * i + copies * j + k)
        for j in range(m)
        for i in range(items)
        for k in range(copies)
    ]
    _assert_missed(step, walk, DEFAULT_CACHES.first)


@pytest.mark.parametrize(
    ("items", "step"), [(12, "l1_reuse"), (20, "l1_reuse_conflict1"), (40, "l1_reuse_conflict2")]
)
def test_each_of_copies_on_lines_apart_leads_to_others(items: int, step: str) -> None:
    domain = "{ [i, j, k]: 0 <= i < n and 0 <= j < m and 0 <= k < 4 }"
    unit = _unit(domain, "out[i] = sum((j, k), a[i, 64*k + j])", "n,1024", items)
    unit = lp.assume(unit, "m <= 64")
    n, m = 8 * items, 16
    executions = _count_runs(lp.tag_inames(unit, {"k": "unr"}), "gmem.load", n=n, m=m)
    assert {s.partition(".")[0] for s in executions} == {step}
    assert sum(executions.values()) == 4 * n * m
    walk = [4 * (1024 * i + 64 * k + j) for j in range(m) for i in range(items) for k in range(4)]
    _assert_missed(step, walk, DEFAULT_CACHES.first)


def test_bytes_of_a_kernel_are_those_of_the_lines_it_touches() -> None:
    for stride, touched in ((1, 4), (3, 12), (8, 32), (16, 64), (40, 64)):
        unit = _unit("i<n", f"out[i] = a[{stride}*i]", f"{stride}*n")
        counts = count_kernel(unit, view="structure").evaluate(n=1600)
        assert counts["bytes.kernel.load"] == 1600 * touched


@pytest.mark.parametrize(
    ("value", "kind"), [("a[i] // 8", "shift"), ("a[i] % 64", "shift"), ("a[i] // 7", "div")]
)
def test_divisions_by_powers_of_two_are_shifts(value: str, kind: str) -> None:
    unit = made("i<n", f"b[i] = {value}", "a,b i32 n; n i32", split="i:16")
    assert f"site.free.flat.16x1.iop.{kind}.i32" in set(count_kernel(unit, view="structure"))


@pytest.mark.parametrize("width", [16, 17, 24, 32, 48])
def test_members_of_a_structure_are_on_as_many_lines_as_it_takes(width: int) -> None:
    members = " + ".join(f"a[i, {k}]" for k in range(width))
    unit = _unit("i<n", f"out[i] = {members}", f"n,{width}", 128)
    n = 1280
    by_step = _count_runs(unit, "gmem.load", n=n)
    lines = max(len({4 * (width * i + k) // _LINE for k in range(width)}) for i in range(n))
    assert by_step.pop("near") == (width - lines) * n
    assert sum(by_step.values()) == lines * n
    counts = count_kernel(unit, view="structure").evaluate(n=n)
    touched = [counts.get(f"bytes.group.load.{density}", 0) for density in ("dense", "sparse")]
    assert (touched, counts["segments.group.load"]) == ([4 * width * n, 0], n / 128)


def test_a_member_is_stored_to_the_line_that_it_was_loaded_from() -> None:
    updates = "\n".join(f"a[i, {k}] = 2*a[i, {k}]" for k in range(16))
    unit = made("i<n", updates, "a f32 n,16; n i32", split="i:128", seq_dependencies=True)
    (walked,) = {*_count_runs(unit, "gmem.load", n=1280)} - {"near"}
    assert _count_runs(unit, "gmem.load", n=1280) == {walked: 1280, "near": 15 * 1280}
    assert _count_runs(unit, "gmem.store", n=1280) == {"near": 16 * 1280}


@pytest.mark.parametrize(("shift", "updated"), [(0, 1280), (1, 1279), (100, 1180), (2000, 0)])
def test_bytes_that_are_loaded_and_stored_are_told(shift: int, updated: int) -> None:
    unit = made("i<n", f"a[i] = a[i + {shift}]", "a f32 n+2000; n i32", split="i:128")
    counts = count_kernel(unit, view="structure").evaluate(n=1280)
    assert counts.get("bytes.kernel.update", 0) == 4 * updated
