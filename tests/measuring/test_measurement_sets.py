"""Measurement files: what is read back, what is refused, and where the refusal points."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from countperf.errors import DocumentError
from countperf.measuring import (
    Environment,
    FailedCase,
    Header,
    Measurement,
    MeasurementSet,
    Resumption,
    summarize,
)
from countperf.measuring.cases import case_fields, format_line
from tests.devices.fakes import IDENTITY, PROTOCOL, make_case

ENVIRONMENT = Environment(recorded_at="", operating_system="Linux", processor="Abacus", cores=2)
HEADER = Header(device=IDENTITY, protocol=PROTOCOL, environment=ENVIRONMENT)


def _measured(n: int = 16, **changes: Any) -> Measurement:
    samples = [[9.0, 1.0, 1.5, 2.0], [9.0, 1.25, 1.5, 1.5]]
    return Measurement.from_samples(make_case(n=n), samples, dropped=1, **changes)


def _failed(n: int) -> FailedCase:
    fields = case_fields(make_case(n=n))
    return FailedCase(**fields, recorded_at="", stage="build", reason="no such instruction")


SET = MeasurementSet(
    header=HEADER,
    measurements=(_measured(16), _measured(32, properties={"flop.add.f32": "n"})),
    failures=(_failed(64),),
    resumptions=(Resumption(environment=ENVIRONMENT),),
)
TEXT = SET.to_text()


def _read(text: str, **where: Any) -> MeasurementSet:
    return MeasurementSet.read_lines(text.splitlines(), **where)


def _damage(line: int, change: Callable[[dict[str, Any]], object]) -> str:
    lines = TEXT.splitlines()
    content = json.loads(lines[line - 1])
    change(content)
    lines[line - 1] = json.dumps(content)
    return "\n".join(lines)


def _set(name: str, value: object) -> Callable[[dict[str, Any]], object]:
    return lambda content: content.__setitem__(name, value)


def test_a_set_is_a_line_per_entry_and_read_back_equal(tmp_path: Path) -> None:
    assert TEXT.isascii()
    assert len(TEXT.splitlines()) == 5
    assert TEXT.startswith('{"format": "countperf-measurements", "version": 1, ')
    SET.write_file(tmp_path / "store.jsonl")
    assert MeasurementSet.read_file(tmp_path / "store.jsonl") == SET
    with pytest.raises(DocumentError, match="No such file"):
        MeasurementSet.read_file(tmp_path / "absent.jsonl")


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (_damage(4, lambda c: c["samples_s"][0].__setitem__(3, "x")), "line 4: $.samples_s[0][3]"),
        (_damage(3, lambda content: content.pop("time_s")), "line 3: $.time_s"),
        (_damage(3, _set("speed", 1)), "line 3: $.speed"),
        (_damage(5, _set("stage", "coffee")), "line 5: $.stage"),
        (_damage(3, _set("status", "guessed")), "line 3: $.status"),
        (_damage(1, lambda c: c["protocol"].__setitem__("runs", "30")), "$.protocol.runs"),
        (_damage(1, _set("format", "countperf-linear-weights")), "$.format"),
        (_damage(3, _set("time_s", 0.5)), "line 3: $"),  # not that of the samples
        (_damage(3, _set("dropped", 4)), "line 3: $"),  # all samples
        ("", "line 1: $"),
    ],
    ids=range(10),
)
def test_a_damaged_field_is_named(text: str, field: str) -> None:
    with pytest.raises(DocumentError) as caught:
        _read(text, path="store.jsonl")
    assert (caught.value.field, caught.value.path) == (field, "store.jsonl")
    assert field in str(caught.value)


def test_damaged_json_is_found_by_its_line() -> None:
    with pytest.raises(DocumentError, match="damaged JSON at line 5, column "):
        _read(TEXT.replace("build", "bu\nild"))


def test_a_case_that_failed_and_was_measured_later_is_measured() -> None:
    text = "".join(map(format_line, (HEADER, _failed(16), _measured(16))))
    read = _read(text)
    assert [entry.case for entry in read] == ["fake/n=16"]
    assert read.failures == ()


def test_the_frame_has_a_row_per_measurement_and_a_selection_its_header() -> None:
    frame = SET.to_frame()[["case", "n", "runs", "time_s"]]
    assert frame.to_numpy().tolist() == [["fake/n=16", 16, 8, 1.0], ["fake/n=32", 32, 8, 1.0]]
    selected = SET.select(lambda entry: entry.parameters["n"] > 16)
    assert [entry.parameters["n"] for entry in selected] == [32]
    assert selected.header == SET.header


@pytest.mark.parametrize(
    ("samples", "dropped", "resolution_s", "expected"),
    [
        ([[9.0, 1.0, 1.5, 2.0]], 1, 0.0, (1.0, 0.5, 0.5)),  # one round: its spread is the floor
        ([[9.0, 1.0, 1.0], [9.0, 2.0, 2.0]], 1, 0.0, (1.0, 0.0, 0.5)),
        ([[9.0, 2.0, 2.0], *[[9.0, 1.0, 1.0]] * 2], 1, 0.0, (1.0, 0.0, 0.0)),  # one of three
        ([[0.5, 1.0, 1.0]], 1, 0.0, (1.0, 0.0, 0.0)),  # what is dropped may be the fastest
        ([[1e-6, 1e-6]], 0, 1e-6, (1e-6, 0.0, 1.0)),  # never below the timer's resolution
    ],
)
def test_summarize(samples: Any, dropped: int, resolution_s: float, expected: Any) -> None:
    summary = summarize(samples, dropped, resolution_s=resolution_s)
    assert (summary.time_s, summary.spread, summary.noise_floor) == pytest.approx(expected)


def _rounds(*levels: float) -> list[list[float]]:
    return [[level * (1 + 0.001 * run) for run in range(10)] for level in levels]


@pytest.mark.parametrize("rounds", [2, 3, 4, 6])
def test_noise_is_the_deviation_of_normal_rounds(rounds: int) -> None:
    random = np.random.default_rng(0)
    minima = np.exp(0.03 * random.standard_normal((10000, rounds)))
    noise = [summarize(row[:, np.newaxis].tolist(), 0).noise for row in minima]
    # runs without any spread say that nothing is left within a round
    assert np.mean(noise) / np.sqrt((rounds - 1) / rounds) == pytest.approx(0.03, rel=0.02)


def test_noise_of_a_lonely_fast_round_is_that_of_its_distance() -> None:
    assert summarize(_rounds(2, 1, 2, 2), 0).noise > 0.5
    assert summarize(_rounds(2, 1, 1, 1), 0).noise < 0.01
    assert summarize(_rounds(1, 1), 0, resolution_s=0.25).noise == 0.25


_TIMES = st.lists(st.lists(st.floats(1e-7, 10), min_size=5, max_size=5), min_size=1, max_size=4)


@given(_TIMES)
def test_any_measurement_survives_being_written(samples: list[list[float]]) -> None:
    entry = Measurement.from_samples(make_case(), samples, dropped=2)
    read = _read(format_line(HEADER) + format_line(entry))
    assert read.measurements == (entry,)
    assert entry.time_s == min(min(runs[2:]) for runs in samples)


def test_a_changed_protocol_is_validated_and_the_old_one_stays() -> None:
    changed = PROTOCOL.with_values(name="other", runs=9)
    assert (changed.name, changed.runs, PROTOCOL.runs) == ("other", 9, 4)
    with pytest.raises(ValueError, match="none is left"):
        PROTOCOL.with_values(drops=4)
