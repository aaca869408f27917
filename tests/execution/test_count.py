"""How kernels are executed: against the compiler's view, the analysis, and enumeration."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise, product
from typing import Any

import loopy as lp
import numpy as np
import pytest

import countperf
from countperf.counting.analysis import distinct_bytes, footprints_of
from countperf.counting.copies import generated
from countperf.execution.count import count_execution
from countperf.execution.issue import ExecutionPolicy, apply_policy
from countperf.execution.keys import FootprintKey
from countperf.properties.count_properties import count_kernel
from measurement_kernels import catalog

_KERNELS = tuple(
    each
    for number, each in enumerate(catalog.entries(purpose=None, element_type=None))
    if number % 12 == 0 and each.family != "empty"
)


def _sums(counts: dict[str, Any]) -> Counter[str]:
    """Add up over sites and steps: by kind and type, by space, direction and size."""
    found: Counter[str] = Counter()
    for name, count in counts.items():
        match name.split("."):
            case ["site", _, _, _, ("flop" | "iop") as root, *rest]:
                found[".".join([root, *rest])] += count
            case ["site", _, _, _, ("gmem" | "lmem") as root, direction, bits, *_]:
                found[f"{root}.{direction}.{bits}"] += count
            case _:
                pass
    return found


@pytest.mark.parametrize("entry", _KERNELS, ids=lambda e: e.name)
def test_sites_add_up_to_what_a_compiler_leaves(entry: Any) -> None:
    structure = count_kernel(entry.build(), view="structure")
    compiled = count_kernel(entry.build(), view="compiled")
    values = entry.parameters(entry.exponents[2])
    values = {n: values[n] for n in structure.parameters}
    expected: Counter[str] = Counter()
    for name, count in compiled.evaluate(values).items():
        match name.split("."):
            case [("flop" | "iop"), *_]:
                expected[name] += count
            case ["gmem" | "lmem" as root, ("load" | "store") as direction, bits, *_]:
                expected[f"{root}.{direction}.{bits}"] += count
            case _:
                pass
    assert _sums(structure.evaluate(values)) == expected
    assert structure.emitted() == count_kernel(entry.build())


@pytest.mark.parametrize("entry", _KERNELS[::2], ids=lambda e: e.name)
def test_bytes_are_the_footprints_of_the_analysis(entry: Any) -> None:
    found = count_execution(entry.build())
    analysis = countperf.analyze_kernel(entry.build())
    values = {n: entry.check_parameters[n] for n in found.prepared.parameters}
    expected = distinct_bytes(footprints_of(analysis.accesses), values)
    counted = {
        key.direction: int(count.evaluate(values))
        for key, count in found.counts.items()
        if isinstance(key, FootprintKey) and key.of == "bytes.kernel"
    }
    assert counted == {name: number for name, number in expected.items() if number}


def test_bytes_of_groups_by_enumeration() -> None:
    t_unit = lp.make_kernel(
        "{ [i, j]: 0 <= i < n and 0 <= j < 3 }",
        "out[i] = sum(j, a[i + 2*j])",
        assumptions="n >= 1",
        lang_version=(2018, 2),
    )
    t_unit = lp.add_and_infer_dtypes(t_unit, {"a": np.float32})
    t_unit = lp.split_iname(t_unit, "i", 16, outer_tag="g.0", inner_tag="l.0")
    found = count_execution(t_unit)
    for n in (1, 15, 16, 17, 50, 64):
        cells = {(i // 16, i + 2 * j) for i, j in product(range(n), range(3))}
        by_group = found.counts[FootprintKey("bytes.group", "load", "dense")].evaluate({"n": n})
        assert by_group == 4 * len(cells)
        in_all = found.counts[FootprintKey("bytes.kernel", "load")].evaluate({"n": n})
        assert in_all == 4 * len({c for _, c in cells})


def _first_columns(pitch: Any, count: int = 1) -> Any:
    """Make a kernel that sums the first elements of rows, a row for each of 16 items."""
    t_unit = lp.make_kernel(
        f"[n, p] -> {{ [i, j]: 0 <= i < n and 0 <= j < {count} }}",
        "out[i] = sum(j, a[i, j])",
        [
            lp.GlobalArg("a", np.float32, shape=("n", pitch)),
            lp.GlobalArg("out", np.float32, shape="n"),
            lp.ValueArg("n, p", np.int32),
        ],
        assumptions="n >= 16 and n mod 16 = 0 and p >= 1",
        lang_version=(2018, 2),
    )
    return lp.split_iname(t_unit, "i", 16, outer_tag="g.0", inner_tag="l.0")


@pytest.mark.parametrize("pitch", [1, 3, 15, 16, 40, "p"])
@pytest.mark.parametrize("count", [1, 40])
def test_pieces_end_where_a_line_lies_between(pitch: Any, count: int) -> None:
    if isinstance(pitch, int) and count > pitch:
        pytest.skip("rows are shorter")
    if pitch == "p" and count > 1:
        pytest.skip("whole rows of a length that is a symbol are pieces of their own")
    found = count_execution(_first_columns(pitch, count))
    for p in range(1, 40) if pitch == "p" else (pitch,):
        sizes = {"n": 64, "p": p}
        cells = sorted({p * i + j for i in range(16) for j in range(count)})
        pieces = 4 * (1 + sum(b - a >= 16 for a, b in pairwise(cells)))
        assert found.counts[FootprintKey("segments.group", "load")].evaluate(sizes) == pieces
        density = "sparse" if p - (count - 1) >= 16 else "dense"
        between = {
            key.density: count.evaluate(sizes)
            for key, count in found.counts.items()
            if isinstance(key, FootprintKey) and (key.of, key.direction) == ("bytes.group", "load")
        }
        least = 1 if count > 1 else p
        expected = 4 * 4 * len(cells) * (1 if density == "sparse" else least)  # of 4 groups
        assert {d: b for d, b in between.items() if b} == {density: expected}


def test_steps_by_a_symbol_are_near_where_it_is_small() -> None:
    counts = count_kernel(_first_columns("p"), view="structure")
    for p in (1, 2, 15, 16, 17, 1000):
        steps = {
            name.partition(".gmem.load.32.")[2].partition(".")[0]
            for name, count in counts.evaluate(n=64, p=p).items()
            if count and name.startswith("site") and ".gmem.load.32." in name
        }
        assert steps == {"near" if p < 16 else "l1_reuse"}


def _site_names(t_unit: Any) -> set[str]:
    return {n for n in count_kernel(t_unit, view="structure") if n.startswith("site.")}


def test_sites_and_steps_of_a_column_sum() -> None:
    t_unit = lp.make_kernel(
        "{ [i, j]: 0 <= i < n and 0 <= j < m }",
        "out[i] = sum(j, a[j, i])",
        assumptions="n >= 1 and m >= 1",
        lang_version=(2018, 2),
    )
    t_unit = lp.add_and_infer_dtypes(t_unit, {"a": np.float32})
    t_unit = lp.split_iname(t_unit, "i", 32, outer_tag="g.0", inner_tag="l.0")
    names = _site_names(t_unit)
    assert "site.free.loop.32x1.gmem.load.32.next.l1_reuse" in names
    assert "site.free.loop.32x1.chain.add.f32" in names
    assert "site.free.flat.32x1.gmem.store.32.next" in names


def test_idle_slots_of_a_guarded_fetch() -> None:
    entry = catalog.entry("finite-differences/16x16/f32")
    found = count_kernel(entry.build(), view="structure").evaluate(n=1024)
    groups = (1024 // 16) ** 2
    # 18 x 18 points by 16 x 16 items, two rounds along each axis
    assert found["site.sync.short.16x16.idle"] == groups * (4 * 256 - 18 * 18)


def _blocked_product(block: str) -> Any:
    """Return 16 items that each sum 2 x 3 products, with a tile of one matrix in local memory."""
    t_unit = lp.make_kernel(
        "{ [i, j, k]: 0 <= i < 2 and 0 <= j < 48 and 0 <= k < 8*n }",
        "c[i, j] = sum(k, a[i, k] * b[k, j])",
        assumptions="n >= 1",
        lang_version=(2018, 2),
    )
    t_unit = lp.add_and_infer_dtypes(t_unit, {"a": np.float32, "b": np.float32})
    silenced = t_unit.default_entrypoint.copy(silenced_warnings=["v1_scheduler_fallback"])
    t_unit = t_unit.with_kernel(silenced)
    t_unit = lp.split_iname(t_unit, "j", 16, inner_tag="l.0", outer_tag=block)
    t_unit = lp.tag_inames(t_unit, {"i": block})
    t_unit = lp.split_iname(t_unit, "k", 8)
    return lp.add_prefetch(
        t_unit,
        "a",
        ["i", "k_inner"],
        fetch_outer_inames=frozenset(["k_outer", "j_inner"]),
        default_tag=None,
        temporary_address_space=lp.AddressSpace.LOCAL,
    )


def test_loops_over_copies_are_short_loops_through_private_arrays() -> None:
    looped = count_kernel(_blocked_product("ilp.seq"), view="structure").evaluate(n=5)
    written_out = count_kernel(_blocked_product("ilp"), view="structure").evaluate(n=5)
    updates = 2 * 3 * 40 * 16
    stores = {n: c for n, c in looped.items() if ".pmem.store" in n}
    # beside the updates, the accumulators are set to zero, in the short loops alone
    assert stores == {
        "site.sync.short.16x1.pmem.store.6": 2 * 3 * 16,
        "site.sync.loop.16x1.pmem.store.6": updates,
    }
    assert not any(".pmem." in name for name in written_out)
    for counts in (looped, written_out):
        assert sum(c for n, c in counts.items() if n.endswith(".flop.fma.f32")) == updates
        assert sum(c for n, c in counts.items() if n.endswith(".carried")) == updates


@pytest.mark.parametrize(("block", "values"), [("ilp", 6), ("ilp.seq", 1)])
def test_results_that_wait_at_barriers(block: str, values: int) -> None:
    """Each in an array of the group's; copies in loops of their own in one."""
    counts = count_kernel(_blocked_product(block), view="structure").evaluate(n=5)
    kept = {n: c for n, c in counts.items() if ".live_across_barrier." in n}
    assert kept == {f"site.sync.flat.16x1.live_across_barrier.{values}.32": 2 * 3 * 5 * 16}


