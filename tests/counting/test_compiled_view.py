"""The compiler's view: by hand, and against what LLVM's optimizations leave, simulated.

All accesses, additions, multiplications, fused operations, divisions, barriers and functions with
LLVM at -O3 and contraction on: the rules as they are stated. The same without contraction under
Oclgrind's own -Oz, for applications. And kernels of which LLVM leaves less or more: counts are
bounds. Integer operations are not compared: compilers rewrite index arithmetic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import islpy as isl
import loopy as lp
import pytest

import countperf
from countperf.api import prediction
from countperf.api.kernels import Kernel
from countperf.counting.count_properties import count_kernel
from countperf.counting.execution.sites import count_execution
from countperf.counting.structure.site_keys import EventKey
from countperf.counting.vector import PropertyVector
from countperf.errors import (
    CountingError,
    DocumentError,
    FitError,
    MismatchError,
    UnmeasuredPropertyError,
)
from countperf.models.fitting.fit_model import fit
from countperf.models.library import load_weights
from countperf.models.weights import WeightSet
from countperf.symbolic import sets
from tests.counting.applications import APPLICATIONS
from tests.counting.compiled_kernels import BOUNDS, KERNELS, LOWER_BOUNDS
from tests.counting.test_source_view import EXPRESSIONS, complex_kernel, typed
from tests.kernels import made
from tests.models.builders import make_weights
from tests.models.fitting.builders import measure
from tests.nightly import one_of
from tests.oracles import llvm_ir, oclgrind


def with_llvm(test: Any) -> Any:
    reason = "oclgrind-kernel and opt of LLVM 14 are not installed"
    skip = pytest.mark.skipif(not llvm_ir.is_available(), reason=reason)
    return pytest.mark.oclgrind(skip(test))


def _disagreements(
    t_unit: Any, vector: Any, parameters: Mapping[str, int], folder: Path, **more: Any
) -> dict[str, tuple[int, int]]:
    dynamic = oclgrind.run(t_unit, parameters, folder, contraction=True, **more)
    return oclgrind.disagreements(vector.evaluate(parameters), dynamic, optimized=True)


def _parameters(vector: Any, n: int) -> dict[str, int]:
    return {name: {"n": n, "m": 5}[name] for name in vector.parameters}


@with_llvm
@pytest.mark.parametrize("name", one_of(3, APPLICATIONS))
def test_applications_are_as_llvm_leaves_them(name: str, tmp_path: Path) -> None:
    application = APPLICATIONS[name]
    t_unit = application.build()
    for parameters in application.sizes:
        statistics = application.statistics(parameters)
        vector = count_kernel(t_unit, statistics=statistics, view="compiled")
        found = _disagreements(
            t_unit,
            vector,
            parameters,
            tmp_path,
            contents=application.contents(parameters),
            passes=llvm_ir.O3,
        )
        assert found == {}, parameters


@with_llvm
@pytest.mark.parametrize("name", one_of(7, APPLICATIONS))
def test_applications_are_as_oclgrind_leaves_them(name: str, tmp_path: Path) -> None:
    application = APPLICATIONS[name]
    t_unit = application.build()
    parameters = application.sizes[0]
    statistics = application.statistics(parameters)
    vector = count_kernel(t_unit, statistics=statistics, view="compiled")
    counted = _with_fused_taken_apart(vector.evaluate(parameters))
    dynamic = oclgrind.run(
        t_unit, parameters, tmp_path, options="", contents=application.contents(parameters)
    )
    # three fused operations share the factors 2 and a[i, j, k]; without fusion, their product
    expected = {"multiplications": (6 * 125, 4 * 125)} if name == "heat-3d" else {}
    assert oclgrind.disagreements(counted, dynamic, optimized=True) == expected


def _with_fused_taken_apart(counted: Mapping[str, int]) -> dict[str, int]:
    result = {name: n for name, n in counted.items() if not name.startswith("flop.fma.")}
    for name, number in counted.items():
        if name.startswith("flop.fma."):
            for kind in ("add", "mul"):
                other = f"flop.{kind}.{name.removeprefix('flop.fma.')}"
                result[other] = result.get(other, 0) + number
    return result


@with_llvm
@pytest.mark.parametrize("name", KERNELS)
def test_rules_are_what_llvm_does(name: str, tmp_path: Path) -> None:
    t_unit = KERNELS[name]()
    vector = count_kernel(t_unit, view="compiled")
    passes = llvm_ir.O3_WITH_UNROLLING if "powers" in name else llvm_ir.O3
    parameters = _parameters(vector, 8 if "local" in name or "barrier" in name else 9)
    assert _disagreements(t_unit, vector, parameters, tmp_path, passes=passes) == {}


@with_llvm
@pytest.mark.parametrize("name", BOUNDS)
def test_limits_are_bounds_from_above(name: str, tmp_path: Path) -> None:
    t_unit = BOUNDS[name]()
    vector = count_kernel(t_unit, view="compiled")
    parameters = _parameters(vector, 9)
    found = _disagreements(t_unit, vector, parameters, tmp_path, passes=llvm_ir.O3)
    assert found
    assert all(counted > executed for counted, executed in found.values())


@with_llvm
@pytest.mark.filterwarnings("ignore:Aff.is_equal:DeprecationWarning")  # in Loopy's bounds
@pytest.mark.parametrize("name", LOWER_BOUNDS)
def test_what_a_compiler_does_not_see_is_a_bound_from_below(name: str, tmp_path: Path) -> None:
    t_unit = LOWER_BOUNDS[name]()
    vector = count_kernel(t_unit, view="compiled")
    parameters = _parameters(vector, 10)
    found = _disagreements(t_unit, vector, parameters, tmp_path, passes=llvm_ir.O3)
    assert set(found) == {"global loads", "bytes of global loads"}
    assert all(counted < executed for counted, executed in found.values())


# --- complex numbers and vectors

N = 37
ALSO = ["a[i]**2", "a[i]**3", "d[i] * a[i] * r[i]", "(d[i] + a[i]) * b[i]", "a[i]*b[i] + a[i]*b[i]",
        "1.0*a[i]*b[i] + b[i]/1.0", "a[i]*b[i]*1.0 - 0.0"]  # fmt: skip
UNUSED = "real(a[i]) + imag(b[i])"
"""LLVM leaves out the parts that are not used; the count is a bound from above."""


def _vectors(width: int, kind: str = "f32", *, tag: str = "vec", stored: str = "a,b") -> Any:
    text = "b[i, c] = a[i, c]*2 + 1"
    kernel = made(f"i<n, c<{width}", text, f"a,b {kind} n,{width}; n i32", split="i:16")
    return lp.tag_inames(lp.tag_array_axes(kernel, stored, "c,vec"), {"c": tag})


def _compiled(kernel: Any, folder: Path) -> tuple[dict[str, Any], oclgrind.DynamicCounts]:
    """Return what is counted in the compiler's view, and what LLVM leaves and Oclgrind executes."""
    dynamic = oclgrind.run(kernel, {"n": N}, folder, contraction=True, passes=llvm_ir.O3)
    return count_kernel(kernel, view="compiled").evaluate(n=N), dynamic


