"""Switch-off of Loopy's caches on disk."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import loopy as lp

from countperf.counting.threads import shared_by_threads


@shared_by_threads
@contextmanager
def without_disk_caches() -> Generator[None]:
    """Have Loopy look nothing up on the disk and write nothing there, in all threads."""
    was_enabled = lp.CACHING_ENABLED
    lp.set_caching_enabled(False)
    try:
        yield
    finally:
        lp.set_caching_enabled(was_enabled)
