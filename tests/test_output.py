"""Files that results go into: found unwritable before the work, never half-written."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from countperf.cli import main
from countperf.errors import OutputError
from countperf.measuring import MeasurementSet
from countperf.measuring.campaign import measure
from countperf.store import check_writable, write_atomically
from tests.devices.fakes import PROTOCOL, FakeRunner, make_case

CASES = [make_case("a", n) for n in (16, 32, 64, 128)]


@pytest.fixture
def full_disk(tmp_path: Path) -> Generator[Path]:
    """A file system of 64 KiB that is full."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    if mount is None or os.getuid() != 0:
        pytest.skip("mounting a small file system takes root")
    command = [mount, "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"no file system can be mounted here: {made.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def _fill(folder: Path) -> None:
    with (folder / "ballast").open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_full_disk_is_found_before_the_work_and_leaves_the_old_file(full_disk: Path) -> None:
    target = full_disk / "weights.json"
    target.write_text("old")
    _fill(full_disk)
    with pytest.raises(OutputError, match="No space left on device; free some space") as caught:
        check_writable(full_disk / "new.json")
    assert caught.value.path == str(full_disk / "new.json")
    with pytest.raises(OutputError, match="No space left"):
        write_atomically(target, "new " * 9000)
    assert target.read_text() == "old"
    assert _names(full_disk) == {"ballast", "weights.json"}


def test_a_campaign_on_a_full_disk_loses_nothing_and_goes_on(full_disk: Path) -> None:
    store = full_disk / "store.jsonl"
    ballast = full_disk / "ballast"

    def fill(case: str, turn: int, run: int) -> float:
        if (case, turn, run) == ("a/n=64", 1, 0):  # two cases are finished
            _fill(full_disk)
        return 1e-3

    more = [make_case("a", n) for n in range(4, 16, 4)]
    with pytest.raises(OutputError, match="No space left"):
        measure([*CASES, *more], store=store, runner=FakeRunner(fill), protocol=PROTOCOL)
    assert store.read_bytes().endswith(b"\n")
    finished = MeasurementSet.read_file(store)
    ballast.unlink()
    measured = measure(CASES, store=store, runner=FakeRunner(), protocol=PROTOCOL)
    assert {entry.case for entry in finished} <= {entry.case for entry in measured}
    assert {case.name for case in CASES} <= {entry.case for entry in measured}


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("folder", "Is a directory; name a file in a folder"),
        ("file/weights.json", "File exists; name a file in a folder"),
        ("x" * 300, "File name too long"),
    ],
)
def test_a_path_that_is_no_file_is_found_before_the_work(
    tmp_path: Path, path: str, said: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    target = tmp_path / path
    for write in (check_writable, lambda path: write_atomically(path, "new")):
        with pytest.raises(OutputError, match=said) as caught:
            write(target)
        assert caught.value.path == str(target)
    assert _names(tmp_path) == {"folder", "file"}


def test_a_folder_that_may_not_be_written_to_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", refuse)  # root may write everywhere
        with pytest.raises(OutputError, match="Permission denied; name a file in a folder that"):
            check_writable(tmp_path / "weights.json")


def test_pipes_are_written_to_and_links_are_kept(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    (tmp_path / "link").symlink_to("target")
    check_writable(pipe, tmp_path / "link", None)
    write_atomically(pipe, "text")
    write_atomically(tmp_path / "link", "text")
    assert os.read(reader, 99) == b"text"
    os.close(reader)
    assert pipe.is_fifo()
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "text"


@pytest.mark.parametrize(
    "command",
    [
        "fit measurements.jsonl --output",
        "evaluate measurements.jsonl --weights none --output",
        pytest.param(
            "evaluate measurements.jsonl --weights none --figure", marks=pytest.mark.extra("plot")
        ),
        "compare measurements.jsonl --output",
        "characterize --device none:0 --store",
        "tune matmul --device none:0 --store",
        pytest.param("tune matmul --device none:0 --figure", marks=pytest.mark.extra("plot")),
        "rank matmul --weights none --output",
    ],
)
def test_commands_check_their_files_before_any_work(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    target = "folder.svg" if command.endswith("--figure") else "folder"
    (tmp_path / target).mkdir()
    assert main([*command.split(), target]) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"countperf: cannot write {target}: Is a directory; name a file in")
    assert _names(tmp_path) == {target}


NASTY = """
import loopy as lp, numpy as np
kernel = lp.make_kernel("{ [i] : 0 <= i < n }", "z[i] = 2*z[i]",
    [lp.GlobalArg("z", np.float32, shape="n"), lp.ValueArg("n", np.int32)],
    name="evil\x1b]0;title\x07", assumptions="n >= 1", lang_version=(2018, 2))
"""
"""A kernel whose name would set the title of a terminal."""


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("predict n-body/256x1/f32 n=1024 --weights pocl-epyc-zen5 --model linear", 0),
        ("count evil.py:kernel n=8", 0),
        ("count evil.py:kernel n=8 --json", 0),
        ("count evil.py:nothing\x1b[2J n=8", 1),
        ("predict n-body/256x1/f32 n=4 --weights no\x1b[2Jthing", 1),
        ("count n-body/256x1/f32 \x1b[2J=4", 1),
    ],
)
def test_what_is_printed_is_safe_to_show(
    command: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("evil.py").write_text(NASTY)
    with (
        Path("out").open("w", encoding="ascii") as out,
        Path("err").open("w", encoding="ascii") as err,
    ):
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", err)
        assert main(command.split(" ")) == status
    written = Path("out").read_text() + Path("err").read_text()
    assert not set(written) & (set(map(chr, range(32))) - set("\n\t"))
    if "evil.py:kernel" in command:
        assert "evil\\x1b]" in written or "evil\\u001b]" in written


@pytest.mark.parametrize(
    "command",
    [
        "weights --json >&-",
        "weights >&- 2>&-",
        "weights 2>&1 | head -c 1",
        "--help 2>&1 | head -c 0",
    ],
)
def test_standard_output_may_be_closed(command: str) -> None:
    line = f"{shlex.quote(sys.executable)} -m countperf {command}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, check=False)
    written = done.stdout + done.stderr
    assert done.returncode == 0, written
    assert b"Traceback" not in written
    assert b"Exception ignored" not in written


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_standard_output_that_is_full_is_one_line() -> None:
    command = [sys.executable, "-m", "countperf", "count", "n-body/256x1/f32", "n=1024"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    (said,) = [line for line in done.stderr.splitlines() if not line.endswith(" so far")]
    assert "No space left on device" in said


def test_threads_that_write_one_file_leave_one_of_their_texts_whole(tmp_path: Path) -> None:
    path = tmp_path / "weights.json"
    texts = [f"{number}" * 100_000 for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda text: write_atomically(path, text), texts * 3))
    assert path.read_text() in texts
    assert _names(tmp_path) == {"weights.json"}