def _operations(counts: Any) -> dict[str, int]:
    sums: Counter[str] = Counter()
    for name, value in counts.items():
        family, kind = (*name.split("."), "")[:2]
        if family == "flop" and kind in ("add", "mul", "div", "fma") and value:
            sums[kind] += int(value)
    return dict(sums)


def _left(dynamic: oclgrind.DynamicCounts, width: int = 1) -> dict[str, int]:
    calls = dynamic.instructions.items()
    fused = sum(n for name, n in calls if name.startswith("call llvm.fmuladd."))
    sums = {
        "add": dynamic.of("fadd", "fsub"),
        "mul": dynamic.of("fmul"),
        "div": dynamic.of("fdiv"),
        "fma": fused + dynamic.calls("fma"),
    }
    return {kind: number * width for kind, number in sums.items() if number}


def _bytes(counts: Any, direction: str) -> int:
    return sum(
        int(value) * int(name.split(".")[2]) // 8
        for name, value in counts.items()
        if name.startswith(f"gmem.{direction}.")
    )


@with_llvm
@pytest.mark.parametrize("kind", ["c64", pytest.param("c128", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("expression", [*EXPRESSIONS, *ALSO])
def test_complex_operations_are_what_llvm_leaves(
    expression: str, kind: str, tmp_path: Path
) -> None:
    counts, dynamic = _compiled(complex_kernel(expression, kind), tmp_path)
    assert _operations(counts) == _left(dynamic)
    parts = 2 if expression == UNUSED else 1
    assert _bytes(counts, "load") == parts * dynamic.bytes["load global"]
    assert _bytes(counts, "store") == dynamic.bytes["store global"]


@with_llvm
def test_complex_values_leave_loops_that_do_not_change_them(tmp_path: Path) -> None:
    arguments = "a,b,z c64 n; c c64 5; n i32"
    kernel = made("i<n, j<5", "z[i] = sum(j, a[i]*b[i] + c[j])", arguments)
    counts = count_kernel(kernel, view="compiled").evaluate(n=N)
    # fma(a.re, b.re, c.re) and two more wait for c[j]; then the sum of the reduction
    assert _operations(counts) == {"fma": 4 * 5 * N, "add": 2 * 5 * N}
    assert _bytes(counts, "load") == 8 * (2 * N + 5 * N)
    kernel = made("i<n, j<5", "z[i] = sum(j, a[i]*b[i]*c[j])", arguments)
    counts, dynamic = _compiled(kernel, tmp_path)
    assert _operations(counts) == _left(dynamic)


@with_llvm
@pytest.mark.parametrize(
    ("width", "kind"),
    [*((2, "f64"), (3, "f32"), (3, "f64"), (4, "f32"), (4, "f64")), *((8, "f32"), (16, "f32"))],
)
def test_vectors_are_whole_accesses_and_operations_of_each_component(
    width: int, kind: str, tmp_path: Path
) -> None:
    counts, dynamic = _compiled(_vectors(width, kind), tmp_path)
    assert _operations(counts) == _left(dynamic, width) == {"fma": width * N}
    bits = int(kind[1:])
    in_memory = 4 if width == 3 else width
    assert counts[f"gmem.load.{in_memory * bits}.stride1"] == N == dynamic.of("load global")
    assert counts[f"gmem.store.{width * bits}.stride1"] == N
    for direction in ("load", "store"):
        assert _bytes(counts, direction) == dynamic.bytes[f"{direction} global"]


@with_llvm
@pytest.mark.parametrize(
    ("body", "left", "loads"),
    [
        ("z[i] = a[i]*b[i] + a[i]", {"fma": 4}, 2),
        ("z[i] = a[i]*r[i] + b[i]*s[i]", {"mul": 4, "fma": 4}, 4),
        ("z[i] = a[i] + 2*a[i]", {"fma": 4}, 1),
        ("w[i] = 3*p[i]", {"mul": 8}, 1),
    ],
)
def test_vector_types_are_contracted(
    body: str, left: dict[str, int], loads: int, tmp_path: Path
) -> None:
    counts, dynamic = _compiled(typed(body), tmp_path)
    width = 8 if body.startswith("w") else 4
    assert _operations(counts) == _left(dynamic, width) == {k: N * v for k, v in left.items()}
    assert sum(v for k, v in counts.items() if k.startswith("gmem.load.")) == loads * N
    assert dynamic.of("load global") == loads * N


@with_llvm
@pytest.mark.parametrize(("tag", "stored"), [("unr", "a,b"), ("vec", "a"), ("vec", "b")])
def test_components_load_their_vector_once(tag: str, stored: str, tmp_path: Path) -> None:
    counts, dynamic = _compiled(_vectors(4, tag=tag, stored=stored), tmp_path)
    assert oclgrind.disagreements(counts, dynamic, optimized=True) == {}


@pytest.mark.parametrize("kind", ["c64", "c128"])
def test_complex_kernels_are_predicted_from_their_real_operations(kind: str) -> None:
    kernel = complex_kernel("a[i]*b[i]", kind, split="i:64")
    real = "f32" if kind == "c64" else "f64"
    counts = count_kernel(kernel, view="structure").evaluate(n=4096)
    operations = {k.split(".flop.")[1]: v for k, v in counts.items() if ".flop." in k}
    assert operations == {f"mul.{real}": 2 * 4096, f"fma.{real}": 2 * 4096}
    assert countperf.predict(
        kernel, n=4096, weights=load_weights("pocl-epyc-zen5", model="structural")
    ).complete
    linear = load_weights("pocl-epyc-zen5", model="linear")
    if kind == "c64":
        assert countperf.predict(kernel, n=4096, weights=linear).complete
    else:
        with pytest.raises(UnmeasuredPropertyError, match=r"gmem\.load\.128\.stride1"):
            countperf.predict(kernel, n=4096, weights=linear)


def test_vector_kernels_are_predicted_from_their_components() -> None:
    weights = load_weights("pocl-epyc-zen5", model="structural")
    for kernel in (_vectors(4), _vectors(3), _vectors(4, stored="b"), _vectors(4, tag="unr")):
        assert countperf.predict(kernel, n=4096, weights=weights).complete


@pytest.mark.parametrize("kind", ["f32", "c64"])
def test_a_chain_of_complex_sums_waits_as_one_of_real_ones_does(kind: str) -> None:
    kernel = made("i<n, j<m", "z[i] = sum(j, a[i, j])", f"a {kind} n,m; z {kind} n; n,m i32")
    events = [key.event for key in count_execution(kernel).counts if isinstance(key, EventKey)]
    assert [event for event in events if event.startswith("chain.")] == ["chain.add.f32"]


# --- by hand, and that views do not mix

COMPILED = PropertyVector.from_mapping({"launches": 1}, view="compiled")
WEIGHTS = make_weights({"launches": 1e-6})

BY_HAND = {
    "square": {"flop.fma": "n", "flop.mul": "n", "flop.add": "0", "gmem.load": "2*n"},
    "sum of products": {"flop.fma": "3*n", "flop.mul": "n", "flop.add": "0", "gmem.load": "4*n"},
    "invariant load": {"gmem.load": "n*n + n", "gmem.store": "n"},
    "invariant product": {"flop.mul": "n", "flop.fma": "n*n"},
    # the loop is entered by all items but the first
    "loop empty for some": {"gmem.load": "n*(n - 1)//2 + (n - 1)"},
    # a[i] stays in the loop over j, whose first iteration has no inner one
    "inner loop begins empty": {"gmem.load": "n*n*(n - 1)//2 + n*n + n*(n - 1)"},
    "condition does not change": {"gmem.load": "(n + 1)*max(n - 3, 0)"},
    "condition changes": {"gmem.load": "2*n*max(n - 3, 0)"},
    "speculated under a condition": {"flop.mul": "n + n*max(n - 3, 0)"},
    "accumulator": {"gmem.load": "n*n + 2*n", "gmem.store": "n"},
    "unrolled": {"gmem.load": "5*n"},
}


@pytest.mark.parametrize("name", BY_HAND)
def test_counts_are_symbolic(name: str) -> None:
    vector = count_kernel(KERNELS[name](), view="compiled")
    assert vector.is_exact
    for n in (1, 2, 3, 4, 7, 100):
        values = vector.evaluate(n=n)
        for family, formula in BY_HAND[name].items():
            found = sum(v for prop, v in values.items() if prop.startswith(f"{family}."))
            assert found == eval(formula, {"n": n, "max": max}), (family, n)


def test_the_source_view_is_the_default() -> None:
    t_unit = KERNELS["invariant load"]()
    assert count_kernel(t_unit) == count_kernel(t_unit, view="source")
    assert count_kernel(t_unit).view == "source"
    assert count_kernel(t_unit, view="compiled").view == "compiled"
    assert count_kernel(t_unit).evaluate(n=5)["gmem.load.32.stride1"] == 25


def test_documents_keep_the_view_and_old_ones_are_of_the_source_view() -> None:
    vector = count_kernel(KERNELS["square"](), view="compiled")
    document = vector.to_document()
    assert PropertyVector.from_document(document) == vector
    assert document["view"] == "compiled"
    assert "view" not in count_kernel(KERNELS["square"]()).to_document()
    del document["view"]
    assert PropertyVector.from_document(document).view == "source"
    assert PropertyVector.from_document(document) != vector
    with pytest.raises(DocumentError, match="assembled") as caught:
        PropertyVector.from_document(document | {"view": "assembled"})
    assert caught.value.field == "$.view"


def test_weights_of_the_other_view_are_refused() -> None:
    with pytest.raises(MismatchError, match=r"the compiled view.*to the source view: count it"):
        WEIGHTS.predict(COMPILED)
    with pytest.raises(MismatchError):
        WEIGHTS.compile(COMPILED)
    with pytest.raises(MismatchError):
        prediction.predict(COMPILED, weights=WEIGHTS)


def test_kernels_are_counted_in_the_view_of_the_weights() -> None:
    features = ("flop.fma.f32", "flop.mul.f32", "gmem.load.32.stride1", "gmem.store.32.stride1")
    more = ("gmem.min.32.stride1", "groups", "launches")
    weights = make_weights(dict.fromkeys((*features, *more), 1e-9), view="compiled")
    t_unit = KERNELS["square"]()
    assert countperf.predict(t_unit, n=8, weights=weights).breakdown[
        "flop.fma.f32"
    ] == pytest.approx(8e-9)
    assert prediction.predict(t_unit, weights=weights, n=8).time_s == pytest.approx(
        weights.predict(count_kernel(t_unit, view="compiled"), n=8).time_s
    )
    assert weights.predict({"launches": 1}).time_s == pytest.approx(1e-9)


def test_weights_documents_say_which_view() -> None:
    compiled = make_weights({"launches": 1e-6}, view="compiled")
    assert WeightSet.read_text(compiled.write_text()) == compiled
    assert WeightSet.read_text(compiled.write_text()).view == "compiled"
    assert WeightSet.from_object(WEIGHTS.to_object() | {"view": "source"}) == WEIGHTS


def test_fits_keep_the_view_and_refuse_a_mixture() -> None:
    measurements = measure()
    compiled = tuple(
        m.model_copy(update={"properties": {**(m.properties or {}), "view": "compiled"}})
        for m in measurements
    )
    assert fit(measurements).weights.view == "source"
    assert fit(replace(measurements, measurements=compiled)).weights.view == "compiled"
    mixed = (compiled[0], *list(measurements)[1:])
    with pytest.raises(FitError, match="not all counted in one"):
        fit(replace(measurements, measurements=mixed))


def test_a_vector_is_not_counted_again_in_another_view() -> None:
    assert Kernel.of(COMPILED).count().view == "compiled"
    assert Kernel.of({"launches": 1}).count("compiled").view == "compiled"
    with pytest.raises(CountingError, match="count the kernel itself"):
        Kernel.of(COMPILED).count("source")


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("[n] -> { [j, i] : 0 <= i < n and 2 <= j <= 4 }", True),
        ("[n] -> { [j, i] : 0 <= i < n and 2 <= j <= 3 }", True),
        ("[n] -> { [j, i] : 1 <= i < n and 2 <= j <= 3 }", False),
        ("[n] -> { [j, i] : 0 <= i < n and j <= i and 2 <= j <= 3 }", False),
        ("[n] -> { [j, i] : n > 5 and 0 <= i < n and j = 3 }", True),
    ],
    ids=["everything", "fewer rows", "short rows", "triangle", "condition on sizes"],
)
def test_rows_that_are_there_entirely_or_not_at_all(part: str, expected: bool) -> None:
    whole = isl.Set("[n] -> { [i, j] : 0 <= i < n and 2 <= j <= 4 }")
    assert sets.is_all_or_nothing(isl.Set(part), whole, "i") is expected


def test_containment_on_assumptions() -> None:
    guarded = isl.Set("[n] -> { [g, l] : 0 <= g and 0 <= l <= 3 and 4g + l < n }")
    groups = sets.widen_along(guarded, {"l": (0, 3)})
    multiple = isl.Set("[n] -> { : n mod 4 = 0 }")
    assert sets.contains(groups, guarded, None)
    assert not sets.contains(guarded, groups, None)
    assert sets.contains(guarded, groups, multiple)
