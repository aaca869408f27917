"""The lock of a measurement file: who has it, and that nothing is done before."""

from __future__ import annotations

from pathlib import Path

import pytest

from countperf.documents.lines import locked
from countperf.errors import DocumentError, MeasurementError
from countperf.harness.campaign import Rewriting, measure
from countperf.harness.runner import KernelRunner
from countperf.measurements import MeasurementSet
from countperf.workflow import fitting, measuring
from tests.harness.fakes import PROTOCOL, FakeRunner, make_case, make_device

CASES = [make_case("a", n) for n in (16, 32)]


def _measure(store: Path) -> MeasurementSet:
    return measure(CASES, store=store, runner=FakeRunner(), protocol=PROTOCOL)


def test_no_sizes_are_chosen_while_another_campaign_has_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store.jsonl"
    device = make_device("fake:0", "Abacus")
    monkeypatch.setattr("countperf.workflow.measuring.find_device", lambda _: device)
    monkeypatch.setattr(KernelRunner, "open", lambda _: FakeRunner())

    with (
        locked(store),
        pytest.raises(MeasurementError, match="in use by another campaign"),
    ):
        measuring.measure_catalogue(store=store, device="fake:0")

    assert not [*tmp_path.iterdir()]


def test_a_file_that_is_written_anew_stays_locked(tmp_path: Path) -> None:
    store = tmp_path / "store.jsonl"
    found = _measure(store)

    with Rewriting(store) as file:
        assert file.read() == found
        for _ in range(2):
            with pytest.raises(MeasurementError, match="in use by another campaign"):
                _measure(store)
            file.write(found)
        with pytest.raises(MeasurementError, match="in use by another campaign"):
            _measure(store)

    assert _measure(store).measurements == found.measurements
    assert [path.name for path in tmp_path.iterdir()] == ["store.jsonl"]


def test_a_file_that_is_measured_is_not_written_anew(tmp_path: Path) -> None:
    store = tmp_path / "store.jsonl"
    _measure(store)

    with (
        locked(store),
        pytest.raises(MeasurementError, match="in use by another campaign"),
    ):
        fitting.recount(store)


def test_a_missing_file_is_not_made_to_be_written_anew(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="No such file"):
        fitting.recount(tmp_path / "store.jsonl")

    assert not list(tmp_path.iterdir())
