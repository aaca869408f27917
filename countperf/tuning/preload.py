"""Imported once by the process that those of the pool are forked from: what each of them needs."""

from __future__ import annotations

import os
from importlib import import_module

_parent = os.getppid()

for _name in (
    "countperf.counting.resources",
    "countperf.harness.runner",
    "countperf.harness.session",
    "countperf.models.weights",
    "countperf.properties.count_properties",
    "countperf.tuning.measuring",
    "countperf.tuning.points",
    "countperf.tuning.sending",
    "countperf.tuning.serving",
    "loopy.check",
    "loopy.codegen.instruction",
    "loopy.codegen.loop",
    "loopy.library.random123",
    "loopy.schedule.device_mapping",
    "loopy.target.c.c_execution",
    "numpy.random",
):
    import_module(_name)
    if os.getppid() != _parent:  # nobody is left to work for
        raise SystemExit
