"""Suppression of Loopy's output about variants; failures are recorded as reasons."""

from __future__ import annotations

import io
import warnings
from collections.abc import Generator
from contextlib import contextmanager, redirect_stdout

from countperf.counting.unattended import shared_by_threads


@shared_by_threads
@contextmanager
def silence() -> Generator[None]:
    """Silence standard output and warnings until the last thread that asked for it is through."""
    with redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
