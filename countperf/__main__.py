"""``countperf`` and ``python -m countperf`` are the command line."""

from __future__ import annotations

import os
import signal
import sys

from countperf.cli import INTERRUPTED, main


def run() -> None:
    """Run the command line as a program, whose end nothing interrupts."""
    status = main()
    if status == INTERRUPTED:
        os._exit(status)  # Python may take itself for ended by the signal
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(status)


if __name__ == "__main__":
    run()
