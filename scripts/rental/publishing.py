"""The folder of a device under ``fits/``: fits, evaluations, measurements."""

from __future__ import annotations

from pathlib import Path

from countperf.api.evaluation import evaluate, evaluate_ranking, fit, read_measurements
from countperf.api.prediction import choose_weights
from countperf.measuring import MeasurementSet
from countperf.models.definition import ModelDefinition
from countperf.models.shipped import COMPILED
from countperf.models.weights import WeightSet
from countperf.store import check_writable


def publish(
    measurements: MeasurementSet | Path | str,
    folder: Path | str = "fits",
    *,
    model: str | ModelDefinition | None = None,
    weights: WeightSet | Path | str | None = None,
    compiled: WeightSet | Path | str | None = None,
) -> Path:
    """Fit and evaluate a campaign and lay all of it out as a device's folder under ``fits/``."""
    found = read_measurements(measurements)
    target = Path(folder) / found.device.slug
    check_writable(target / "weights.json")
    default = fit(found, collections=["paper"], output=target / "linear.json").weights
    chosen = None
    if weights is not None:
        chosen = choose_weights(weights, without_code="the default is published").weights
    elif model is not None:
        chosen = fit(found, model=model).weights
    if chosen is None:
        (target / "weights.json").unlink(missing_ok=True)
        (target / "linear-evaluation.json").unlink(missing_ok=True)
    else:
        evaluate(found, weights=default).write_file(target / "linear-evaluation.json")
        chosen.write_file(target / "weights.json")
        default = chosen
    reading = None if compiled is None else choose_weights(compiled).weights
    if reading is not None:
        reading.write_file(target / f"{COMPILED}.json")
    for prefix, judged in {"": default, f"{COMPILED}-": reading}.items():
        evaluation, order = (target / f"{prefix}{name}.json" for name in ("evaluation", "ranking"))
        if judged is None:
            evaluation.unlink(missing_ok=True)
            order.unlink(missing_ok=True)
            continue
        evaluate(found, weights=judged).write_file(evaluation)
        ranking = evaluate_ranking(found, weights=judged)
        if ranking.sets:
            ranking.write_file(order)
    found.device.write_file(target / "identity.json")
    found.write_file(target / "measurements.jsonl.gz")
    (target / "measurements.jsonl").unlink(missing_ok=True)
    return target
