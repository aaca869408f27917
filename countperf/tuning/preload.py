"""Imported once by the process that those of the pool are forked from: what each of them needs."""

from __future__ import annotations

from importlib import import_module

for _name in (
    "countperf.counting.resources",
    "countperf.models.weights",
    "countperf.properties.count_properties",
    "countperf.tuning.points",
):
    import_module(_name)
