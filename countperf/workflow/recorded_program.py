"""Recording of a whole program, as the environment asks: from its start to its end."""

from __future__ import annotations

import atexit
import os
import sys
from pathlib import Path

from countperf.launch_recorder import Recorder

FILE_VARIABLE = "COUNTPERF_RECORD"
"""Environment variable: the file into which a program's launches are recorded when it ends.

``%p`` in it stands for the number of the process.
"""


def start_from_environment() -> None:
    """Record this program's launches, if the environment names a file for them; once."""
    named = os.environ.get(FILE_VARIABLE)
    if not named or _started:
        return
    _started.append(True)
    recorder = Recorder()
    recorder.start()
    file = Path(named.replace("%p", str(os.getpid())))
    before = _changed_ns(file)
    owner = os.getpid()
    os.register_at_fork(after_in_child=recorder.forget)
    atexit.register(lambda: _finish(recorder, file, before, owner))


_started: list[bool] = []


def _finish(recorder: Recorder, file: Path, before: int | None, owner: int) -> None:
    """Count, predict and write what was recorded; say in one line what cannot be."""
    recorder.stop()
    if not recorder.kinds and not recorder.problems:
        if "loopy" in sys.modules and os.getpid() == owner:
            _say(f"Loopy launched no kernel; {file} is not written")
        return
    try:
        from countperf.workflow.recording import LaunchLog  # slow, and programs may launch nothing

        place = free_place(file, before)
        _say(f"{len(recorder.kinds)} kinds of launches were recorded and are counted now")
        LaunchLog(recorder).write_file(place, rescue=True)
        _say(f"the recorded launches are in {place}")
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  the program has ended well
        _say(f"recording: {type(error).__name__}: {error}")


def free_place(file: Path, before: int | None) -> Path:
    """Return where to write: the file, or beside it if another process has written it meanwhile.

    Parameters
    ----------
    file : Path
        What the environment names.
    before : int or None
        When it was written last as this program began, ns; None if it was not there.
    """
    if _changed_ns(file) == before:
        return file
    return file.with_name(f"{file.stem}.{os.getpid()}{file.suffix}")


def _say(text: str) -> None:
    sys.stderr.write(f"countperf: {text}\n")


def _changed_ns(file: Path) -> int | None:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return None
