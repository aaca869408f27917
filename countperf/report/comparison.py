"""A comparison of models as text and as a JSON-able object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from countperf.report.rows import table_of

if TYPE_CHECKING:
    from countperf.fitting.comparison import Comparison, ModelResult


def comparison_text(comparison: Comparison) -> str:
    """Write one row per model and level: errors overall and by test kernel, then what is lacking.

    Errors are geometric means of relative errors over the sizes of each test kernel; MAPE is the
    arithmetic mean; MAPE_shape that of the shape of throughput over occupancy, a mean over the
    families of measurement kernels that were measured at three or more occupancies. An
    empty cell: the model does not predict the kernel.
    """
    rows = [
        {
            "model": result.model,
            "constants": result.level,
            "overall:error": overall.value,
            "MAPE:error": None if (mape := result.mape()) is None else mape / 100,
            "in_sample": result.in_sample,
            "shape_error": sum(shapes) / len(shapes) / 100
            if (shapes := list(result.shape_errors.values()))
            else None,
            **{f"{_short(k)}:error": mean.value for k, mean in result.by_kernel().items()},
        }
        for result in comparison.models
        if (overall := result.overall()) is not None
    ]
    titles = {"in_sample": "in sample", "shape_error": "MAPE_shape"}
    table = table_of(
        rows, {name: titles.get(name, name.removesuffix(":error")) for row in rows for name in row}
    )
    parts = [
        f"{comparison.device}: {comparison.test_cases} cases of test kernels, calibrated on "
        f"{comparison.measurement_cases} cases of measurement kernels",
        *(table.lines() if rows else []),
    ]
    parts += _gaps(comparison)
    return "\n".join(parts)


def _gaps(comparison: Comparison) -> list[str]:
    """Say once for each reason which models and kernels have no prediction."""
    found: dict[str, dict[str, None]] = {}
    for m in comparison.models:
        if m.lacking:
            found.setdefault(m.lacking, {})[f"{m.model} ({m.level})"] = None
    lines = [f"no predictions of {', '.join(who)}: {reason}" for reason, who in found.items()]
    found = {}
    for m in comparison.models:
        for kernel, reason in m.refusals.items():
            found.setdefault(f"of {_short(kernel)}: {reason}", {})[f"{m.model} ({m.level})"] = None
    lines += [f"{', '.join(who)}: no prediction {what}" for what, who in found.items()]
    found = {}
    for kernel, reason in comparison.unprofiled.items():
        found.setdefault(reason, {})[kernel] = None
    lines += [f"no profile of {', '.join(which)}: {reason}" for reason, which in found.items()]
    return lines


def _short(kernel: str) -> str:
    return kernel.split("/")[0]


def comparison_object(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Return ``{"comparisons": [...]}``: each device's document, with the means of each model."""
    return {
        "comparisons": [
            {
                **comparison.to_object(),
                "geometric_mean": [
                    {
                        "model": result.model,
                        "level": result.level,
                        "overall": _value(result),
                        "mape_percent": result.mape(),
                        "by_kernel": {k: e.value for k, e in result.by_kernel().items()},
                    }
                    for result in comparison.models
                ],
            }
            for comparison in comparisons
        ]
    }


def _value(result: ModelResult) -> float | None:
    overall = result.overall()
    return None if overall is None else overall.value
