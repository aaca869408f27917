"""Files of lines: what was cut short is left out, and damage is refused with advice that works."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from countperf.documents import split_lines
from countperf.errors import DocumentError, MeasurementError
from countperf.harness.campaign import measure
from countperf.measurements import MeasurementSet
from tests.harness.fakes import PROTOCOL, FakeRunner, make_case

CASES = [make_case(kernel, n) for kernel in ("a", "b") for n in (16, 32)]


@pytest.mark.parametrize(
    ("content", "lines", "kept"),
    [
        pytest.param(b'{"a": 1}\n{"b": 2}\n', ['{"a": 1}', '{"b": 2}'], 18, id="whole"),
        pytest.param(b'{"a": 1}\n{"b": ', ['{"a": 1}'], 9, id="cut short"),
        pytest.param(b'{"a": 1}\n{"b": 2}', ['{"a": 1}', '{"b": 2}'], 17, id="no line feed"),
        pytest.param(b'{"a": 1}\n\x00\x00\x00', ['{"a": 1}'], 9, id="zeros after a power failure"),
        pytest.param(b'{"a": 1}\n{"b": "\xc3', ['{"a": 1}'], 9, id="cut inside a character"),
        pytest.param(b"", [], 0, id="empty"),
    ],
)
def test_a_last_line_that_was_cut_short_is_left_out(
    content: bytes, lines: list[str], kept: int
) -> None:
    found = split_lines(content)

    assert list(found.lines) == lines
    assert found.kept_bytes == kept


@pytest.mark.parametrize(
    ("content", "line", "offset"),
    [
        pytest.param(b'{"a": 1}\n{"\xff": 2}\n{"c": 3}\n', 2, 11, id="inside"),
        pytest.param(b'{"a": 1}\n{"b": 2}\xff', 2, 17, id="instead of the last line feed"),
        pytest.param(b'{"a": 1}\n{"b": 2}x', 2, 17, id="a letter for the last line feed"),
        pytest.param(b'{"a": 1}x', 1, 8, id="a letter for the only line feed"),
        pytest.param(b'{"\xff": 1}\n', 1, 2, id="in the header"),
        pytest.param(b'{"a": 1}\n{"\xff', 2, 11, id="in a line that was cut short"),
    ],
)
def test_a_damaged_byte_is_named(content: bytes, line: int, offset: int) -> None:
    with pytest.raises(DocumentError, match=f"byte {offset}, line {line}") as caught:
        split_lines(content, path="store.jsonl")

    assert (caught.value.line, caught.value.offset) == (line, offset)
    assert caught.value.path == "store.jsonl"


def _outcome(
    store: Path,
) -> tuple[MeasurementSet | tuple[()], DocumentError | MeasurementError | None]:
    try:
        return _resume(store), None
    except (DocumentError, MeasurementError) as error:
        return (), error


def _resume(store: Path) -> MeasurementSet:
    return measure(CASES, store=store, runner=FakeRunner(), protocol=PROTOCOL)


@pytest.mark.parametrize("byte", [b"\xff", b"\x00", b"}", b"\n", b"\r"], ids=repr)
def test_no_damaged_byte_of_a_store_loses_a_case_when_it_resumes(
    tmp_path: Path, byte: bytes
) -> None:
    store = tmp_path / "my store.jsonl"
    _resume(store)
    whole = store.read_bytes()
    feeds = [place for place, each in enumerate(whole) if each == ord("\n")]

    for place in [*range(0, len(whole), 197), *feeds]:
        damaged = whole[:place] + byte + whole[place + 1 :]
        store.write_bytes(damaged)
        line = whole[:place].count(b"\n") + 1
        found, error = _outcome(store)
        if error is None:  # inside of a text: what it names is another case
            assert {each.case for each in found} >= {case.name for case in CASES}
        else:
            assert str(store) in str(error)
            assert store.read_bytes() == damaged
        if isinstance(error, DocumentError):
            assert error.line in (None, line, line + 1)
        elif error is not None:  # inside of the name of a size, which is then another one
            assert "was measured at" in str(error)


@pytest.mark.parametrize("place", [0.4, 0.6, 0.99])
@pytest.mark.parametrize("byte", [b"\xff", b"\n", b"{"], ids=repr)
def test_the_advice_mends_a_store(tmp_path: Path, place: float, byte: bytes) -> None:
    store = tmp_path / "it's my store.jsonl"
    whole = _resume(store)
    content = store.read_bytes()
    at = int(place * len(content))
    store.write_bytes(content[:at] + byte + content[at + 1 :])

    for _ in range(2):  # a line that was split is two damaged lines
        found, error = _outcome(store)
        if error is not None:
            advice = re.search(r"\((sed .*) keeps", str(error))
            assert advice is not None
            subprocess.run(advice[1], shell=True, check=True)
    found, _ = _outcome(store)

    assert {each.case for each in found} >= {each.case for each in whole}


def _journal(path: Path) -> object:
    from tests.tuning.test_search import scripted, search

    return search(scripted(), store=path).winner.choice


@pytest.mark.parametrize("change", [lambda raw: raw[:-1] + b"x", lambda raw: raw[:-1] + b"\xff"])
def test_a_damaged_search_is_refused_and_left_alone(
    tmp_path: Path, change: Callable[[bytes], bytes]
) -> None:
    store = tmp_path / "search.jsonl"
    _journal(store)
    store.write_bytes(change(store.read_bytes()))
    damaged = store.read_bytes()

    with pytest.raises(DocumentError, match=f"byte {len(damaged) - 1}, line "):
        _journal(store)

    assert store.read_bytes() == damaged


def test_a_search_whose_last_line_lacks_its_line_feed_loses_nothing(tmp_path: Path) -> None:
    store = tmp_path / "search.jsonl"
    winner = _journal(store)
    whole = store.read_bytes()
    store.write_bytes(whole[:-1])

    assert _journal(store) == winner
    assert store.read_bytes() == whole
    assert all(isinstance(json.loads(line), dict) for line in whole.splitlines())
