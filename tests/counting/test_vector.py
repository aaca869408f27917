"""Property vectors: counts, their granularities, evaluation, documents, shapes of groups."""

from __future__ import annotations

import json
from typing import Any

import loopy as lp
import numpy as np
import pytest

from countperf.counting.count_properties import count_kernel
from countperf.counting.keys import Granularity
from countperf.counting.taxonomy import COUNTING_RULES_VERSION
from countperf.counting.vector import (
    GROUP_SHAPE,
    Count,
    PropertyVector,
    granularity_of,
    group_shape,
    says_group_shape,
)
from countperf.errors import CountingError, DocumentError, ParameterError, PropertyNameError
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import QuasiPolynomial
from tests.kernels import made
from tests.printing import object_of, text_of

IMPORT = {"value": "__import__('os')"}  # no polynomial


def _vector() -> PropertyVector:
    return PropertyVector.from_mapping(
        {
            "flop.add.f32": "[n] -> { n^2 : n > 0 }",
            "flop.special.f32.exp": "[n] -> { floor((n + 2)/3) }",
            "flop.special.f32.rsqrt": "[n, m] -> { n * m : n > m; 3 : n <= m }",
            "launches": 1,
        }
    )


def test_scalars_give_exact_integers() -> None:
    values = _vector().evaluate(n=10**12, m=3)
    assert values["flop.add.f32"] == 10**24
    assert values["flop.special.f32.exp"] == (10**12 + 2) // 3


def test_arrays_give_what_scalars_give() -> None:
    vector = _vector()
    n, m = np.arange(-3, 9)[:, None], np.arange(4)[None, :]
    arrays = vector.evaluate(n=n, m=m)
    for i, j in np.ndindex(12, 4):
        scalars = vector.evaluate(n=int(n[i, 0]), m=int(m[0, j]))
        assert {name: int(values[i, j]) for name, values in arrays.items()} == scalars


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("[n] -> { n^2 : n > 0 }", np.array([2**40, 3])),
        ("[n] -> { n^3 : n > 0 }", np.array([2**21, 2**22])),
        ("[n] -> { n - 16 : n > 20 }", np.array([-(2**63), 30])),
        ("[n] -> { floor((n + 1)/3) }", np.array([2**63 - 1])),
        ("[n] -> { n^20 }", np.array([2**62, 3])),
        ("[n] -> { (1/2)*n^2 + (1/2)*n }", np.array([2**63 + 8, 2**64 - 1], dtype=np.uint64)),
        ("[n] -> { n }", np.array([2**63], dtype=np.uint64)),
    ],
)
def test_no_array_wraps(text: str, n: Any) -> None:
    vector = PropertyVector.from_mapping({"flop.add.f32": text})
    values = vector.evaluate(n=n)["flop.add.f32"]
    exact = [vector.evaluate(n=int(size))["flop.add.f32"] for size in n]
    assert [int(v) for v in values] == exact


def test_assumptions_are_checked_without_wrapping() -> None:
    n = QuasiPolynomial.name("n")
    groups = Count(
        quantity=PiecewiseQuasiPolynomial.from_value(n), granularity=granularity_of("groups")
    )
    guards = ((frozenset([n - 16]), frozenset([n.modulo(4)])),)
    vector = PropertyVector({"groups": groups}, kernel="k", assumption_guards=guards)
    assert list(vector.evaluate(n=np.array([16, 20]))["groups"]) == [16, 20]
    for bad, message in (
        (-(2**63), "it needs n - 16 >= 0"),
        (18, r"it needs n - 4\*floor\(\(n\)/4\) = 0"),
    ):
        for given in (bad, np.array([16, bad])):
            with pytest.raises(ParameterError, match=message):
                vector.evaluate(n=given)