def test_the_longest_of_the_chains_that_wait_together() -> None:
    t_unit = lp.make_kernel(
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
        [lp.GlobalArg("a, out", np.float32, shape=32), lp.ValueArg("n", np.int32)],
        assumptions="n >= 1",
        lang_version=(2018, 2),
    )
    t_unit = lp.tag_inames(t_unit, {"i": "l.0"})
    counts = count_kernel(t_unit, view="structure").evaluate(n=10)
    chains = {n: c for n, c in counts.items() if ".chain." in n}
    assert chains == {
        "site.free.loop.32x1.chain.add.f32": 320,
        "site.free.loop.32x1.chain.mul.f32": 320,
    }
    assert counts["site.free.loop.32x1.carried"] == 2 * 320


def test_long_code_outside_of_loops_is_flat() -> None:
    copies = "+".join(f"a[{32 * j} + i + y] * {j + 2}" for j in range(40))
    for rows in (8, 1):
        t_unit = lp.make_kernel(
            f"{{ [i, y]: 0 <= i < 8 and 0 <= y < {rows} }}",
            f"out[i, y] = {copies}",
            [
                lp.GlobalArg("a", np.float32, shape=2000),
                lp.GlobalArg("out", np.float32, shape=(8, rows)),
            ],
            lang_version=(2018, 2),
        )
        t_unit = lp.tag_inames(t_unit, {"i": "l.0", "y": "l.1"})
        counts = count_kernel(t_unit, view="structure").evaluate()
        assert counts[f"site.free.flat.8x{rows}.flop.fma.f32"] == 39 * 8 * rows


