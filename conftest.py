"""For all tests and doctests: nothing is read from, or written to, the user's cache of counts."""

from __future__ import annotations

import os

os.environ["COUNTPERF_CACHE_DIR"] = ""
