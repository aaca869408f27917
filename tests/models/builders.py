"""Devices and weight sets for tests."""

from __future__ import annotations

from typing import Any

from countperf.counting.taxonomy import COUNTING_RULES_VERSION, property_unit
from countperf.devices.identity import DeviceIdentity
from countperf.models import function
from countperf.models.definition import ModelDefinition
from countperf.models.function import Calibration, FitQuality, MeasurementSource, Weight
from countperf.models.shipped import LINEAR
from countperf.models.weights import WeightSet


def make_device(**changes: Any) -> DeviceIdentity:
    fields: dict[str, Any] = {
        **{"slug": "pocl-testchip", "platform": "Portable Computing Language"},
        **{"vendor": "AuthenticAMD", "name": "pthread-testchip", "driver_version": "3.1"},
        **{"device_type": "cpu", "compute_units": 2, "processor": "Testchip"},
    }
    return DeviceIdentity(**(fields | changes))


def make_weight(feature: str, value_s: float, **changes: Any) -> Weight:
    fields: dict[str, Any] = {
        **{"feature": feature, "value_s": value_s, "standard_error_s": abs(value_s) / 1e4},
        **{"unit": property_unit(feature), "largest": 1e6},
    }
    return Weight(**(fields | changes))


def make_weights(values: dict[str, float], **changes: Any) -> WeightSet:
    """Weights of so many cases that these are exact, and a factor that scatters by a tenth."""
    weights = tuple(make_weight(name, value) for name, value in values.items())
    fields: dict[str, Any] = {
        "model": LINEAR.name,
        "device": make_device(),
        "counting_rules": COUNTING_RULES_VERSION,
        "definition": LINEAR,
        "weights": weights,
        "quality": FitQuality(
            in_sample_error=0.05, held_out_error=0.1, in_sample_scatter=0.1, held_out_scatter=None
        ),
        "source": MeasurementSource(
            cases=10_000, unstable_cases=0, families=("one",), protocol="quick", recorded_at=""
        ),
    }
    return WeightSet(**(fields | changes))


def calibrated(between: float, within: float) -> FitQuality:
    """Quality of a fit whose intervals reach to factors of exp(0.5) and exp(0.7)."""
    kernels = {"between_kernels": between, "within_kernels": within}
    calibration = Calibration(
        log_errors_90=0.5, log_errors_95=0.7, families=9, cases=200, **kernels
    )
    errors: dict[str, Any] = {"in_sample_error": 0.1, "held_out_error": 0.3}
    scatter: dict[str, Any] = {"in_sample_scatter": 0.1, "held_out_scatter": 0.4}
    return FitQuality(**errors, **scatter, calibration=calibration)


TWO_TO_ONE = function.IndistinguishableGroup(
    features=("gmem.load.32.1of2", "gmem.store.32.1of2"),
    relations=({"gmem.load.32.1of2": 1.0, "gmem.store.32.1of2": -2.0},),
)


def sum_model(terms: dict[str, Any], **fields: Any) -> ModelDefinition:
    """A model that is a sum of terms, of which a document says what is given."""
    content = {"format": "countperf-model", "version": 3, "name": "sum", "terms": terms}
    return ModelDefinition.from_object(content | fields)