@pytest.mark.parametrize(
    ("tag", "copies", "statement"),
    [
        ("unr", 4, "out[j, i] = fmin(a[j, i], b[i])"),
        ("ilp", 4, "out[j, i] = fmin(a[j, i], b[i])"),
        ("unr", 2, "out[j, i] = fmin(a[j, i], exp(b[i]))"),
        ("g.0", 4, "out[j, i] = fmin(a[j, i], b[i])"),
        ("unr", 4, "b[i] = fmin(a[j, i], b[i])"),  # each waits for the one before
    ],
)
def test_copies_of_minima_run_in_vectors_of_items(tag: str, copies: int, statement: str) -> None:
    t_unit = lp.make_kernel(
        f"{{ [i, j]: 0 <= i < 32 and 0 <= j < {copies} }}",
        statement,
        [
            lp.GlobalArg("a, out", np.float32, shape=(4, 32)),
            lp.GlobalArg("b", np.float32, shape=32),
        ],
        silenced_warnings=["v1_scheduler_fallback"],
        lang_version=(2018, 2),
    )
    counts = count_kernel(lp.tag_inames(t_unit, {"i": "l.0", "j": tag}), view="structure")
    operations = {n: c for n, c in counts.evaluate().items() if ".flop." in n}
    assert {name.split(".")[2] for name in operations} == {"flat"}
    assert operations["site.free.flat.32x1.flop.minmax.f32"] == 32 * copies

    as_items = apply_policy(ExecutionPolicy(), operations)
    assert set(as_items.values()) == {operation / 16 for operation in operations.values()}
    assert all(name.startswith("issue.vector") for name in as_items)


