"""Committed measurements, read once per process: they are large."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from countperf.measuring import MeasurementSet, measurements_in

FITS = Path(__file__).parents[1] / "fits"


@cache
def shipped_measurements(slug: str) -> MeasurementSet:
    return MeasurementSet.read_file(measurements_in(FITS / slug))
