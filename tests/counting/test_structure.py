"""The structure of well-known kernels, derived by hand."""

from __future__ import annotations

import json
from functools import partial

import loopy as lp
import pytest

import countperf
from countperf.counting.access_analysis import AccessAnalysis, bank_conflicts, transactions
from countperf.counting.analysis import KernelAnalysis, analyze_kernel, footprints_of
from countperf.counting.program_analysis import ChainAnalysis
from countperf.counting.scopes import slots_of
from countperf.errors import CountingError, ParameterError
from tests.counting import applications
from tests.counting.structure_kernels import recurrences, register_blocked_matmul, tiled_matmul
from tests.kernels import made


def _access(analysis: KernelAnalysis, direction: str, array: str) -> AccessAnalysis:
    wanted = (direction, array)
    (access,) = (a for a in analysis.accesses if (a.access.direction, a.access.array) == wanted)
    return access


def _strides(access: AccessAnalysis) -> dict[str, str]:
    return {
        s.kind + (f" {s.axis}" if s.iname is None or s.axis is not None else f" {s.iname}"): str(
            s.stride
        )
        for s in access.strides
    }


@pytest.fixture(scope="module")
def matmul() -> KernelAnalysis:
    return analyze_kernel(tiled_matmul())


def test_regions_of_a_tiled_matmul(matmul: KernelAnalysis) -> None:
    (program,) = matmul.programs
    assert program.shape == (16, 16)
    assert [str(g) for g in program.groups] == ["(1/16)*n", "(1/16)*n"]
    init, fetch, product, store = program.regions
    assert [len(r.instructions) for r in (init, fetch, product, store)] == [1, 2, 1, 1]
    assert [str(r.passes) for r in (init, store)] == ["(1/256)*n^2"] * 2
    assert [str(r.passes) for r in (fetch, product)] == ["(1/4096)*n^3"] * 2
    assert product.barrier_loops == ("k_outer",)
    (own_loop,) = product.loops
    assert own_loop.iname == "k_inner"
    assert str(own_loop.iterations) == "n^3"
    assert str(own_loop.entries) == "(1/16)*n^3"
    assert not fetch.loops
    for instruction in fetch.instructions:
        assert instruction.executions == slots_of(instruction.scope)


def test_the_chain_of_a_tiled_matmul(matmul: KernelAnalysis) -> None:
    (chain,) = matmul.programs[0].regions[2].chains
    assert chain.operations == (("fma.f32", 1),)
    assert chain.loops == ("k_outer", "k_inner")
    assert str(chain.steps) == "n"  # 16 in each pass of the region, n / 16 passes
    assert chain.side_by_side == 1


def test_register_blocking_gives_independent_accumulators() -> None:
    analysis = analyze_kernel(register_blocked_matmul())
    (region,) = analysis.programs[0].regions
    (chain,) = region.chains
    assert chain.side_by_side == 4
    assert str(chain.steps) == "n"
    assert chain.operations == (("fma.f32", 1),)
    assert [loop.iname for loop in region.loops] == [chain.loops[0]]
    assert _strides(_access(analysis, "load", "a"))["unrolled i_inner_outer"] == "8*n"


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
        ("x = x - dt*y\n y = y + dt*x", {"fma.f32": 2}),
    ],
)
def test_operations_of_a_chain(update: str, operations: dict[str, int]) -> None:
    (chain,) = _chains(f"for i, k\n {update}\nend\n")
    assert dict(chain.operations) == operations
    assert chain.variables == tuple(line.split()[0] for line in update.splitlines())
    assert (chain.loops, str(chain.steps)) == (("k",), "m")


def test_what_is_written_anew_in_each_iteration_carries_nothing() -> None:
    assert _chains("for i, k\n s = a[i, k]\n s = s*s + 1.0\n t = s*2.0\nend\n") == []


def test_an_accumulator_set_to_zero_outside_the_inner_loop_is_carried_by_that_loop() -> None:
    kernel = made(
        "i<n, j<n, k<n", "c[i, j] = sum(k, a[i, k])", "a,c f32 n,n; n i32", tags={"i": "g.0"}
    )
    (chain,) = (c for r in analyze_kernel(kernel).programs[0].regions for c in r.chains)
    assert chain.loops == ("k",)
    assert chain.operations == (("add.f32", 1),)


def test_sparse_products_take_statistics() -> None:
    analysis = countperf.analyze_kernel(applications.spmv(), statistics={"j": 4})
    assert analysis.is_estimate == "j"
    values = _access(analysis, "load", "values")
    assert values.address is None
    assert _strides(values)["loop j"] == "1"
    assert _strides(values)["local 0"] == "None"
    assert _strides(_access(analysis, "load", "x"))["loop j"] == "None"
    (chain,) = (c for r in analysis.programs[0].regions for c in r.chains)
    assert (str(chain.steps), chain.operations) == ("4", (("fma.f32", 1),))
    footprints = {f.array: f for f in footprints_of(analysis.accesses)}
    assert str(footprints["starts"].cells) == "n + 1"
    assert footprints["x"].cells is None
    with pytest.raises(CountingError, match=r"load values.* the mean trip count of 'j' decides"):
        transactions(values, {"n": 8}, line_bytes=32, sub_group_size=4)
    with pytest.raises(CountingError, match="decides what is accessed"):
        footprints["x"].cells_at({"n": 8})