def test_copies_behind_barriers_are_not_packed() -> None:
    t_unit = lp.make_kernel(
        "{ [i, j, k]: 0 <= i, k < 32 and 0 <= j < 4 }",
        """
        <float32> tile[k] = a[k] {id=fetch}
        out[j, i] = fmin(tile[31 - i], b[j, i]) {dep=fetch}
        """,
        [
            lp.GlobalArg("b, out", np.float32, shape=(2, 32)),
            lp.GlobalArg("a", np.float32, shape=32),
        ],
        lang_version=(2018, 2),
    )
    t_unit = lp.set_temporary_address_space(t_unit, "tile", "local")
    t_unit = lp.tag_inames(t_unit, {"i": "l.0", "k": "l.0", "j": "unr"})
    assert "site.sync.flat.32x1.flop.minmax.f32" in count_kernel(t_unit, view="structure")


def test_functions_of_two_types_keep_their_kind_in_chains() -> None:
    t_unit = lp.make_kernel(
        "{ [k]: 0 <= k < n }",
        """
        <float32> s = a[0] {id=s}
        <float64> t = b[0] {id=t}
        s = fmin(s, a[k]) {id=least, dep=s}
        t = fmin(t, b[k])*b[k] {id=step, dep=t}
        out[0] = s + t {dep=least:step}
        """,
        [
            lp.GlobalArg("a", np.float32, shape="n"),
            lp.GlobalArg("b, out", np.float64, shape="n"),
            lp.ValueArg("n", np.int32),
        ],
        assumptions="n >= 1",
        lang_version=(2018, 2),
    )
    counts = count_kernel(t_unit, view="structure").evaluate(n=10)
    chains = {name: count for name, count in counts.items() if ".chain." in name}
    assert {name.split(".chain.")[1] for name in chains} == {"minmax.f64", "mul.f64"}


def test_chains_along_short_loops_do_not_wait() -> None:
    t_unit = lp.make_kernel(
        "{ [i, j, k]: 0 <= i < 16 and 0 <= j < 5 and 0 <= k < 3 }",
        "out[i] = sum((j, k), a[j, k, i])",
        [
            lp.GlobalArg("a", np.float32, shape=(5, 3, 16)),
            lp.GlobalArg("out", np.float32, shape=16),
        ],
        lang_version=(2018, 2),
    )
    counts = count_kernel(lp.tag_inames(t_unit, {"i": "l.0"}), view="structure").evaluate()
    chains = {name: count for name, count in counts.items() if ".chain." in name}
    assert chains == {"site.free.short.16x1.chain.add.f32": 5 * 3 * 16}

    chains["site.free.loop.16x1.chain.add.f32"] = 1000
    policy = ExecutionPolicy(vectorized="flat")  # the short loop is unrolled
    assert apply_policy(policy, chains) == {"issue.scalar.chain.f32.add": 1000}


def test_a_policy_has_at_most_ten_options() -> None:
    assert len(ExecutionPolicy.model_fields) <= 10


