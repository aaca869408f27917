"""For all tests and doctests: nothing is read from, or written to, the user's cache of counts."""

from __future__ import annotations

import os
from importlib.util import find_spec

os.environ["COUNTPERF_CACHE_DIR"] = ""
collect_ignore = [] if find_spec("optuna") else ["countperf/integrations/optuna.py"]
"""Plug-ins whose package is not installed cannot be imported by the collection of doctests."""
