"""Progress of long jobs."""

from __future__ import annotations


def say_nothing(_: str) -> None:
    """Take a line of progress and show it nowhere."""