@pytest.mark.parametrize(
    ("groups", "launches", "rounds"),
    [(1, 1, 2), (2, 1, 1), (3, 1, 4 / 3), (8, 1, 1), (2, 2, 2), (0, 1, 2)],
)
def test_groups_run_in_rounds_of_as_many_as_a_device_has_units(
    groups: int, launches: int, rounds: float
) -> None:
    from countperf.models import structural
    from countperf.models.function import ModelFunction, model_inputs

    model = structural.structural(ExecutionPolicy(units=2))
    counts = {"groups": groups, "launches": launches, "site.free.loop.16x1.flop.add.f32": 160}
    inputs = model_inputs(model, {name: count for name, count in counts.items() if count})
    assert inputs.variables["rounds"] == pytest.approx(rounds)
    function = ModelFunction(model=model, columns=tuple(inputs.values))
    values = np.array(list(inputs.values.values()))
    weights = [1.0 if term == "launch" else 0.25 for term, _ in function.columns]
    time = weights @ function.scaled(values, inputs.variables)
    assert time == pytest.approx(launches + rounds * (groups + 10) / 4)


@pytest.mark.parametrize(
    ("pieces", "shares"), [(4, (0, 0)), (8, (0.5, 0)), (32, (0.875, 0.5)), (0, (0, 0))]
)
def test_bytes_in_more_pieces_than_prefetchers_follow(
    pieces: int, shares: tuple[float, float]
) -> None:
    from countperf.models import structural
    from countperf.models.function import model_inputs

    counts = {
        "groups": 10,
        "segments.group.load": 10 * pieces / 2,
        "segments.group.store": 10 * pieces / 2,
        "bytes.group.load.dense": 1000,
        "bytes.kernel.load": 1 << 21,
    }
    counts = {name: count for name, count in counts.items() if count}
    inputs = model_inputs(structural.structural(ExecutionPolicy()), counts)
    beyond = [
        inputs.values.get(("traffic", f"load_beyond_streams{number}"), 0) for number in (4, 16)
    ]
    assert beyond == [pytest.approx(500 * share) for share in shares]  # half are beyond 1 MiB


def test_calls_that_not_all_items_make_are_conditional_in_vectors() -> None:
    def names(condition: str, function: str) -> set[str]:
        t_unit = lp.make_kernel(
            "{[g, i, k]: 0 <= g < n and 0 <= i < 16 and 0 <= k < m}",
            f"""
            for g, i
                <> s = 0 {{id=begin}}
                for k
                    s = s + ({function} if {condition} else 0) {{id=add, dep=begin}}
                end
                r[g, i] = s {{dep=add}}
            end
            """,
            [
                lp.GlobalArg("a", np.float32, shape="n, m, 16"),
                lp.GlobalArg("r", np.float32, shape="n, 16"),
                ...,
            ],
            assumptions="n >= 1 and m >= 1",
            lang_version=(2018, 2),
        )
        t_unit = lp.tag_inames(t_unit, {"g": "g.0", "i": "l.0"})
        return {name for name in _site_names(t_unit) if "special" in name or "cond" in name}

    here = "site.free.loop.16x1.flop"
    assert names("i != k", "exp(a[g, k, i])") == {f"{here}.conditional.f32.exp"}
    assert names("g != k", "exp(a[g, k, i])") == {f"{here}.special.f32.exp"}
    policy = ExecutionPolicy(width=16, remainder="scalar")
    counts = {"site.free.loop.24x1.flop.conditional.f32.rsqrt": 24}
    assert apply_policy(policy, counts) == {
        "issue.vector.conditional.f32.rsqrt": 1,
        "issue.scalar.special.f32.rsqrt": 8,
    }
    counts = {"site.free.flat.16x1.flop.conditional.f32.fabs": 16}
    assert apply_policy(policy, counts) == {"issue.vector.minor.f32.fabs": 1}


