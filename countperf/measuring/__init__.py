"""Cases to measure (`KernelCase`), campaigns that time them, and results (`MeasurementSet`)."""

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