def test_a_probability_decides_what_is_touched() -> None:
    kernel = made("i<n", "a[i] = 1.0 {id=some, if=b[i] > 0}", "a,b f32 n; n i32", split="i:8")
    analysis = analyze_kernel(kernel, statistics={"some": 0.5})
    store = _access(analysis, "store", "a")
    assert store.executions.evaluate({"n": 20}) == 10
    with pytest.raises(CountingError, match="probability of a condition"):
        transactions(store, {"n": 20}, line_bytes=32, sub_group_size=8)
    stored, loaded = sorted(footprints_of(analysis.accesses), key=lambda f: f.array)
    with pytest.raises(CountingError, match="probability of a condition"):
        stored.cells_at({"n": 20})
    assert loaded.cells_at({"n": 20}) == 20
    (instruction,) = analysis.programs[0].instructions
    slots = slots_of(instruction.scope)
    assert slots is not None
    assert slots.evaluate({"n": 20}) == 24


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Loopy's scans on newer islpy
def test_a_loop_that_runs_with_another_one_is_a_step_of_it() -> None:
    kernel = made(
        "{ [i, j] : 0 <= i < n and 0 <= j <= i }",
        "out[i] = sum(j, a[2*j])",
        "a f32 2*n; out f32 n; n i32",
    )
    analysis = analyze_kernel(lp.realize_reduction(kernel, force_scan=True))
    assert _strides(_access(analysis, "load", "a"))["loop i"] == "2"
    assert _strides(_access(analysis, "store", "out"))["loop i"] == "1"


def test_an_analysis_is_printed_in_rows(matmul: KernelAnalysis) -> None:
    content = matmul.lay_out({"n": 64}).object()
    assert json.loads(json.dumps(content)) == content
    rows = {(row["kind"], row["name"]): row for row in content["rows"]}
    assert rows["loop", "k_inner"]["count"] == "n^3"
    assert rows["loop", "k_inner"]["value"] == 64**3
    chain = "1 fma.f32 in k_outer, k_inner; 1 side by side"
    assert rows["chain", "acc_k_outer_k_inner"]["detail"] == chain
    store = content["rows"][-1]["detail"]
    assert store.endswith(f"; {64 * 64 // 8} transactions of 32 bytes")
    passes = 64**3 // 16 // 32
    assert sum(f"; {passes} passes of {passes} over" in r["detail"] for r in rows.values()) == 2
    assert "value" not in matmul.lay_out().object()["rows"][0]
    assert chain in matmul.lay_out({"n": 64}).text()
    assert "local 0 i_inner: 1" not in matmul.lay_out().text()
    assert str(matmul) == "structure of loopy_kernel: 1 device programs, 7 accesses"


def test_wrong_parameters_and_geometries_are_refused(matmul: KernelAnalysis) -> None:
    load = _access(matmul, "load", "a")
    with pytest.raises(ParameterError, match="assumes"):
        transactions(load, {"n": 17}, line_bytes=32, sub_group_size=32)
    with pytest.raises(CountingError, match="lines of 0 bytes"):
        transactions(load, {"n": 16}, line_bytes=0, sub_group_size=32)
    with pytest.raises(CountingError, match="no access to local memory"):
        bank_conflicts(load, {"n": 16}, sub_group_size=32)


def test_a_pattern_may_depend_on_the_size() -> None:
    kernel = made(
        "g<n, i<16",
        """
        t[i] = a[16*g + i]              {id=fetch}
        ... lbarrier                    {id=wait, dep=fetch}
        b[g, i] = t[i] if i < n else 0  {id=use, dep=wait}
        """,
        "a f32 16*n; b f32 n,16; t f32 16 local; n i32",
    )
    analysis = analyze_kernel(lp.tag_inames(kernel, {"g": "g.0", "i": "l.0"}))
    load = _access(analysis, "load", "t")
    conflicts = partial(bank_conflicts, banks=4, bank_width_bytes=4, sub_group_size=16)
    highest = [max(dict(conflicts(load, {"n": n}).distribution)) for n in (3, 5, 30)]
    assert highest == [1, 2, 4]
    assert conflicts(_access(analysis, "store", "t"), {"n": 3}).distribution == ((4, 3),)


def test_sixteen_patterns_are_told_apart() -> None:
    kernel = made(
        "g<n, i<16, k<16",
        """
        t[i] = a[16*g + i]                {id=fetch}
        ... lbarrier                      {id=wait, dep=fetch}
        b[g, i] = sum(k, t[i * k])        {dep=wait}
        """,
        "a f32 16*n; b f32 n,16; t f32 256 local; n i32",
    )
    analysis = analyze_kernel(lp.tag_inames(kernel, {"g": "g.0", "i": "l.0"}))
    conflicts = bank_conflicts(_access(analysis, "load", "t"), {"n": 3}, sub_group_size=16)
    # 16 items k apart: two passes for k = 4 and 12, four for 8
    assert conflicts.distribution == ((1, 3 * 13), (2, 3 * 2), (4, 3))


def test_sizes_beyond_enumeration_are_refused_by_name() -> None:
    load = _access(analyze_kernel(applications.trmm()), "load", "a")
    with pytest.raises(CountingError, match="choose smaller parameters"):
        transactions(load, {"n": 10**5, "m": 4}, line_bytes=32, sub_group_size=8)