@pytest.mark.parametrize("entry", _KERNELS[::2], ids=lambda e: e.name)
def test_accesses_are_guarded_where_the_code_tells_items_apart(entry: Any) -> None:
    code = generated(entry.build()).device_code()
    lines = [line.strip() for line in code.splitlines()]
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
        found = counts.evaluate(n=n, m=m)
        for kind, each in (("load", 5), ("store", 1)):
            name = f"gmem.{kind}.32.next"
            assert found[f"{site}.{name}"] == found[f"{site}.guarded.{name}"] == each * n * m


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
    t_unit = lp.make_kernel(
        f"{{[g, i, j]: 0 <= g < n and 0 <= i < {items[0]} and 0 <= j < {items[1]}}}",
        f"r[g, j, i] = 2 * a[g, j, i] {{if={condition}}}",
        [
            lp.GlobalArg("a", np.float32, shape=("n", *items[::-1])),
            lp.GlobalArg("r", np.float32, shape=("n", *items[::-1])),
            ...,
        ],
        assumptions="n >= 4",
        lang_version=(2018, 2),
    )
    t_unit = lp.tag_inames(t_unit, {"g": "g.0", "i": "l.0", "j": "l.1"})
    names = _site_names(t_unit)
    assert any(".guarded.gmem.store." in name for name in names) == is_guarded
    assert any(".guarded.gmem.load." in name for name in names) == is_guarded


@pytest.mark.parametrize("mean", [16, 12.5, 0])
def test_chains_along_loops_that_data_bound_have_their_mean_length(mean: float) -> None:
    each = catalog.entry("spmv/random/128x1")
    statistics = {**each.statistics_at(each.check_parameters), "j": mean}
    vector = count_kernel(each.build(), statistics=statistics, view="structure")
    counts = vector.evaluate(each.check_parameters)
    chains = {name.partition(".chain.")[2]: n for name, n in counts.items() if ".chain." in name}
    assert chains == ({"fma.f32": mean * each.check_parameters["n"]} if mean else {})
    assert not any(".short." in name for name in counts)  # no compiler knows the mean


_SIZES = (160, 12288, 12304, 262144, 262160)
"""First- and second-level caches of 768 and 16384 lines keep 12288 and 262144 elements."""


def _through_data(instruction: str, *loops: str, **statistics: Any) -> dict[str, dict[int, int]]:
    """Return steps and bytes of the loads of a kernel whose addresses are read from data."""
    t_unit = lp.make_kernel(
        ["{ [i]: 0 <= i < n }", *loops],
        instruction,
        [
            lp.GlobalArg("t,starts", np.int32, shape="n + 1"),
            lp.GlobalArg("x", np.float32, shape="n"),
            lp.GlobalArg("out", np.float32, shape="n"),
            lp.ValueArg("n", np.int32),
        ],
        assumptions="n >= 1",
        lang_version=(2018, 2),
    )
    t_unit = lp.remove_unused_arguments(t_unit)
    t_unit = lp.split_iname(t_unit, "i", 16, outer_tag="g.0", inner_tag="l.0")
    counted = count_kernel(t_unit, view="structure", statistics=statistics)
    found: dict[str, dict[int, int]] = {}
    for size in _SIZES:
        for name, count in counted.evaluate(n=size).items():
            step = name.partition("x1.gmem.load.32.")[2] if name.startswith("site") else ""
            if count and (step or name.startswith("bytes.group.load")):
                found.setdefault(step or name, {})[size] = int(count)
    return found


def test_data_leads_anywhere_in_an_array() -> None:
    found = _through_data("out[i] = x[t[i]]", x="indirect")
    assert {step: list(at) for step, at in found.items()} == {
        "next": list(_SIZES),
        "data": [160, 12288],
        "data_l2_reuse": [12304, 262144],
        "data_beyond_l2": [262160],
        "bytes.group.load.dense": list(_SIZES),
    }
    assert found["bytes.group.load.dense"][160] == 4 * 160  # those of the numbers alone


def test_items_whose_data_stays_near_still_load_one_by_one() -> None:
    found = _through_data("out[i] = x[t[i]]", x="stride1")
    assert set(found) == {"next", "data", "bytes.group.load.dense"}
    assert found["data"][262160] == 262160
    assert found["bytes.group.load.dense"][160] == 8 * 160


def test_rows_that_data_bounds_are_walked_evenly() -> None:
    found = _through_data(
        """
        for i
            <> start = starts[i] {id=start}
            <> length = starts[i + 1] - start {id=length, dep=start}
            out[i] = sum(j, x[start + j]) {dep=length:start}
        end
        """,
        "{ [j]: 0 <= j < length }",
        x="4ofn",
        j=5,
    )
    assert set(found) == {"next", "data.next", "bytes.group.load.dense"}
    assert found["data.next"][160] == 5 * 160
