"""The structure of well-known kernels, derived by hand."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import loopy as lp
import numpy as np
import pytest

import countperf
from countperf.counting.access_analysis import AccessAnalysis
from countperf.counting.analysis import KernelAnalysis, analyze_kernel
from countperf.counting.structure import ChainAnalysis, GroupShape
from countperf.counting.transactions import bank_conflicts, transactions
from countperf.errors import (
    CountingError,
    DataDependentControlFlowError,
    ParameterError,
    UnsupportedExpressionError,
)
from countperf.report.analysis import MemoryGeometry
from countperf.report.analysis import analysis as printed
from tests.counting import applications
from tests.counting.structure_kernels import (
    recurrences,
    register_blocked_matmul,
    tiled_matmul,
    transpose,
)


def _access(analysis: KernelAnalysis, direction: str, array: str) -> AccessAnalysis:
    (found,) = (
        a for a in analysis.accesses if (a.access.direction, a.access.array) == (direction, array)
    )
    return found


def _strides(access: AccessAnalysis) -> dict[str, str]:
    return {
        s.kind + (f" {s.axis}" if s.iname is None or s.axis is not None else f" {s.iname}"): str(
            s.stride
        )
        for s in access.strides
    }


# {{{ tiled matrix product


@pytest.fixture(scope="module")
def matmul() -> KernelAnalysis:
    return analyze_kernel(tiled_matmul())


def test_strides_of_a_tiled_matmul_along_all_axes(matmul: KernelAnalysis) -> None:
    assert _strides(_access(matmul, "load", "a_fetch")) == {
        "local 0": "0",
        "local 1": "16",
        "group 0": "0",
        "group 1": "0",
        "barrier loop k_outer": "0",
        "loop k_inner": "1",
    }
    assert _strides(_access(matmul, "load", "b_fetch"))["local 0"] == "1"
    assert _strides(_access(matmul, "load", "b_fetch"))["loop k_inner"] == "16"
    assert _strides(_access(matmul, "load", "a")) == {
        "local 0": "1",
        "local 1": "n",
        "group 0": "0",
        "group 1": "16*n",
        "barrier loop k_outer": "16",
    }
    assert _strides(_access(matmul, "load", "b"))["barrier loop k_outer"] == "16*n"


def test_regions_of_a_tiled_matmul(matmul: KernelAnalysis) -> None:
    (program,) = matmul.programs
    assert program.shape == GroupShape(extents=(16, 16))
    assert [str(g) for g in program.groups] == ["(1/16)*n", "(1/16)*n"]
    init, fetch, product, store = program.regions
    assert [len(r.instructions) for r in (init, fetch, product, store)] == [1, 2, 1, 1]
    assert [r.ends_at_barrier for r in program.regions] == [False, True, False, False]
    assert [str(r.passes) for r in (init, store)] == ["(1/256)*n^2"] * 2
    assert [str(r.passes) for r in (fetch, product)] == ["(1/4096)*n^3"] * 2
    (barrier_loop,) = product.around
    assert (barrier_loop.kind, str(barrier_loop.trips)) == ("barrier loop", "(1/16)*n")
    assert str(barrier_loop.entries) == "n^2"
    (own_loop,) = product.loops
    assert (own_loop.iname, own_loop.kind, str(own_loop.trips)) == ("k_inner", "loop", "16")
    assert str(own_loop.iterations) == "n^3"
    assert str(own_loop.entries) == "(1/16)*n^3"
    assert not fetch.loops
    for instruction in fetch.instructions:
        assert instruction.executions == instruction.slots.count


def test_the_chain_of_a_tiled_matmul(matmul: KernelAnalysis) -> None:
    (chain,) = matmul.programs[0].regions[2].chains
    assert chain.operations == (("fma.f32", 1),)
    assert chain.loops == ("k_outer", "k_inner")
    assert str(chain.steps) == "n"  # 16 in each pass of the region, n / 16 passes
    assert str(chain.accumulators) == "1"


def test_footprints_and_storage_of_a_tiled_matmul(matmul: KernelAnalysis) -> None:
    sizes = {(f.array, f.direction): str(f.size_bytes) for f in matmul.footprints}
    assert sizes["a", "load"] == sizes["b", "load"] == sizes["c", "store"] == "4*n^2"
    assert sizes["a_fetch", "load"] == sizes["a_fetch", "any"] == "1024"
    (load,) = (f for f in matmul.footprints if f.array == "a")
    assert load.accesses_per_cell({"n": 256}) == 16
    storage = {s.name: (s.space, str(s.size_bytes)) for s in matmul.storage}
    assert storage["a_fetch"] == ("local", "1024")
    assert storage["acc_k_outer_k_inner"] == ("private", "4")


# }}}

# {{{ transposes


@pytest.mark.parametrize(
    ("tile", "padding", "size", "banks", "degree"),
    [
        (32, 0, 32, 32, 32),
        (32, 1, 32, 32, 1),
        (16, 0, 16, 16, 16),
        (16, 1, 16, 16, 1),
        (16, 0, 32, 32, 8),  # words 16 i and 16 i + 1: 8 of each of four banks
        (32, 0, 16, 32, 16),
        (32, 2, 32, 32, 2),
    ],
)
def test_bank_conflicts_of_transposes(
    tile: int, padding: int, size: int, banks: int, degree: int
) -> None:
    analysis = analyze_kernel(transpose(tile, padding))
    for parameters in (None, {"m": 3}):
        load, store = (
            bank_conflicts(
                _access(analysis, direction, "t"),
                parameters,
                banks=banks,
                bank_width_bytes=4,
                sub_group_size=size,
            )
            for direction in ("load", "store")
        )
        assert load.distribution[0][0] == load.maximum == degree
        assert store.maximum == (1 if padding < 2 else store.maximum)
        assert load.instructions == tile * tile // size * (1 if parameters is None else 9)


# }}}

# {{{ halos, blocking, layouts


def test_register_blocking_gives_independent_accumulators() -> None:
    analysis = analyze_kernel(register_blocked_matmul())
    (region,) = analysis.programs[0].regions
    (chain,) = region.chains
    assert str(chain.accumulators) == "4"
    assert str(chain.steps) == "n"
    assert chain.operations == (("fma.f32", 1),)
    copies = [loop for loop in region.loops if loop.kind == "unrolled"]
    assert {(loop.iname, str(loop.trips)) for loop in copies} == {("i_inner_outer", "4")}
    (accumulators,) = analysis.storage
    assert (accumulators.space, str(accumulators.size_bytes)) == ("private", "16")
    assert _strides(_access(analysis, "load", "a"))["unrolled i_inner_outer"] == "8*n"


def test_partial_groups_and_vectors() -> None:
    shape = GroupShape(extents=(24, 8))
    assert shape.items == 192
    assert shape.sub_groups(32) == (6, 0)
    assert GroupShape(extents=(18, 6)).sub_groups(32) == (3, 12)
    assert shape.vectors(16) == (1, 8, 8)
    assert GroupShape(extents=()).vectors(8) == (0, 1, 1)


# }}}

# {{{ chains


def _chains(body: str) -> list[ChainAnalysis]:
    analysis = analyze_kernel(recurrences(body))
    return [c for p in analysis.programs for r in p.regions for c in r.chains]


@pytest.mark.parametrize(
    ("update", "operations"),
    [
        ("x = x + a[i, k]", {"add.f32": 1}),
        ("x = x - a[i, k]*a[i, k]", {"fma.f32": 1}),
        ("x = x + a[i, k] + a[i, 0]*2.0", {"add.f32": 1, "fma.f32": 1}),
        ("x = a[i, k] + a[i, 0] + x", {"add.f32": 1}),
        ("x = a[i, k]*x", {"mul.f32": 1}),
        ("x = a[i, k]*x + 1.0", {"fma.f32": 1}),
        ("x = (x + 1.0)*(x + 2.0) / a[i, k]", {"add.f32": 1, "mul.f32": 1, "div.f32": 1}),
        ("x = fmax(x, a[i, k])", {"minmax.f32": 1}),
        ("x = exp(x)", {"special.f32": 1}),
        ("x = 3.0 if x > 1.0 else x", {"compare.f32": 1, "select.f32": 1}),
        ("x = x", {}),
    ],
)
def test_operations_of_a_chain(update: str, operations: dict[str, int]) -> None:
    (chain,) = _chains(f"for i, k\n {update}\nend\n")
    assert dict(chain.operations or ()) == operations
    assert (chain.loops, str(chain.steps), chain.span) == (("k",), "m", 1)


def test_a_chain_through_two_variables() -> None:
    body = """
    for i, k
        x = x - dt*y
        y = y + dt*x
    end
    """
    (chain,) = _chains(body)
    assert chain.variables == ("x", "y")
    assert chain.operations == (("fma.f32", 2),)


def test_a_chain_that_comes_back_after_two_iterations() -> None:
    body = """
    for i, k
        s = 2.0*y
        t = x + 1.0
        x = s
        y = t
    end
    """
    (chain,) = _chains(body)
    assert chain.span == 2
    assert chain.operations == (("add.f32", 1), ("mul.f32", 1))


def test_what_is_written_anew_in_each_iteration_carries_nothing() -> None:
    body = """
    for i, k
        s = a[i, k]
        s = s*s + 1.0
        t = s*2.0
    end
    """
    assert _chains(body) == []


def test_an_accumulator_set_to_zero_outside_the_inner_loop_is_carried_by_that_loop() -> None:
    kernel = lp.make_kernel(
        "{ [i, j, k] : 0 <= i, j, k < n }",
        "c[i, j] = sum(k, a[i, k])",
        [
            lp.GlobalArg("a,c", np.float32, shape=("n", "n")),
            lp.ValueArg("n", np.int32),
        ],
        assumptions="n >= 1",
        lang_version=(2018, 2),
    )
    kernel = lp.tag_inames(kernel, {"i": "g.0"})
    (chain,) = (c for r in analyze_kernel(kernel).programs[0].regions for c in r.chains)
    assert chain.loops == ("k",)
    assert chain.operations == (("add.f32", 1),)


# }}}

# {{{ data, results, refusals


def test_sparse_products_take_statistics() -> None:
    analysis = countperf.analyze_kernel(applications.spmv(), statistics={"j": 4})
    assert analysis.is_estimate == "j"
    values = _access(analysis, "load", "values")
    assert values.address is None
    assert str(values.stride("loop", "j").stride) == "1"
    assert "start" in values.stride("local", 0).reason
    assert _access(analysis, "load", "x").stride("loop", "j").stride is None
    (chain,) = (c for r in analysis.programs[0].regions for c in r.chains)
    assert (str(chain.steps), chain.operations) == ("4", (("fma.f32", 1),))
    assert "statistic" in chain.steps.reason
    footprints = {f.array: f for f in analysis.footprints}
    assert str(footprints["starts"].size_bytes) == "4*n + 4"
    assert "load x" in footprints["x"].cells.reason
    with pytest.raises(CountingError, match=r"load values.* the mean trip count of 'j' decides"):
        transactions(values, {"n": 8}, line_bytes=32, sub_group_size=4)
    with pytest.raises(CountingError, match="decides what is accessed"):
        footprints["x"].cells_at({"n": 8})


def test_a_probability_decides_what_is_touched() -> None:
    kernel: Any = lp.make_kernel(
        "{ [i] : 0 <= i < n }",
        "a[i] = 1.0 {id=some, if=b[i] > 0}",
        [lp.GlobalArg("a,b", np.float32, shape="n"), lp.ValueArg("n", np.int32)],
        assumptions="n >= 1",
        lang_version=(2018, 2),
    )
    kernel = lp.split_iname(kernel, "i", 8, outer_tag="g.0", inner_tag="l.0")
    analysis = analyze_kernel(kernel, statistics={"some": 0.5})
    store = _access(analysis, "store", "a")
    assert store.executions.evaluate({"n": 20}) == 10
    with pytest.raises(CountingError, match="probability of a condition"):
        transactions(store, {"n": 20}, line_bytes=32, sub_group_size=8)
    stored, loaded = sorted(analysis.footprints, key=lambda f: f.array)
    with pytest.raises(CountingError, match="probability of a condition"):
        stored.cells_at({"n": 20})
    assert loaded.cells_at({"n": 20}) == 20
    (region,) = printed(analysis, {"n": 20}).object()["programs"][0]["regions"]
    assert region["instructions"][0]["slots"]["value"] == 24


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Loopy's scans on newer islpy
def test_a_loop_that_runs_with_another_one_is_a_step_of_it() -> None:
    kernel: Any = lp.make_kernel(
        "{ [i, j] : 0 <= i < n and 0 <= j <= i }",
        "out[i] = sum(j, a[2*j])",
        [
            lp.GlobalArg("a", np.float32, shape="2*n"),
            lp.GlobalArg("out", np.float32, shape="n"),
            lp.ValueArg("n", np.int32),
        ],
        assumptions="n >= 1",
        lang_version=(2018, 2),
    )
    analysis = analyze_kernel(lp.realize_reduction(kernel, force_scan=True))
    assert str(_access(analysis, "load", "a").stride("loop", "i").stride) == "2"
    assert str(_access(analysis, "store", "out").stride("loop", "i").stride) == "1"


def test_an_analysis_is_json_and_text(matmul: KernelAnalysis) -> None:
    content = printed(matmul, {"n": 64}, memory=MemoryGeometry()).object()
    assert json.loads(json.dumps(content)) == content
    program = content["programs"][0]
    assert program["sub_groups"] == {"full": 8, "items_of_partial": 0}
    assert program["rows"] == {"number": 16, "full_vectors": 0, "items_left": 16}
    region = program["regions"][2]
    assert region["loops"][0]["trips"] == {"symbolic": "16", "value": 16}
    assert region["chains"][0]["operations"] == {"fma.f32": 1}
    store = content["accesses"][-1]
    assert store["transactions"]["transactions"] == 64 * 64 // 8
    local = next(a for a in content["accesses"] if a["address_space"] == "local")
    assert local["bank_conflicts"] == {"instructions": 64**3 // 16 // 32, "maximum": 1, "mean": 1}
    assert "value" not in printed(matmul).object()["accesses"][0]["executions"]
    text = printed(matmul, {"n": 64}, memory=MemoryGeometry()).text()
    chain = "variables acc_k_outer_k_inner; loops k_outer, k_inner; operations 1 fma.f32"
    assert chain in text
    assert "local 0: 1; local 1: n" in printed(matmul).text()
    assert str(matmul) == (
        "structure of loopy_kernel: 1 device programs, 7 accesses, 3 private and local arrays"
    )


def test_wrong_parameters_and_geometries_are_refused(matmul: KernelAnalysis) -> None:
    load = _access(matmul, "load", "a")
    for parameters, message in (
        ({}, "no value for parameter n"),
        ({"n": 16, "m": 3}, "no parameter m"),
        ({"n": 17}, "assumes"),
        ({"n": 1.5}, "pass an integer"),
    ):
        with pytest.raises(ParameterError, match=message):
            transactions(load, parameters, line_bytes=32, sub_group_size=32)  # pyright: ignore[reportArgumentType]
    with pytest.raises(CountingError, match="line_bytes is 0"):
        transactions(load, {"n": 16}, line_bytes=0, sub_group_size=32)
    with pytest.raises(CountingError, match="no access to local memory"):
        bank_conflicts(load, banks=32, bank_width_bytes=4, sub_group_size=32)


def test_a_pattern_that_depends_on_the_size_needs_parameters() -> None:
    kernel: Any = lp.make_kernel(
        "{ [g, i] : 0 <= g < n and 0 <= i < 16 }",
        """
        t[i] = a[16*g + i]              {id=fetch}
        ... lbarrier                    {id=wait, dep=fetch}
        b[g, i] = t[i] if i < n else 0  {id=use, dep=wait}
        """,
        [
            lp.GlobalArg("a", np.float32, shape="16*n"),
            lp.GlobalArg("b", np.float32, shape=("n", 16)),
            lp.TemporaryVariable("t", np.float32, shape=(16,), address_space=lp.AddressSpace.LOCAL),
            lp.ValueArg("n", np.int32),
        ],
        assumptions="n >= 1",
        lang_version=(2018, 2),
    )
    analysis = analyze_kernel(lp.tag_inames(kernel, {"g": "g.0", "i": "l.0"}))
    load = _access(analysis, "load", "t")
    conflicts = partial(bank_conflicts, banks=4, bank_width_bytes=4, sub_group_size=16)
    with pytest.raises(CountingError, match="pass parameters"):
        conflicts(load)
    assert [conflicts(load, {"n": n}).maximum for n in (3, 5, 30)] == [1, 2, 4]
    assert conflicts(_access(analysis, "store", "t")).maximum == 4


def test_instructions_without_a_rule_are_refused() -> None:
    kernel: Any = lp.make_kernel(
        "{ [i] : 0 <= i < n }",
        [lp.CInstruction("i", "x[i] = 1;", id="raw", assignees=("x[i]",))],
        [lp.GlobalArg("x", np.float32, shape="n"), lp.ValueArg("n", np.int32)],
        lang_version=(2018, 2),
    )
    with pytest.raises(UnsupportedExpressionError, match="raw"):
        analyze_kernel(kernel)


def test_statistics_are_checked() -> None:
    with pytest.raises(CountingError, match="at least zero"):
        analyze_kernel(applications.spmv(), statistics={"j": -1})
    with pytest.raises(DataDependentControlFlowError, match="length"):
        analyze_kernel(applications.spmv())


def test_sizes_beyond_enumeration_are_refused_by_name() -> None:
    load = _access(analyze_kernel(applications.trmm()), "load", "a")
    with pytest.raises(CountingError, match="choose smaller parameters"):
        transactions(load, {"n": 10**5, "m": 4}, line_bytes=32, sub_group_size=8)


# }}}
