"""Imports shared by all processes of a pool, made once before they are forked."""

from __future__ import annotations

from importlib import import_module

from countperf.interrupts import end_watch

_NAMES = (
    "countperf.harness.opencl",
    "countperf.models.weights",
    "countperf.tuning.measuring",
    "countperf.tuning.points",
    "loopy.check",
    "loopy.codegen.instruction",
    "loopy.codegen.loop",
    "loopy.library.random123",
    "loopy.schedule.device_mapping",
    "loopy.target.c.c_execution",
    "numpy.random",
)

try:
    for _name in _NAMES:
        import_module(_name)
finally:
    end_watch()
