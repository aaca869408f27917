"""Executions of kernels, against the compiler's view, the analysis, and enumeration."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise, product
from typing import Any

import loopy as lp
import numpy as np
import pytest

import countperf
from countperf.counting.analysis import distinct_bytes, footprints_of
from countperf.counting.count_properties import count_kernel
from countperf.counting.execution.sites import count_execution
from countperf.counting.frontend.schedule import generate_code
from countperf.counting.structure.issue import ExecutionPolicy, apply_policy
from countperf.counting.structure.site_keys import FootprintKey
from countperf.models.function import ModelFunction, model_inputs
from countperf.models.shipped import make_structural_model
from measurement_kernels import catalog
from tests.kernels import made

_KERNELS = tuple(
    entry
    for number, entry in enumerate(catalog.entries(purpose=None, element_type=None))
    if number % 12 == 0 and entry.family != "empty"
)


def _structure(unit: Any, **sizes: int) -> dict[str, Any]:
    """Return what is executed at some sizes, by name."""
    return count_kernel(unit, view="structure").evaluate(sizes)


def _with(part: str, counts: dict[str, Any]) -> dict[str, Any]:
    return {name: count for name, count in counts.items() if part in name}


_SUMMED = r"(?:site(?:\.\w+){3}\.)?(?:((?:flop|iop)\..*)|([gl]mem\.(?:load|store)\.\d+)(?:\..*)?)"


def _sums(counts: dict[str, Any]) -> Counter[str]:
    """Add up over sites and steps: by kind and type, by space, direction and size."""
    sums: Counter[str] = Counter()
    for name, count in counts.items():
        if match := re.fullmatch(_SUMMED, name):
            sums[match[1] or match[2]] += count
    return sums


@pytest.mark.parametrize("entry", _KERNELS, ids=lambda e: e.name)
def test_sites_add_up_to_what_a_compiler_leaves(entry: Any) -> None:
    structure = count_kernel(entry.build(), view="structure")
    compiled = count_kernel(entry.build(), view="compiled")
    values = entry.parameters(entry.exponents[2])
    values = {n: values[n] for n in structure.parameters}
    sites = {n: c for n, c in structure.evaluate(values).items() if n.startswith("site")}
    assert _sums(sites) == _sums(compiled.evaluate(values))
    assert structure.take_source_view() == count_kernel(entry.build())


@pytest.mark.parametrize("entry", _KERNELS[::2], ids=lambda e: e.name)
def test_bytes_are_the_footprints_of_the_analysis(entry: Any) -> None:
    executed = count_execution(entry.build())
    analysis = countperf.analyze_kernel(entry.build())
    values = {n: entry.check_parameters[n] for n in executed.prepared.parameters}
    expected = distinct_bytes(footprints_of(analysis.accesses), values)
    counted = {
        key.direction: int(count.evaluate(values))
        for key, count in executed.counts.items()
        if isinstance(key, FootprintKey) and key.of == "bytes.kernel"
    }
    assert counted == {name: number for name, number in expected.items() if number}


def test_bytes_of_groups_by_enumeration() -> None:
    domain = "{ [i, j]: 0 <= i < n and 0 <= j < 3 }"
    unit = made(domain, "out[i] = sum(j, a[i + 2*j])", "a f32 n+4; out f32 n; n i32", split="i:16")
    counts = count_execution(unit).counts
    for n in (1, 15, 16, 17, 50, 64):
        cells = {(i // 16, i + 2 * j) for i, j in product(range(n), range(3))}
        by_group = counts[FootprintKey("bytes.group", "load", "dense")].evaluate({"n": n})
        assert by_group == 4 * len(cells)
        in_all = counts[FootprintKey("bytes.kernel", "load")].evaluate({"n": n})
        assert in_all == 4 * len({c for _, c in cells})


def _first_columns(pitch: Any, count: int = 1) -> Any:
    """Make a kernel that sums the first elements of rows, a row for each of 16 items."""
    return made(
        f"[n, p] -> {{ [i, j]: 0 <= i < n and 0 <= j < {count} }}",
        "out[i] = sum(j, a[i, j])",
        f"a f32 n,{pitch}; out f32 n; n,p i32",
        assumptions="n >= 16 and n mod 16 = 0 and p >= 1",
        split="i:16",
    )


@pytest.mark.parametrize(
    ("pitch", "count"),
    # whole rows of a length that is a symbol are pieces of their own
    [(1, 1), (3, 1), (15, 1), (16, 1), (40, 1), ("p", 1), (40, 40)],
)
def test_pieces_end_where_a_line_lies_between(pitch: Any, count: int) -> None:
    counts = count_execution(_first_columns(pitch, count)).counts
    for p in range(1, 40) if pitch == "p" else (pitch,):
        sizes = {"n": 64, "p": p}
        cells = sorted({p * i + j for i in range(16) for j in range(count)})
        pieces = 4 * (1 + sum(b - a >= 16 for a, b in pairwise(cells)))
        assert counts[FootprintKey("segments.group", "load")].evaluate(sizes) == pieces
        density = "sparse" if p - (count - 1) >= 16 else "dense"
        between = {
            key.density: number.evaluate(sizes)
            for key, number in counts.items()
            if isinstance(key, FootprintKey) and (key.of, key.direction) == ("bytes.group", "load")
        }
        least = 1 if count > 1 else p
        expected = 4 * 4 * len(cells) * (1 if density == "sparse" else least)  # of 4 groups
        assert {d: b for d, b in between.items() if b} == {density: expected}


def test_steps_by_a_symbol_are_near_where_it_is_small() -> None:
    counts = count_kernel(_first_columns("p"), view="structure")
    for p in (1, 2, 15, 16, 17, 1000):
        loads = _with(".gmem.load.32.", counts.evaluate(n=64, p=p))
        steps = {
            name.partition(".gmem.load.32.")[2].partition(".")[0]
            for name, count in loads.items()
            if count and name.startswith("site")
        }
        assert steps == {"near" if p < 16 else "l1_reuse"}


def _site_names(unit: Any) -> set[str]:
    return {n for n in count_kernel(unit, view="structure") if n.startswith("site.")}


def test_idle_slots_of_a_guarded_fetch() -> None:
    entry = catalog.entry("finite-differences/16x16/f32")
    # 18 x 18 points by 16 x 16 items, two rounds along each axis
    idle = (1024 // 16) ** 2 * (4 * 256 - 18 * 18)
    assert _structure(entry.build(), n=1024)["site.sync.short.16x16.idle"] == idle


def _blocked_product(block: str) -> Any:
    """Return 16 items that each sum 2 x 3 products, with a tile of one matrix in local memory."""
    unit = made(
        "{ [i, j, k]: 0 <= i < 2 and 0 <= j < 48 and 0 <= k < 8*n }",
        "c[i, j] = sum(k, a[i, k] * b[k, j])",
        "a f32 2,8*n; b f32 8*n,48; c f32 2,48; n i32",
    )
    unit = lp.split_iname(unit, "j", 16, inner_tag="l.0", outer_tag=block)
    unit = lp.split_iname(lp.tag_inames(unit, {"i": block}), "k", 8)
    return lp.add_prefetch(
        unit,
        "a",
        ["i", "k_inner"],
        fetch_outer_inames=frozenset(["k_outer", "j_inner"]),
        default_tag=None,
        temporary_address_space=lp.AddressSpace.LOCAL,
    )


@pytest.mark.parametrize(("block", "values"), [("ilp", 6), ("ilp.seq", 1)])
def test_loops_over_copies_are_short_loops_through_private_arrays(block: str, values: int) -> None:
    counts = _structure(_blocked_product(block), n=5)
    updates = 2 * 3 * 40 * 16
    # beside the updates, the accumulators are set to zero, in the short loops alone
    stores = {
        "site.sync.short.16x1.pmem.store.6": 2 * 3 * 16,
        "site.sync.loop.16x1.pmem.store.6": updates,
    }
    assert _with(".pmem.store", counts) == (stores if block == "ilp.seq" else {})
    assert sum(c for n, c in counts.items() if n.endswith(".flop.fma.f32")) == updates
    assert sum(c for n, c in counts.items() if n.endswith(".carried")) == updates
    # results that wait at barriers: each in an array of the group's; copies in loops in one
    kept = {f"site.sync.flat.16x1.live_across_barrier.{values}.32": 2 * 3 * 5 * 16}
    assert _with(".live_across_barrier.", counts) == kept


def test_the_longest_of_the_chains_that_wait_together() -> None:
    unit = made(
        "{ [i, k]: 0 <= i < 32 and 0 <= k < n }",
        """
        <float32> s = 0 {id=s, inames=i}
        <float32> t = 1 {id=t, inames=i}
        for k
            s = s + a[i] {id=add, dep=s}
            t = (t - a[i])*(t + a[i]) {id=step, dep=t}
        end
        out[i] = s + t {dep=add:step}
        """,
        "a,out f32 32; n i32",
    )
    counts = _structure(lp.tag_inames(unit, {"i": "l.0"}), n=10)
    assert _with(".chain.", counts) == {
        "site.free.loop.32x1.chain.add.f32": 320,
        "site.free.loop.32x1.chain.mul.f32": 320,
    }
    assert counts["site.free.loop.32x1.carried"] == 2 * 320


@pytest.mark.parametrize(
    ("tag", "copies", "statement"),
    [
        ("ilp", 4, "out[j, i] = fmin(a[j, i], b[i])"),
        ("unr", 2, "out[j, i] = fmin(a[j, i], exp(b[i]))"),
        ("unr", 4, "b[i] = fmin(a[j, i], b[i])"),  # each waits for the one before
    ],
)
def test_copies_of_minima_run_in_vectors_of_items(tag: str, copies: int, statement: str) -> None:
    domain = f"{{ [i, j]: 0 <= i < 32 and 0 <= j < {copies} }}"
    unit = made(domain, statement, "a,out f32 4,32; b f32 32", assumptions="")
    operations = _with(".flop.", _structure(lp.tag_inames(unit, {"i": "l.0", "j": tag})))
    assert {name.split(".")[2] for name in operations} == {"flat"}
    assert operations["site.free.flat.32x1.flop.minmax.f32"] == 32 * copies
    as_items = apply_policy(ExecutionPolicy(), operations)
    assert set(as_items.values()) == {operation / 16 for operation in operations.values()}
    assert all(name.startswith("issue.vector") for name in as_items)


def test_functions_of_two_types_keep_their_kind_in_chains() -> None:
    unit = made(
        "{ [k]: 0 <= k < n }",
        """
        <float32> s = a[0] {id=s}
        <float64> t = b[0] {id=t}
        s = fmin(s, a[k]) {id=least, dep=s}
        t = fmin(t, b[k])*b[k] {id=step, dep=t}
        out[0] = s + t {dep=least:step}
        """,
        "a f32 n; b,out f64 n; n i32",
    )
    chains = _with(".chain.", _structure(unit, n=10))
    assert {name.split(".chain.")[1] for name in chains} == {"minmax.f64", "mul.f64"}


def test_chains_along_short_loops_do_not_wait() -> None:
    domain = "{ [i, j, k]: 0 <= i < 16 and 0 <= j < 5 and 0 <= k < 3 }"
    statement = "out[i] = sum((j, k), a[j, k, i])"
    unit = made(domain, statement, "a f32 5,3,16; out f32 16", assumptions="")
    chains = _with(".chain.", _structure(lp.tag_inames(unit, {"i": "l.0"})))
    assert chains == {"site.free.short.16x1.chain.add.f32": 5 * 3 * 16}
    chains["site.free.loop.16x1.chain.add.f32"] = 1000
    policy = ExecutionPolicy(vectorized="flat")  # the short loop is unrolled
    assert apply_policy(policy, chains) == {"issue.scalar.chain.f32.add": 1000}


@pytest.mark.parametrize(
    ("groups", "launches", "rounds"),
    [(1, 1, 2), (2, 1, 1), (3, 1, 4 / 3), (8, 1, 1), (2, 2, 2), (0, 1, 2)],
)
def test_groups_run_in_rounds_of_as_many_as_a_device_has_units(
    groups: int, launches: int, rounds: float
) -> None:
    model = make_structural_model(ExecutionPolicy(units=2))
    counts = {"groups": groups, "launches": launches, "site.free.loop.16x1.flop.add.f32": 160}
    inputs = model_inputs(model, {name: count for name, count in counts.items() if count})
    assert inputs.variables["rounds"] == pytest.approx(rounds)
    function = ModelFunction(model=model, columns=tuple(inputs.values))
    values = np.array(list(inputs.values.values()))
    weights = [1.0 if term == "launch" else 0.25 for term, _ in function.columns]
    time = weights @ function.scale_values(values, inputs.variables)
    assert time == pytest.approx(launches + rounds * (groups + 10) / 4)


@pytest.mark.parametrize(
    ("pieces", "shares"), [(4, (0, 0)), (8, (0.5, 0)), (32, (0.875, 0.5)), (0, (0, 0))]
)
def test_bytes_in_more_pieces_than_prefetchers_follow(
    pieces: int, shares: tuple[float, float]
) -> None:
    counts = {
        "groups": 10,
        "segments.group.load": 10 * pieces / 2,
        "segments.group.store": 10 * pieces / 2,
        "bytes.group.load.dense": 1000,
        "bytes.kernel.load": 1 << 21,
    }
    counts = {name: count for name, count in counts.items() if count}
    values = model_inputs(make_structural_model(ExecutionPolicy()), counts).values
    beyond = [values.get(("traffic", f"load_beyond_streams{number}"), 0) for number in (4, 16)]
    assert beyond == [pytest.approx(500 * share) for share in shares]  # half are beyond 1 MiB


@pytest.mark.parametrize(("condition", "kind"), [("i != k", "conditional"), ("g != k", "special")])
def test_calls_that_not_all_items_make_are_conditional(condition: str, kind: str) -> None:
    unit = made(
        "{[g, i, k]: 0 <= g < n and 0 <= i < 16 and 0 <= k < m}",
        f"""
        for g, i
            <> s = 0 {{id=begin}}
            for k
                s = s + (exp(a[g, k, i]) if {condition} else 0) {{id=add, dep=begin}}
            end
            r[g, i] = s {{dep=add}}
        end
        """,
        "a f32 n,m,16; r f32 n,16; n,m i32",
        assumptions="n >= 1 and m >= 1",
    )
    names = _site_names(lp.tag_inames(unit, {"g": "g.0", "i": "l.0"}))
    calls = {name for name in names if "special" in name or "cond" in name}
    assert calls == {f"site.free.loop.16x1.flop.{kind}.f32.exp"}


@pytest.mark.parametrize("entry", _KERNELS[::2], ids=lambda e: e.name)
def test_accesses_are_guarded_where_the_code_tells_items_apart(entry: Any) -> None:
    lines = [line.strip() for line in generate_code(entry.build()).device_code().splitlines()]
    conditions = [line for line in lines if line.startswith("if (")]
    axes = (0, 1) if entry.group_shape[0] <= 8 else (0,)
    expected = any(f"lid({axis})" in line for line in conditions for axis in axes)
    choices = [line for line in lines if " ? " in line]  # a load in a branch of an expression
    is_guarded = any(".guarded." in name for name in _site_names(entry.build()))
    assert is_guarded == expected or choices


def test_every_access_of_a_guarded_kernel_is_guarded() -> None:
    counts = count_kernel(catalog.entry("guards/stencil/32x8").build(), view="structure")
    site = "site.free.flat.32x8"
    for n, m in ((64, 64), (61, 67)):  # groups have the same code where they divide the sizes
        executed = counts.evaluate(n=n, m=m)
        for kind, accesses in (("load", 5), ("store", 1)):
            name = f"gmem.{kind}.32.next"
            assert executed[f"{site}.{name}"] == executed[f"{site}.guarded.{name}"]
            assert executed[f"{site}.{name}"] == accesses * n * m


@pytest.mark.parametrize(
    ("items", "condition", "is_guarded"),
    [
        ((16, 4), "i < 9", True),
        ((16, 4), "j < 3", False),  # the same for all of a row
        ((16, 4), "g < 3", False),
        ((8, 4), "j < 3", True),  # unrolled, with vectors along axis 1
        ((8, 4), "g < 3", False),
    ],
)
def test_conditions_guard_what_tells_neighbors_apart(
    items: tuple[int, int], condition: str, is_guarded: bool
) -> None:
    unit = made(
        f"{{[g, i, j]: 0 <= g < n and 0 <= i < {items[0]} and 0 <= j < {items[1]}}}",
        f"r[g, j, i] = 2 * a[g, j, i] {{if={condition}}}",
        f"a,r f32 n,{items[1]},{items[0]}; n i32",
        assumptions="n >= 4",
    )
    names = _site_names(lp.tag_inames(unit, {"g": "g.0", "i": "l.0", "j": "l.1"}))
    assert any(".guarded.gmem.store." in name for name in names) == is_guarded
    assert any(".guarded.gmem.load." in name for name in names) == is_guarded


@pytest.mark.parametrize("mean", [16, 12.5, 0])
def test_chains_along_loops_that_data_bound_have_their_mean_length(mean: float) -> None:
    entry = catalog.entry("spmv/random/128x1")
    statistics = {**entry.statistics_at(entry.check_parameters), "j": mean}
    vector = count_kernel(entry.build(), statistics=statistics, view="structure")
    counts = vector.evaluate(entry.check_parameters)
    chains = {name.partition(".chain.")[2]: n for name, n in _with(".chain.", counts).items()}
    assert chains == ({"fma.f32": mean * entry.check_parameters["n"]} if mean else {})
    assert not _with(".short.", counts)  # no compiler knows the mean


_SIZES = (160, 12288, 12304, 262144, 262160)
"""First- and second-level caches of 768 and 16384 lines keep 12288 and 262144 elements."""
_ROWS = """
for i
    <> start = t[i] {id=start}
    <> length = t[i + 1] - start {id=length, dep=start}
    out[i] = sum(j, x[start + j]) {dep=length:start}
