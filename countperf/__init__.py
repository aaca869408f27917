"""Predict the run time of Loopy kernels from exact symbolic counts and weights fitted to a device.

Importing this package is cheap: each name is imported from its home when it is first used.

Programs import it first. ``python -m countperf`` puts the current folder first on the path of
modules, where a file of the user's, such as ``random.py``, would take the place of an installed
module: the folder goes last. And Ctrl-C ends the command line at once as long as no command runs,
since modules that are half imported and libraries turn an interrupt into errors of their own.
"""

from __future__ import annotations

import _signal  # pyright: ignore[reportMissingImports] - of `signal`, without its imports
import os
import sys


def _end_at_once(_number: int, _frame: object) -> None:
    """End the process, in which nothing has begun."""
    os.write(2, b"countperf: interrupted; nothing has begun\n")
    os._exit(130)


_module = ""
if sys.argv[:1] == ["-m"]:  # a module that Python is looking for
    _module = sys.orig_argv[sys.orig_argv.index("-m") + 1]
    if not sys.flags.safe_path and _module.partition(".")[0] == "countperf":
        sys.path.append(sys.path.pop(0))
_is_program = _module == "countperf" or os.path.basename(sys.argv[0]) == "countperf"  # noqa: PTH119
if _is_program and _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _end_at_once)

from importlib import import_module
from typing import TYPE_CHECKING, Any

from countperf import display
from countperf.caches import LOOPYS, give_a_cache

__version__ = "0.2.0"

if TYPE_CHECKING:
    from countperf.api.applications import predict_application
    from countperf.api.calibration import calibrate
    from countperf.api.catalogue import measure_catalogue
    from countperf.api.device_choice import predict_on
    from countperf.api.evaluation import evaluate, fit
    from countperf.api.fits import available_weights
    from countperf.api.kernels import load_kernel
    from countperf.api.mechanistic_models import (
        occupancy,
        predict_all,
        step_formulas,
        sweep,
    )
    from countperf.api.prediction import explain, predict, with_compiled_code
    from countperf.api.recording import recording
    from countperf.api.searching import rank, tune
    from countperf.api.timing import time_kernel
    from countperf.counting.analysis import KernelAnalysis, analyze_kernel
    from countperf.counting.count_properties import count_kernel
    from countperf.counting.counts import Count
    from countperf.counting.vector import PropertyVector
    from countperf.devices.discovery import examine as doctor
    from countperf.errors import CountperfError
    from countperf.measuring import KernelCase, Measurement, MeasurementSet
    from countperf.measuring import TimingDocument as Timing
    from countperf.measuring.apart import measure
    from countperf.mechanistic.compiled_profile import profile_kernel
    from countperf.models.library import load_weights
    from countperf.models.predictions import Prediction
    from countperf.models.weights import WeightSet
    from countperf.tuning.space import SearchSpace


_HOMES = {
    "counting.analysis": "KernelAnalysis analyze_kernel",
    "errors": "CountperfError",
    "mechanistic.compiled_profile": "profile_kernel",
    "devices.discovery": "doctor=examine",
    "measuring": "KernelCase Measurement MeasurementSet Timing=TimingDocument",
    "models.library": "load_weights",
    "models.weights": "WeightSet",
    "models.predictions": "Prediction",
    "counting.count_properties": "count_kernel",
    "counting.vector": "Count PropertyVector",
    "measuring.apart": "measure",
    "tuning.space": "SearchSpace",
    "api.applications": "predict_application",
    "api.device_choice": "predict_on",
    "api.fits": "available_weights",
    "api.evaluation": "evaluate fit",
    "api.kernels": "load_kernel",
    "api.calibration": "calibrate",
    "api.catalogue": "measure_catalogue",
    "api.mechanistic_models": "occupancy predict_all step_formulas sweep",
    "api.prediction": "explain predict with_compiled_code",
    "api.recording": "recording",
    "api.timing": "time_kernel",
    "api.searching": "rank tune",
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
__all__ += ["analyze_kernel", "available_weights", "calibrate", "count_kernel", "doctor"]
__all__ += ["evaluate", "explain", "fit", "load_kernel", "load_weights", "measure"]
__all__ += ["measure_catalogue", "occupancy", "predict"]
__all__ += ["predict_all", "predict_application", "predict_on", "profile_kernel", "rank"]
__all__ += ["recording", "step_formulas", "sweep", "time_kernel", "tune", "with_compiled_code"]


class _Above:
    """Reports, which are imported when a method first needs them."""

    def printed(self, result: Any) -> Any:
        from countperf.report.printing import printed

        return printed(result)

    def figure(self, result: Any, path: Any, **options: Any) -> Any:
        from countperf.report.figures import figure_of

        return figure_of(result, path, **options)

    def pair(self, first: Any, second: Any) -> Any:
        from countperf.report.predictions import PredictionPair

        return PredictionPair(first=first, second=second)


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
