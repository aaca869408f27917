"""Measurements and searches in files that gzip compressed read as the plain ones do."""

from __future__ import annotations

import gzip
import subprocess
from pathlib import Path

import pytest

from countperf.documents import read_content
from countperf.errors import DocumentError, MeasurementError
from countperf.harness.campaign import Store
from countperf.measurements import MeasurementSet, measurements_in
from countperf.tuning.journal import read_journal

SHIPPED = measurements_in(Path(__file__).parents[1] / "fits" / "pocl-epyc-zen5")


@pytest.fixture(scope="module")
def lines() -> bytes:
    return b"".join(read_content(SHIPPED).splitlines(keepends=True)[:40])


@pytest.fixture
def plain(lines: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "some.jsonl"
    path.write_bytes(lines)
    return path


def _compressed(path: Path) -> Path:
    target = path.with_name(f"{path.name}.gz")
    target.write_bytes(gzip.compress(path.read_bytes()))
    return target


def test_the_same_records_are_read(plain: Path) -> None:
    found = MeasurementSet.read_file(_compressed(plain))

    assert len(found) + len(found.resumptions) == 39  # all lines but the header
    assert found == MeasurementSet.read_file(plain)


def test_written_files_are_equal_byte_for_byte_and_read_by_gzip(
    plain: Path, tmp_path: Path
) -> None:
    found = MeasurementSet.read_file(plain)
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        found.write_file(tmp_path / name)

    first, second = ((tmp_path / name).read_bytes() for name in ("a.jsonl.gz", "b.jsonl.gz"))
    assert first == second
    assert first[4:8] == b"\0\0\0\0"  # time of change: none
    assert gzip.decompress(first) == found.to_text().encode()
    assert MeasurementSet.read_file(tmp_path / "a.jsonl.gz") == found


def test_a_damaged_line_is_told_as_in_the_plain_file(plain: Path) -> None:
    good = plain.read_bytes()
    place = good.index(b"\n", 20000)
    plain.write_bytes(good[:place] + b"}" + good[place:])
    packed = _compressed(plain)
    with pytest.raises(DocumentError) as of_plain:
        MeasurementSet.read_file(plain)

    with pytest.raises(DocumentError) as caught:
        MeasurementSet.read_file(packed)

    assert (caught.value.line, caught.value.offset) == (of_plain.value.line, of_plain.value.offset)
    advice = str(caught.value).partition("delete the line (")[2].partition(" keeps")[0]
    plain.unlink()
    subprocess.run(["/bin/sh", "-c", advice], check=True)
    mended = MeasurementSet.read_file(packed)
    assert len(mended) + len(mended.resumptions) == 38


@pytest.mark.parametrize("kept", [2, 10, 500, -9])
def test_a_compressed_file_that_was_cut_short_is_damaged(plain: Path, kept: int) -> None:
    packed = _compressed(plain)
    packed.write_bytes(packed.read_bytes()[:kept])

    with pytest.raises(DocumentError, match=r"damaged gzip file: .*; restore it from a copy"):
        MeasurementSet.read_file(packed)


def test_a_changed_byte_is_found(plain: Path) -> None:
    packed = _compressed(plain)
    content = bytearray(packed.read_bytes())
    content[len(content) // 2] ^= 0xFF
    packed.write_bytes(content)

    with pytest.raises(DocumentError, match="damaged gzip file"):
        MeasurementSet.read_file(packed)


def test_campaigns_do_not_append_to_compressed_files(plain: Path) -> None:
    packed = _compressed(plain)
    expected = MeasurementSet.read_file(plain)
    header = expected.header
    plain.unlink()
    with pytest.raises(MeasurementError, match="no lines are appended") as caught:
        Store(packed, header)

    advice = str(caught.value).partition("run ")[2].partition(", or")[0]
    subprocess.run(["/bin/sh", "-c", advice], check=True)
    with Store(plain, header) as store:
        assert store.content == expected


def test_searches_are_read_compressed(tmp_path: Path) -> None:
    path = tmp_path / "search.jsonl"
    path.write_text('{"format": "countperf-tuning", "version": 1}\n')
    expected: object = None
    try:
        expected = read_journal(path)
    except DocumentError as error:
        expected = str(error).replace(str(path), "FILE")

    try:
        found: object = read_journal(_compressed(path))
    except DocumentError as error:
        found = str(error).replace(f"{path}.gz", "FILE")

    assert found == expected


def test_measurements_of_a_folder_are_found(plain: Path, tmp_path: Path) -> None:
    folder = tmp_path / "device"
    folder.mkdir()
    assert not measurements_in(folder).exists()

    _compressed(plain).rename(folder / "measurements.jsonl.gz")

    assert measurements_in(folder) == folder / "measurements.jsonl.gz"


def test_what_a_compressed_file_becomes_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("countperf.documents.lines._LARGEST", 2**20)
    path = tmp_path / "large.gz"
    path.write_bytes(gzip.compress(bytes(2**20)))
    assert len(read_content(path)) == 2**20
    path.write_bytes(gzip.compress(bytes(2**20 + 1)))
    with pytest.raises(
        DocumentError, match=r"more than 1 MiB of .* decompress it with gunzip first"
    ):
        read_content(path)