end
"""


@pytest.mark.parametrize(
    ("instruction", "statistics", "steps", "number_of_bytes"),
    [
        pytest.param(
            "out[i] = x[t[i]]",
            {"x": "indirect"},
            {"data": [160, 12288], "data_l2_reuse": [12304, 262144], "data_beyond_l2": [262160]},
            4 * 160,  # those of the numbers alone
            id="anywhere in an array",
        ),
        # items whose data stays near still load one by one
        pytest.param("out[i] = x[t[i]]", {"x": "stride1"}, {"data": _SIZES}, 8 * 160, id="near"),
        pytest.param(
            _ROWS, {"x": "4ofn", "j": 5}, {"data.next": _SIZES}, None, id="rows walked evenly"
        ),
    ],
)
def test_loads_whose_addresses_are_read_from_data(
    instruction: str, statistics: Any, steps: Any, number_of_bytes: int | None
) -> None:
    domains = ["i<n", "{ [j]: 0 <= j < length }"] if "length" in instruction else "i<n"
    unit = made(domains, instruction, "t i32 n+1; x,out f32 n; n i32", split="i:16")
    counted = count_kernel(unit, view="structure", statistics=statistics)
    times = statistics.get("j", 1)
    by_step: dict[str, list[int]] = {}
    for size in _SIZES:
        counts = counted.evaluate(n=size)
        if size == 160 and number_of_bytes is not None:
            assert counts["bytes.group.load.dense"] == number_of_bytes
        for name, count in counts.items():
            step = name.partition("x1.gmem.load.32.")[2] if name.startswith("site") else ""
            if count and step not in ("", "next"):
                assert count == times * size
                by_step.setdefault(step, []).append(size)
    assert by_step == {step: list(sizes) for step, sizes in steps.items()}
