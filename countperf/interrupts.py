"""Imported first by the process that those of a pool are forked from: it ignores interrupts.

A terminal sends Ctrl-C to all processes of a command; the one that the user started ends the
others.
"""

from __future__ import annotations

import signal

signal.signal(signal.SIGINT, signal.SIG_IGN)
