"""Cases to measure (`KernelCase`), campaigns that time them, and their results (`MeasurementSet`).

A `MeasurementSet` is stored as lines of JSON: first the header, then one line per finished case,
appended as they finish, so that the file is the store from which an interrupted campaign resumes.
A line is told by its field ``status``: ``measured``, ``failed``, or ``resumed`` (a later session
went on with the campaign; its environment holds for the cases below it).
"""

from __future__ import annotations

from countperf.measuring.cases import (
    PURPOSES,
    Environment,
    FailedCase,
    Header,
    InstructionCounts,
    KernelCase,
    Measurement,
    Protocol,
    Purpose,
    Resumption,
    Settling,
    Statistic,
    Summary,
    summarize,
)
from countperf.measuring.measurement_sets import (
    MeasurementSet,
    TimedSize,
    Timing,
    TimingVerdict,
    counts_digest,
    measurements_in,
)

__all__ = ["PURPOSES", "Environment", "FailedCase", "Header", "InstructionCounts", "KernelCase"]
__all__ += ["Measurement", "MeasurementSet", "Protocol", "Purpose", "Resumption", "Settling"]
__all__ += ["Statistic", "Summary", "TimedSize", "Timing", "TimingVerdict", "counts_digest"]
__all__ += ["measurements_in", "summarize"]
