"""Files of lines: what was cut short is left out; damage, also of gzip, is refused with advice."""

from __future__ import annotations

import gzip
import json
import operator
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from countperf.errors import DocumentError, MeasurementError
from countperf.measuring import MeasurementSet, measurements_in
from countperf.measuring.campaign import Store, measure
from countperf.store import read_content, split_lines
from countperf.tuning.result import read_journal
from tests.devices.fakes import PROTOCOL, FakeRunner, make_case
from tests.shipped import FITS
from tests.tuning.test_search import scripted, search

CASES = [make_case(kernel, n) for kernel in ("a", "b") for n in (16, 32)]


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b'{"a": 1}\n{"b": 2}\n', ['{"a": 1}', '{"b": 2}']),
        (b'{"a": 1}\n{"b": ', ['{"a": 1}']),
        (b'{"a": 1}\n{"b": 2}', ['{"a": 1}', '{"b": 2}']),
        (b'{"a": 1}\n\x00\x00\x00', ['{"a": 1}']),  # zeros after a power failure
        (b'{"a": 1}\n{"b": "\xc3', ['{"a": 1}']),  # cut inside a character
        (b'{"a": 1}\n{"b": 2}x', ['{"a": 1}']),  # its line feed is damaged
        (b'{"a": 1}\n{"\xff', ['{"a": 1}']),
        (b"", []),
    ],
)
def test_a_last_line_that_was_cut_short_is_left_out(content: bytes, lines: list[str]) -> None:
    assert list(split_lines(content)) == lines


@pytest.mark.parametrize(
    ("content", "line"), [(b'{"a": 1}\n{"\xff": 2}\n{"c": 3}\n', 2), (b'{"\xff": 1}\n', 1)]
)
def test_the_line_of_a_damaged_byte_is_named(content: bytes, line: int) -> None:
    with pytest.raises(DocumentError, match=rf"0xff is not UTF-8 \(line {line};") as caught:
        split_lines(content, path="store.jsonl")
    assert (caught.value.line, caught.value.path) == (line, "store.jsonl")


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
    feeds = [match.start() for match in re.finditer(b"\n", whole)]
    for at in [*range(0, len(whole), 197), *feeds]:
        damaged = whole[:at] + byte + whole[at + 1 :]
        store.write_bytes(damaged)
        line = whole[:at].count(b"\n") + 1
        measured, error = _outcome(store)
        if error is None:  # inside of a text: what it names is another case
            assert {entry.case for entry in measured} >= {case.name for case in CASES}
        else:
            assert str(store) in str(error)
            assert store.read_bytes() == damaged
        if isinstance(error, DocumentError):
            assert error.line in (None, line, line + 1)
        elif error is not None:  # inside of the name of a size, which is then another one
            assert "was measured at" in str(error)


def _followed(error: Exception | None, pattern: str) -> None:
    """Run the command that a message advises."""
    advice = re.search(pattern, str(error))
    assert advice is not None
    subprocess.run(["/bin/sh", "-c", advice[1]], check=True)


@pytest.mark.parametrize("at", [0.4, 0.6, 0.99])
@pytest.mark.parametrize("byte", [b"\xff", b"\n", b"{"], ids=repr)
def test_the_advice_mends_a_store(tmp_path: Path, at: float, byte: bytes) -> None:
    store = tmp_path / "it's my store.jsonl"
    whole = _resume(store)
    content = store.read_bytes()
    index = int(at * len(content))
    store.write_bytes(content[:index] + byte + content[index + 1 :])
    for _ in range(2):  # a line that was split is two damaged lines
        _, error = _outcome(store)
        if error is not None:
            _followed(error, r"\((sed .*) keeps")
    assert {entry.case for entry in _resume(store)} >= {entry.case for entry in whole}


