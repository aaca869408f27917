"""The design matrix, and the names of what it cannot tell apart."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countperf.errors import FitError
from countperf.models.fitting.design import Diagnosis, Observation, build_design, diagnose
from countperf.models.function import IndistinguishableGroup
from countperf.models.shipped import LINEAR
from tests.models.fitting.builders import made_case, observe_all

LOAD, STORE, MINIMUM = "gmem.load.32.1of2", "gmem.store.32.1of2", "gmem.min.32.1of2"


def _case(counts: dict[str, int], time_s: float = 1.0) -> Observation:
    return made_case("c", counts, time_s)


def test_rows_are_divided_by_their_times_and_unexercised_features_left_out() -> None:
    design = build_design(
        [
            _case({"launches": 1, "groups": 8, "flop.div.f32": 0, "iop.add.i32": 1}, 2.0),
            _case({"launches": 1, "barrier.local": 0, "lmem.store.32": 3}, 0.5),
        ],
        LINEAR,
    )

    assert design.function.keys == ("groups", "launches")
    assert design.relative.tolist() == [[4.0, 0.5], [0.0, 2.0]]
    assert design.unexercised == ("flop.div.f32", "barrier.local")


@pytest.mark.parametrize(
    ("observations", "said"),
    [([], "no measurement to fit"), ([_case({"iop.add.i32": 1})], "no measured kernel has")],
)
def test_what_cannot_be_fitted_is_refused(observations: list[Observation], said: str) -> None:
    with pytest.raises(FitError, match=said):
        build_design(observations, LINEAR)


def _diagnose(cases: list[Observation]) -> Diagnosis:
    return diagnose(build_design(cases, LINEAR))


def test_a_design_of_full_rank_has_no_groups() -> None:
    diagnosis = _diagnose(observe_all())

    assert (diagnosis.rank, diagnosis.groups) == (6, ())


def test_columns_always_in_ratio_2_1_1_are_one_group_with_their_relations() -> None:
    sizes = (64, 192, 1000)
    cases = [_case({LOAD: 2 * n, STORE: n, MINIMUM: n, "launches": 1}, 1.0 + n) for n in sizes]

    diagnosis = _diagnose(cases)

    assert diagnosis.rank == 2
    (group,) = diagnosis.groups
    assert set(group.features) == {LOAD, STORE, MINIMUM}
    assert len(group.relations) == 2
    for relation in group.relations:
        assert sum(c * {LOAD: 2, STORE: 1, MINIMUM: 1}[name] for name, c in relation.items()) == 0


def test_relations_are_in_whole_numbers_where_counts_are() -> None:
    cases = [
        _case({"groups": n // 192, "gmem.load.32.stride1": n, "launches": 1}, float(n))
        for n in (192, 1920, 192000)
    ]

    (group,) = _diagnose(cases).groups

    assert group == IndistinguishableGroup(
        features=("gmem.load.32.stride1", "groups"),
        relations=({"gmem.load.32.stride1": 1.0, "groups": -192.0},),
    )


def test_separate_dependences_are_separate_groups() -> None:
    cases = [
        _case({LOAD: 2 * n, STORE: n, "groups": 5 * m, "barrier.local": m, "launches": 1}, 1.0)
        for n, m in ((1, 7), (4, 4), (9, 2), (3, 3))
    ]

    groups = _diagnose(cases).groups

    assert [set(group.features) for group in groups] == [{LOAD, STORE}, {"barrier.local", "groups"}]


def test_a_dependence_of_three_that_no_pair_shows() -> None:
    cases = [
        _case({"flop.add.f32": a + b, "flop.mul.f32": a, "flop.div.f32": b, "launches": 1}, 1.0)
        for a, b in ((1, 5), (2, 2), (7, 1), (3, 8))
    ]

    (group,) = _diagnose(cases).groups
    assert group.relations == ({"flop.add.f32": -1.0, "flop.mul.f32": 1.0, "flop.div.f32": 1.0},)


def test_fewer_cases_than_features_leave_relations() -> None:
    diagnosis = _diagnose([_case({"launches": 1, "groups": 4, "barrier.local": 8})])

    assert diagnosis.rank == 1
    assert [len(group.relations) for group in diagnosis.groups] == [2]


@given(st.permutations(range(17)), st.floats(1e-9, 1e9))
def test_what_is_told_apart_depends_neither_on_row_order_nor_on_the_unit_of_time(
    order: list[int], unit: float
) -> None:
    cases = observe_all() + [
        _case({LOAD: 2 * n, STORE: n, "launches": 1}, 1e-3 * n) for n in (3, 50)
    ]
    assert len(cases) == 19
    shuffled = [
        replace(c, time_s=c.time_s * unit) for c in (*(cases[i] for i in order), *cases[17:])
    ]

    plain, changed = _diagnose(cases), _diagnose(shuffled)
    assert (changed.rank, changed.groups) == (plain.rank, plain.groups)
