"""Predict the run time of Loopy kernels from exact symbolic counts and weights fitted to a device.

Importing this package is cheap: each name is imported from its home when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from countperf import _path as _path
from countperf import display
from countperf.caches import guard_persistent_dicts
from countperf.version import __version__

if TYPE_CHECKING:
    from countperf.counting.analysis import KernelAnalysis, analyze_kernel
    from countperf.counting.unused_local import with_unused_local
    from countperf.errors import CountperfError
    from countperf.harness.doctor import examine as doctor
    from countperf.harness.profiles import profile_kernel
    from countperf.measurements import KernelCase, Measurement, MeasurementSet
    from countperf.measurements import TimingDocument as Timing
    from countperf.models.library import load_weights
    from countperf.models.weights import WeightSet
    from countperf.predictions import Prediction
    from countperf.properties.count_properties import count_kernel
    from countperf.properties.counts import Count
    from countperf.properties.vector import PropertyVector
    from countperf.tuning.apart import measure
    from countperf.tuning.space import SearchSpace
    from countperf.workflow.analyzing import coverage, with_transactions
    from countperf.workflow.applications import predict_application
    from countperf.workflow.devices import devices
    from countperf.workflow.evaluating import evaluate
    from countperf.workflow.fits import available_weights
    from countperf.workflow.fitting import fit
    from countperf.workflow.kernels import load_kernel
    from countperf.workflow.measuring import measure_catalogue
    from countperf.workflow.mechanistic import mechanistic_cost, occupancy, predict_all, sweep
    from countperf.workflow.prediction import explain, predict, with_compiled_code
    from countperf.workflow.recording import LaunchLog, recording
    from countperf.workflow.timing import time_kernel
    from countperf.workflow.tuning import rank, tune


_HOMES = {
    "Count": "countperf.properties.vector",
    "CountperfError": "countperf.errors",
    "KernelAnalysis": "countperf.counting.analysis",
    "KernelCase": "countperf.measurements",
    "LaunchLog": "countperf.workflow.recording",
    "Measurement": "countperf.measurements",
    "MeasurementSet": "countperf.measurements",
    "Prediction": "countperf.predictions",
    "PropertyVector": "countperf.properties.vector",
    "SearchSpace": "countperf.tuning.space",
    "Timing": "countperf.measurements:TimingDocument",
    "WeightSet": "countperf.models.weights",
    "analyze_kernel": "countperf.counting.analysis",
    "available_weights": "countperf.workflow.fits",
    "count_kernel": "countperf.properties.count_properties",
    "coverage": "countperf.workflow.analyzing",
    "devices": "countperf.workflow.devices",
    "doctor": "countperf.harness.doctor:examine",
    "evaluate": "countperf.workflow.evaluating",
    "explain": "countperf.workflow.prediction",
    "fit": "countperf.workflow.fitting",
    "load_kernel": "countperf.workflow.kernels",
    "load_weights": "countperf.models.library",
    "measure": "countperf.tuning.apart",
    "measure_catalogue": "countperf.workflow.measuring",
    "mechanistic_cost": "countperf.workflow.mechanistic",
    "occupancy": "countperf.workflow.mechanistic",
    "predict": "countperf.workflow.prediction",
    "predict_all": "countperf.workflow.mechanistic",
    "predict_application": "countperf.workflow.applications",
    "profile_kernel": "countperf.harness.profiles",
    "rank": "countperf.workflow.tuning",
    "recording": "countperf.workflow.recording",
    "sweep": "countperf.workflow.mechanistic",
    "time_kernel": "countperf.workflow.timing",
    "tune": "countperf.workflow.tuning",
    "with_compiled_code": "countperf.workflow.prediction",
    "with_transactions": "countperf.workflow.analyzing",
    "with_unused_local": "countperf.counting.unused_local",
}

__all__ = [
    "Count",
    "CountperfError",
    "KernelAnalysis",
    "KernelCase",
    "LaunchLog",
    "Measurement",
    "MeasurementSet",
    "Prediction",
    "PropertyVector",
    "SearchSpace",
    "Timing",
    "WeightSet",
    "__version__",
    "analyze_kernel",
    "available_weights",
    "count_kernel",
    "coverage",
    "devices",
    "doctor",
    "evaluate",
    "explain",
    "fit",
    "load_kernel",
    "load_weights",
    "measure",
    "measure_catalogue",
    "mechanistic_cost",
    "occupancy",
    "predict",
    "predict_all",
    "predict_application",
    "profile_kernel",
    "rank",
    "recording",
    "sweep",
    "time_kernel",
    "tune",
    "with_compiled_code",
    "with_transactions",
    "with_unused_local",
]


class _Above:
    """Reports and predictions, which are imported when a method first needs them."""

    def printed(self, result: Any) -> Any:
        from countperf.report.printing import printed

        return printed(result)

    def figure(self, result: Any, path: Any, **options: Any) -> Any:
        from countperf.report.figures import figure_of

        return figure_of(result, path, **options)

    def pair(self, first: Any, second: Any) -> Any:
        from countperf.report.predictions import PredictionPair

        return PredictionPair(first=first, second=second)

    def predict(self, kernel: Any, sizes: Any, **options: Any) -> Prediction:
        from countperf.workflow.prediction import predict

        return predict(kernel, sizes, **options)

    def explain(self, kernel: Any, sizes: Any, **options: Any) -> Any:
        from countperf.workflow.prediction import explain

        return explain(kernel, sizes, **options)


guard_persistent_dicts()
display.above = _Above()


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'countperf' has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    value = globals()[name] = getattr(import_module(module), attribute or name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
