"""Plain names of the parts of a time."""

from __future__ import annotations

import pytest

from countperf.models.library import load_weights, named_fits
from countperf.predictions import Verdict
from countperf.report.breakdown import (
    OTHER,
    PlainName,
    plain_name,
    uncharged_lines,
)
from countperf.report.weights import verdict_lines


def _features() -> set[str]:
    """Return all features of the shipped models."""
    shipped = [
        load_weights(fit.name, model=model) for fit in named_fits().values() for model in fit.models
    ]
    return {name for weights in shipped for name in weights.by_feature}


def test_every_feature_of_the_shipped_models_has_a_plain_name_of_its_own() -> None:
    features = _features()

    assert len(features) > 200
    assert sorted(name for name in features if plain_name(name) == PlainName(name, OTHER)) == []
    said = {name: plain_name(name) for name in features}
    twice = [n for n in said if list(said.values()).count(said[n]) > 1]
    assert sorted(twice) == []


def test_plain_names_have_no_internal_words() -> None:
    words = {word for name in _features() for word in plain_name(name).text.split()}

    assert words & {"gmem", "lmem", "pmem", "walk", "issue", "reuse"} == set()
    assert not any("_" in word or "." in word for word in words)


@pytest.mark.parametrize(
    ("part", "text", "group"),
    [
        ("launches", "launching", "launch"),
        ("issue.scalar.gmem.store.l2_reuse", "scalar global stores that miss L1", "memory: L2"),
        ("issue.vector.lmem.load.next", "vector local loads of consecutive addresses",
         "memory: local"),
        ("issue.vector.chain.f32.add", "vector dependent f32 additions",
         "latency chains"),
        ("gmem.load.64.2of3", "global loads 64 2of3", "memory: global"),
        ("load_beyond_llc", "loads beyond the last-level cache", "memory: beyond L2"),
        ("my_own_part", "my_own_part", "other"),
    ],
)  # fmt: skip
def test_plain_names_and_groups(part: str, text: str, group: str) -> None:
    found = plain_name(part)

    assert (found.text, found.group) == (text, group)


def test_of_many_properties_without_a_charge_the_number_is_said_and_explanations_list_all() -> None:
    names = ["iop.add.i32", "groups", "code.gather", *(f"items{k}" for k in range(20))]
    lines = uncharged_lines(names, every=True)

    assert uncharged_lines(names[:3]) == [
        "not charged by this model: integer additions i32, starting work groups,"
        " machine code: gather"
    ]
    assert "23 properties" in uncharged_lines(names)[0]
    assert set(" ".join(lines).replace(",", "").split()) > set(names)


def test_verdicts_name_what_formulas_of_models_make_in_plain_words() -> None:
    message = "far above the largest value measured: waiting_cycles, flop.add.f32"
    (line,) = verdict_lines([Verdict(name="extrapolation", passed=False, message=message)])
    assert line.endswith(": stall cycles of dependent instructions, flop.add.f32")
