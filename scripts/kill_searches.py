"""Kill searches at random moments, and count the processes that they leave behind.

    python scripts/kill_searches.py --kills 50 --after 4

Each search runs in a session of its own with a mark in its environment, by which its processes, and
those that they began, are found whatever group they are in. Half are ended with SIGTERM, half with
SIGKILL. What has not ended a few seconds later is left behind, as is a pipe of the caller that is
still open then, and a file of a search that cannot be read. Linux only.
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
from countperf.tuning.result import read_journal

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


def kill_one(command: list[str], number: signal.Signals, at_s: float, wait_s: float) -> list[int]:
    """Kill a search after some seconds; return the processes that are left some seconds later."""
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
        try:
            search.communicate(timeout=wait_s)
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
    return left


def main() -> int:
    """Kill searches one after the other; the exit status tells whether any left something."""
    command = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    command.add_argument("--kills", type=int, default=50)
    command.add_argument("--before", type=float, default=14.0, help="latest moment, s")
    command.add_argument("--after", type=float, default=4.0, help="when to look, s")
    command.add_argument("--seed", type=int, default=0)
    command.add_argument("--budget", type=float, default=60.0, help="of each search, s")
    command.add_argument("--device", help="of the searches; by default the best one")
    command.add_argument("space", nargs="*", default=["matmul", "n=256", "l=256", "m=256"])
    options = command.parse_args()
    chance = random.Random(options.seed)
    left: list[int] = []
    unreadable = 0
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(options.kills):
            search = [sys.executable, "-P", "-m", "countperf", "tune", *options.space]
            search += ["--budget", str(options.budget), "--store", f"{folder}/{turn}.jsonl"]
            search += ["--device", options.device] if options.device else []
            number = (signal.SIGTERM, signal.SIGKILL)[turn % 2]
            at_s = chance.uniform(0.3, options.before)
            left += kill_one(search, number, at_s, options.after)
            store = Path(folder) / f"{turn}.jsonl"
            if store.exists() and b"\n" in store.read_bytes():  # else it begins anew
                try:
                    read_journal(store)
                except DocumentError as error:
                    print(f"  {error}", flush=True)
                    unreadable += 1
    print(f"{options.kills} kills, {len(left)} processes left, {unreadable} files unreadable")
    return 1 if left or unreadable else 0


if __name__ == "__main__":
    sys.exit(main())