def test_counts_that_are_no_integers_are_refused_in_arrays_too() -> None:
    for divisor in (2, 3):
        vector = PropertyVector.from_mapping({"groups": f"[n] -> {{ (1/{divisor})*n }}"})
        assert list(vector.evaluate(n=np.array([6, 12]))["groups"]) == [6 // divisor, 12 // divisor]
        for given in (5, np.array([6, 5])):
            with pytest.raises(ParameterError, match="no integer"):
                vector.evaluate(n=given)


def test_results_share_no_memory() -> None:
    square = dict.fromkeys(("flop.add.f32", "flop.mul.f32"), "[n] -> { n^2 }")
    vector = PropertyVector.from_mapping({**square, "flop.div.f32": "[n] -> { n }", "groups": 1})
    n = np.arange(4)
    values = vector.evaluate(n=n)
    for name in values:
        values[name][:] = -1
        n_before, others = n.copy(), {k: v.copy() for k, v in values.items() if k != name}
        values[name][:] = -2
        assert np.array_equal(n, n_before)
        assert all(np.array_equal(values[k], v) for k, v in others.items())


def test_the_sum_over_functions_is_derived() -> None:
    vector = _vector()
    assert "flop.special.f32" not in vector
    assert vector["flop.special.f32"].quantity.evaluate({"n": 4, "m": 1}) == 2 + 4


def test_an_absent_property_is_zero_and_a_wrong_name_an_error() -> None:
    assert str(_vector()["lmem.load.32"]) == "{ 0 }"
    with pytest.raises(PropertyNameError) as caught:
        _ = _vector()["gmem.load.32.stride7"]
    assert caught.value.name == "gmem.load.32.stride7"


@pytest.mark.parametrize(
    ("given", "parameter", "message"),
    [
        ({"n": 3}, "m", "no value for parameter m (given: n)"),
        ({"n": 3, "m": 1, "k": 2}, "k", "has no parameter k; its sizes are: m, n"),
        ({"n": 3, "m": 1.5}, "m", "pass an integer"),
        ({"n": "3", "m": 1}, "n", "pass an integer"),
        ({"n": np.array([1.0]), "m": 1}, "n", "array of float64"),
    ],
)
def test_bad_parameters_are_named(given: dict[str, Any], parameter: str, message: str) -> None:
    with pytest.raises(ParameterError) as caught:
        _vector().evaluate(given)
    assert caught.value.parameter == parameter
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda d: d.update(format="other"), "$.format"),
        (lambda d: d.update(version=99), "$.version"),
        (lambda d: d.pop("counts"), "$.counts"),
        (lambda d: d["counts"]["launches"]["terms"].append(IMPORT), "$.counts.launches.terms"),
        (lambda d: d.update(parameters=None), "$.parameters"),
        (lambda d: d.update(counting_rules=COUNTING_RULES_VERSION + 1), "$.counting_rules"),
        *(
            (
                lambda d, guards=guards: d.update(assumption_guards=guards),
                f"$.assumption_guards{at}",
            )
            for guards, at in (
                ([{"nonnegative": ["n - 16"]}, {"zero": 3}], "[1].zero"),
                ([{"nonnegative": "n - 16"}], "[0].nonnegative"),
                ([{"positive": ["n"]}], "[0].positive"),
                ([{"nonnegative": ["n ->"]}], "[0].nonnegative[0]"),
                ({"n": 1}, ""),
                (None, ""),
            )
        ),
    ],
)
def test_damaged_documents_are_refused_by_field(change: Any, field: str) -> None:
    document = json.loads(json.dumps(_vector().to_document()))
    assert PropertyVector.from_document(document) == _vector()
    change(document)
    with pytest.raises(DocumentError) as caught:
        PropertyVector.from_document(document)
    assert caught.value.field == field
    assert ("by a newer countperf" in str(caught.value)) is (field == "$.counting_rules")


def test_counts_that_are_zero_are_left_out() -> None:
    assert list(PropertyVector.from_mapping({"groups": 0, "launches": 1})) == ["launches"]


def test_a_count_tells_what_it_is() -> None:
    count = _vector()["flop.add.f32"]
    assert isinstance(count, Count)
    assert (count.exact, count.reason, count.granularity) == (True, "", Granularity.WORK_ITEM)
    assert str(count) == "[n] -> { n^2 : n > 0 }"


