"""The compiler's view: exact symbolic counts, and that it does not mix with the source's view."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import islpy as isl
import pytest

import countperf
from countperf.api import prediction
from countperf.api.kernels import Kernel
from countperf.counting.count_properties import count_kernel
from countperf.counting.vector import PropertyVector
from countperf.errors import CountingError, DocumentError, FitError, MismatchError
from countperf.models.fitting.fit_model import fit
from countperf.models.weights import WeightSet
from countperf.symbolic import sets
from tests.counting.compiled_kernels import KERNELS
from tests.models.builders import make_weights
from tests.models.fitting.builders import measure

COMPILED = PropertyVector.from_mapping({"launches": 1}, view="compiled")
WEIGHTS = make_weights({"launches": 1e-6})

Formula = Callable[[int], int]

BY_HAND: dict[str, Mapping[str, Formula]] = {
    "square": {
        "flop.fma": lambda n: n,
        "flop.mul": lambda n: n,
        "flop.add": lambda _: 0,
        "gmem.load": lambda n: 2 * n,
    },
    "sum of products": {
        "flop.fma": lambda n: 3 * n,
        "flop.mul": lambda n: n,
        "flop.add": lambda _: 0,
        "gmem.load": lambda n: 4 * n,
    },
    "invariant load": {"gmem.load": lambda n: n * n + n, "gmem.store": lambda n: n},
    "invariant product": {"flop.mul": lambda n: n, "flop.fma": lambda n: n * n},
    # the loop is entered by all items but the first
    "loop empty for some": {"gmem.load": lambda n: n * (n - 1) // 2 + (n - 1)},
    # a[i] stays in the loop over j, whose first iteration has no inner one
    "inner loop begins empty": {"gmem.load": lambda n: n * n * (n - 1) // 2 + n * n + n * (n - 1)},
    "condition does not change": {"gmem.load": lambda n: (n + 1) * max(n - 3, 0)},
    "condition changes": {"gmem.load": lambda n: 2 * n * max(n - 3, 0)},
    "speculated under a condition": {"flop.mul": lambda n: n + n * max(n - 3, 0)},
    "accumulator": {"gmem.load": lambda n: n * n + 2 * n, "gmem.store": lambda n: n},
    "unrolled": {"gmem.load": lambda n: 5 * n},
}


@pytest.mark.parametrize("name", BY_HAND)
def test_counts_are_symbolic(name: str) -> None:
    vector = count_kernel(KERNELS[name](), view="compiled")
    assert vector.is_exact
    for n in (1, 2, 3, 4, 7, 100):
        values = vector.evaluate(n=n)
        for family, formula in BY_HAND[name].items():
            found = sum(v for prop, v in values.items() if prop.startswith(f"{family}."))
            assert found == formula(n), (family, n)


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


def test_an_unknown_view_in_a_document_is_refused() -> None:
    document = {**COMPILED.to_document(), "view": "assembled"}
    with pytest.raises(DocumentError, match="assembled") as caught:
        PropertyVector.from_document(document)
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
