"""Tests; they keep no object files in the user's cache."""

import os

os.environ.setdefault("COUNTPERF_OBJECT_CACHE", "off")