@pytest.mark.parametrize("value", ["1/0", "9" * 5000, "n(", "nan"], ids=lambda text: text[:4])
def test_values_that_no_count_has_are_refused(value: str) -> None:
    with pytest.raises(CountingError, match="is no piecewise quasi-polynomial"):
        PropertyVector.from_mapping({"groups": f"[n] -> {{ {value}*n : n > 0 }}"})


def test_reports_call_guesses_not_exact() -> None:
    arguments = "x f32 4096,n; y f32 n; n i32"
    knl = made("i<n, j<4096", "y[i] = sum(j, x[j, i])", arguments, split="i:8")
    vector = count_kernel(knl, view="structure")
    properties = object_of(vector)["properties"]
    # 4096 lines of the array lie between two uses of one: more than the first cache has
    (late,) = [name for name in properties if name.endswith(".l2_reuse")]
    assert not properties[late]["exact"]
    assert properties["groups"]["exact"]
    assert "not exact: assumes caches of 48 KiB of 12 ways" in text_of(vector)


def _count(value: int, granularity: Granularity = Granularity.WORK_ITEM, **more: Any) -> Count:
    return Count(
        quantity=PiecewiseQuasiPolynomial.from_value(value), granularity=granularity, **more
    )


@pytest.mark.parametrize("granularity", Granularity)
@pytest.mark.parametrize("other", Granularity)
def test_counts_add_within_one_granularity_only(
    granularity: Granularity, other: Granularity
) -> None:
    first, second = _count(2, granularity), 3 * _count(1, other)
    if granularity is other:
        total = sum([first, second])
        assert isinstance(total, Count)
        assert (total.quantity.evaluate({}), total.granularity) == (5, granularity)
        return
    with pytest.raises(CountingError, match=f"per {granularity.value} and per {other.value}"):
        _ = first + second


def test_reasons_of_sums_are_joined_once() -> None:
    rough = _count(1, exact=False, reason="a; b")
    total = rough + _count(1, exact=False, reason="b; c") + _count(1)
    assert (total.exact, total.reason) == (False, "a; b; c")


@pytest.mark.parametrize("granularity", ["work item", "warp", None])
def test_other_granularities_than_the_enumerated_are_refused(granularity: Any) -> None:
    with pytest.raises(CountingError, match=r"Granularity\.WORK_ITEM"):
        _count(1, granularity)


def test_a_vector_refuses_counts_of_another_granularity_than_the_property() -> None:
    with pytest.raises(CountingError, match=r"groups is counted per work group"):
        PropertyVector({"groups": _count(1)}, kernel="made")


def _scale() -> lp.TranslationUnit:
    arguments = "x,z f32 m,n; m,n i32"
    return made("i<n, j<m", "z[j, i] = 2*x[j, i]", arguments, split="i:16 j:4:1")


def test_items_and_rows_are_symbolic_counts() -> None:
    vector = count_kernel(_scale(), view="structure").map_counts(lambda c: {**c, **group_shape(c)})
    for n, m in ((16, 4), (17, 9), (1000, 3)):
        values = vector.evaluate(n=n, m=m)
        groups = -(-n // 16) * -(-m // 4)
        assert [values[key] for key in ("groups", "items", "rows")] == [
            size * groups for size in (1, 64, 4)
        ]
    assert all(vector[name].exact for name in GROUP_SHAPE)


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ({"groups": 3}, "how many items"),
        (
            {"groups": 3, "site.free.flat.8x8.passes": 1, "site.sync.flat.8x4.passes": 2},
            r"several shapes are launched \(8x4, 8x8\)",
        ),
    ],
)
def test_what_counts_do_not_say_is_refused(counts: dict[str, int], said: str) -> None:
    with pytest.raises(CountingError, match=said):
        group_shape(counts)
    assert not says_group_shape(counts)


def test_no_groups_have_no_shape_and_no_instruction_executes_it() -> None:
    assert group_shape({"launches": 1}) == {}
    assert says_group_shape(["launches"])
    assert {granularity_of(name) for name in GROUP_SHAPE} == {Granularity.WORK_GROUP}
    with pytest.raises(CountingError, match="items is counted per work group"):
        count_kernel(_scale(), instruction_counts={"insn": {"items": 1}})
