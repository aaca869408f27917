"""The lock of a measurement file: who has it, and that nothing is done before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from countperf.documents import locks
from countperf.documents.locks import open_locked
from countperf.errors import DocumentError, MeasurementError
from countperf.harness.campaign import measure
from countperf.harness.runner import KernelRunner
from countperf.harness.store import Rewriting
from countperf.measurements import MeasurementSet
from countperf.workflow import measured, measuring
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
        open_locked(store, "measurements"),
        pytest.raises(MeasurementError, match="in use by another campaign"),
    ):
        measuring.measure_catalogue(store=store, device="fake:0")

    assert [path.name for path in tmp_path.iterdir()] == ["store.jsonl"]


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
        open_locked(store, "measurements"),
        pytest.raises(MeasurementError, match="in use by another campaign"),
    ):
        measured.recount(store)


def test_a_missing_file_is_not_made_to_be_written_anew(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="No such file"):
        measured.recount(tmp_path / "store.jsonl")

    assert not list(tmp_path.iterdir())


_REPLACES = """
import os, sys
from countperf.harness.store import Rewriting
with Rewriting(sys.argv[1]) as file:
    print(flush=True)
    sys.stdin.readline()
    file.write(file.read())
"""


def test_a_file_that_is_replaced_while_it_is_opened_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store.jsonl"
    _measure(store)
    root = Path(__file__).parents[2]
    other = subprocess.Popen(
        [sys.executable, "-c", _REPLACES, str(store)],
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert other.stdout is not None
    other.stdout.readline()
    lock = locks.lock_file

    def lock_after_the_other(file: object, path: Path) -> None:
        if other.returncode is None:  # the file is open, and replaced before it is locked
            other.communicate(b"\n")
        lock(file, path)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(locks, "lock_file", lock_after_the_other)

    with open_locked(store, "measurements") as file:
        assert file.fileno() >= 0
        file.write(b"x")

    assert store.read_bytes().endswith(b"\nx")
