"""Kill commands that start processes at random moments, and count the processes that are left.

    python scripts/kill_searches.py --kills 50 --after 4

Each command runs in a session of its own with a mark in its environment, by which its processes,
and those that they began, are found whatever group they are in. They take turns: searches, reading
code, measuring, ranking, timing; so do SIGTERM, SIGKILL and SIGINT. What has not ended a few
seconds later is left behind, as is a pipe of the caller that is still open then, and a file that
cannot be read. SIGINT has to end a command with status 130 and without a traceback. Linux only.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

from countperf.errors import DocumentError
from countperf.measuring import MeasurementSet
from countperf.store import read_content
from countperf.tuning.result import read_journal

_RANDOM = "matmul n=256 l=256 m=256"
_COMMANDS = (
    f"tune {_RANDOM} --budget 60 --store STORE",
    "compiled --store STORE",
    "measure --store STORE",
    f"rank {_RANDOM}",
    "time short-launches/axpy/512x1/f32 n=65536,131072",
)
_SIGNALS = (signal.SIGTERM, signal.SIGKILL, signal.SIGINT)
_MARK = "COUNTPERF_KILLED_SEARCH"


def marked(mark: str) -> list[int]:
    """Return the numbers of the processes that have a mark in their environment."""
    found: list[int] = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                if f"{_MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
    return found


def told(process: int) -> str:
    """Say what a process is: its command, parent, state, and what it waits for."""
    try:
        folder = Path("/proc") / str(process)
        command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:150]
        status = (folder / "stat").read_text().rpartition(")")[2].split()
        waits = (folder / "wchan").read_text()
        return f"{command} (state {status[0]}, parent {status[1]}, in {waits})"
    except OSError as error:
        return f"gone: {error}"


def kill_one(
    command: list[str], number: signal.Signals, at_s: float, wait_s: float
) -> tuple[list[int], bool]:
    """Kill a command after some seconds; return what is left later, and if it ended wrongly."""
    mark = uuid.uuid4().hex
    with subprocess.Popen(
        command,
        env={**os.environ, _MARK: mark},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as search:
        time.sleep(at_s)
        there = len(marked(mark))
        search.send_signal(number)
        killed_s = time.monotonic()
        printed = b""
        try:
            printed, _ = search.communicate(timeout=wait_s)
            closed = f"pipe closed after {time.monotonic() - killed_s:.2f} s"
        except subprocess.TimeoutExpired:
            closed = "pipe still open"
        while (left := marked(mark)) and time.monotonic() - killed_s < wait_s:
            time.sleep(0.1)
        gone_s = time.monotonic() - killed_s
        print(
            f"{number.name} at {at_s:.2f} s: {there} processes, {closed},"
            f" {len(left)} left after {gone_s:.2f} s",
            flush=True,
        )
        for process in left:
            print(f"  left: {process}: {told(process)}", flush=True)
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        # before the first import of ours, Python itself shows a traceback
        began = number == signal.SIGINT and b"countperf" in printed
        wrong = began and (search.returncode not in (0, 130) or b"Traceback" in printed)
        if wrong:
            print(f"  status {search.returncode}: {printed[-800:].decode(errors='replace')}")
    return left, wrong


def main() -> int:
    """Kill commands one after the other; the exit status tells whether any left something."""
    command = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    command.add_argument("--kills", type=int, default=50)
    command.add_argument("--before", type=float, default=14.0, help="latest moment, s")
    command.add_argument("--after", type=float, default=4.0, help="when to look, s")
    command.add_argument("--seed", type=int, default=0)
    command.add_argument("--device", default="pocl:0", help="of all commands")
    command.add_argument(
        "--campaign", help="a file of measurements of that device, whose code is read"
    )
    options = command.parse_args()
    chance = random.Random(options.seed)
    left: list[int] = []
    unreadable = wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(options.kills):
            text = _COMMANDS[turn % len(_COMMANDS)]
            store = Path(folder) / f"{turn}.jsonl"
            if text.startswith("compiled"):
                if options.campaign is None:
                    continue
                store.write_bytes(read_content(options.campaign))
            words = [str(store) if word == "STORE" else word for word in text.split()]
            killed = [sys.executable, "-P", "-m", "countperf", *words, "--device", options.device]
            number = _SIGNALS[turn % len(_SIGNALS)]
            after, is_wrong = kill_one(
                killed, number, chance.uniform(0.3, options.before), options.after
            )
            left += after
            wrong += is_wrong
            if store.exists() and b"\n" in store.read_bytes():  # else it begins anew
                try:
                    (read_journal if text.startswith("tune") else MeasurementSet.read_file)(store)
                except DocumentError as error:
                    print(f"  {error}", flush=True)
                    unreadable += 1
    said = f"{len(left)} processes left, {unreadable} files unreadable, {wrong} ended wrongly"
    print(f"{options.kills} kills, {said}")
    return 1 if left or unreadable or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
