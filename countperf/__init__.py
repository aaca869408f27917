"""Predict the run time of Loopy kernels from exact symbolic counts and weights fitted to a device.

Importing this package is cheap: each name is imported from its home when it is first used.
"""

from __future__ import annotations

from countperf import _path as _path  # isort: split

from importlib import import_module
from typing import TYPE_CHECKING, Any

from countperf import display
from countperf.caches import LOOPYS, give_a_cache
from countperf.version import __version__

if TYPE_CHECKING:
    from countperf.counting.analysis import KernelAnalysis, analyze_kernel
    from countperf.errors import CountperfError
    from countperf.harness.compile.ptx import profile_kernel
    from countperf.harness.devices import examine as doctor
    from countperf.measurements import KernelCase, Measurement, MeasurementSet
    from countperf.measurements import TimingDocument as Timing
    from countperf.models.library import load_weights
    from countperf.models.weights import WeightSet
    from countperf.predictions import Prediction
    from countperf.properties.count_properties import count_kernel
    from countperf.properties.counts import Count
    from countperf.properties.vector import PropertyVector
    from countperf.tuning.measuring import measure
    from countperf.tuning.space import SearchSpace
    from countperf.workflow.applications import predict_application
    from countperf.workflow.device_choice import predict_on
    from countperf.workflow.fits import available_weights, devices
    from countperf.workflow.fitting import evaluate, fit
    from countperf.workflow.kernels import load_kernel
    from countperf.workflow.measuring import measure_catalogue
    from countperf.workflow.mechanistic import (
        occupancy,
        predict_all,
        step_formulas,
        sweep,
    )
    from countperf.workflow.prediction import explain, predict, with_compiled_code
    from countperf.workflow.recording import recording
    from countperf.workflow.timing import time_kernel
    from countperf.workflow.tuning import rank, tune


_HOMES = {
    "counting.analysis": "KernelAnalysis analyze_kernel",
    "errors": "CountperfError",
    "harness.compile.ptx": "profile_kernel",
    "harness.devices": "doctor=examine",
    "measurements": "KernelCase Measurement MeasurementSet Timing=TimingDocument",
    "models.library": "load_weights",
    "models.weights": "WeightSet",
    "predictions": "Prediction",
    "properties.count_properties": "count_kernel",
    "properties.vector": "Count PropertyVector",
    "tuning.measuring": "measure",
    "tuning.space": "SearchSpace",
    "workflow.applications": "predict_application",
    "workflow.device_choice": "predict_on",
    "workflow.fits": "available_weights devices",
    "workflow.fitting": "evaluate fit",
    "workflow.kernels": "load_kernel",
    "workflow.measuring": "measure_catalogue",
    "workflow.mechanistic": "occupancy predict_all step_formulas sweep",
    "workflow.prediction": "explain predict with_compiled_code",
    "workflow.recording": "recording",
    "workflow.timing": "time_kernel",
    "workflow.tuning": "rank tune",
}
"""Public names by the module that each is imported from when it is first used."""

_NAMES = {
    name.partition("=")[0]: (f"countperf.{home}", name.rpartition("=")[2])
    for home, names in _HOMES.items()
    for name in names.split()
}
__all__ = ["__version__"]
__all__ += ["Count", "CountperfError", "KernelAnalysis", "KernelCase", "Measurement"]
__all__ += ["MeasurementSet", "Prediction", "PropertyVector", "SearchSpace", "Timing", "WeightSet"]
__all__ += ["analyze_kernel", "available_weights", "count_kernel", "devices", "doctor"]
__all__ += ["evaluate", "explain", "fit", "load_kernel", "load_weights", "measure"]
__all__ += ["measure_catalogue", "occupancy", "predict"]
__all__ += ["predict_all", "predict_application", "predict_on", "profile_kernel", "rank"]
__all__ += ["recording", "step_formulas", "sweep", "time_kernel", "tune", "with_compiled_code"]


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


give_a_cache(LOOPYS)
display.above = _Above()


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'countperf' has no attribute {name!r}")
    module, attribute = _NAMES[name]
    value = globals()[name] = getattr(import_module(module), attribute)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