def test_a_case_that_is_measured_twice_is_refused(tmp_path: Path) -> None:
    store = tmp_path / "store.jsonl"
    whole = _resume(store)
    lines = store.read_text().splitlines(keepends=True)
    store.write_text("".join([*lines, lines[1]]))
    before = store.read_bytes()
    _, error = _outcome(store)
    assert isinstance(error, DocumentError)
    number = len(lines) + 1
    assert error.line == number
    assert f"line {number}: " in str(error)
    assert "is measured in an earlier line" in str(error)
    assert store.read_bytes() == before
    _followed(error, r"\((sed .*) keeps")
    assert MeasurementSet.read_file(store) == whole


# --- searches


def _journal(path: Path) -> object:
    return search(scripted(), store=path).winner.choice


def test_a_search_whose_last_line_lacks_its_line_feed_loses_nothing(tmp_path: Path) -> None:
    store = tmp_path / "search.jsonl"
    winner = _journal(store)
    whole = store.read_bytes()
    store.write_bytes(whole[:-1])
    assert _journal(store) == winner
    assert store.read_bytes() == whole
    assert all(isinstance(json.loads(line), dict) for line in whole.splitlines())
    assert read_journal(_compressed(store)) == read_journal(store)


# --- gzip


@pytest.fixture(scope="module")
def lines() -> bytes:
    content = read_content(measurements_in(FITS / "pocl-epyc-zen5"))
    return b"".join(content.splitlines(keepends=True)[:40])


@pytest.fixture
def plain(lines: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "some.jsonl"
    path.write_bytes(lines)
    return path


def _compressed(path: Path) -> Path:
    target = path.with_name(f"{path.name}.gz")
    target.write_bytes(gzip.compress(path.read_bytes()))
    return target


def test_compressed_files_are_read_and_written_as_plain_ones(plain: Path, tmp_path: Path) -> None:
    measured = MeasurementSet.read_file(_compressed(plain))
    assert len(measured) + len(measured.resumptions) == 39  # all lines but the header
    assert measured == MeasurementSet.read_file(plain)
    first, second = tmp_path / "a.jsonl.gz", tmp_path / "b.jsonl.gz"
    measured.write_file(first)
    measured.write_file(second)
    content = first.read_bytes()
    assert content == second.read_bytes()
    assert content[4:8] == b"\0\0\0\0"  # time of change: none
    assert gzip.decompress(content) == measured.to_text().encode()
    assert MeasurementSet.read_file(first) == measured


@pytest.mark.parametrize(
    "damage",
    [
        *(operator.itemgetter(slice(kept)) for kept in (2, 10, 500, -9)),
        lambda raw: raw[:-999] + bytes([raw[-999] ^ 0xFF]) + raw[-998:],
    ],
)
def test_damage_of_a_compressed_file_is_found(
    plain: Path, damage: Callable[[bytes], bytes]
) -> None:
    packed = _compressed(plain)
    packed.write_bytes(damage(packed.read_bytes()))
    with pytest.raises(DocumentError, match=r"damaged gzip file: .*; restore it from a copy"):
        MeasurementSet.read_file(packed)


def test_campaigns_do_not_append_to_compressed_files(plain: Path) -> None:
    packed = _compressed(plain)
    expected = MeasurementSet.read_file(plain)
    plain.unlink()
    with pytest.raises(MeasurementError, match="no lines are appended") as caught:
        Store(packed, expected.header)
    _followed(caught.value, "run (.*?), and")
    with Store(plain, expected.header) as store:
        assert store.content == expected


def test_measurements_of_a_folder_are_found(plain: Path, tmp_path: Path) -> None:
    folder = tmp_path / "device"
    folder.mkdir()
    assert not measurements_in(folder).exists()
    _compressed(plain).rename(folder / "measurements.jsonl.gz")
    assert measurements_in(folder) == folder / "measurements.jsonl.gz"


def test_what_a_compressed_file_becomes_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("countperf.store._MAX_BYTES", 2**20)
    path = tmp_path / "large.gz"
    path.write_bytes(gzip.compress(bytes(2**20)))
    assert len(read_content(path)) == 2**20
    path.write_bytes(gzip.compress(bytes(2**20 + 1)))
    with pytest.raises(DocumentError, match=r"more than 1 MiB of .* with gunzip first"):
        read_content(path)
