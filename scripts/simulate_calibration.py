"""Calibrations of each CPU with committed measurements, from what the other processors say.

Each processor is left out under both runtimes: the prior, the choice of kernels and the intervals
follow from the others. Then the chosen kernels' committed times are taken until a budget is used up
(`calibration_data.cost_s`), and the fit predicts the kernels that judge.

    python scripts/simulate_calibration.py --cache runs/calibration --output table.md

With ``--documents``, it also writes what calibrations ship with: ``known-devices.json`` (weights of
known devices, and these errors) and ``calibration-kernels.json`` (the kernels to measure, in their
order) in ``countperf/models/fitting``.
"""

from __future__ import annotations

import argparse
import json
import zlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from calibration_data import (
    DEVICES,
    KINDS,
    Data,
    choose,
    cost_s,
    known_model,
    processor_of,
    slugs_of,
    two_sizes,
)
from countperf.counting.taxonomy import COUNTING_RULES_VERSION
from countperf.devices.identity import memory_hierarchy_of
from countperf.models.fitting.design import Design
from countperf.models.fitting.fit_model import FitResult
from countperf.models.fitting.leaving_out import conformal_quantile
from countperf.models.fitting.prior import (
    FOLDER,
    ChosenKernel,
    ExpectedErrors,
    KernelChoice,
    KnownDevices,
    KnownModel,
    ModelKind,
    fit_with_prior,
)
from countperf.models.function import NORMAL_QUANTILES
from countperf.models.metrics import mean_error
from countperf.models.shipped import COMPILED

JUDGES = ("test", "application", "variant")
MINUTES = (1.0, 2.5, 5.0)
_MOST_S, _SHIPPED_S = 330.0, 660.0
LEAST_ERROR = 1e-3


def kernels_within(
    data: Data, slug: str, chosen: Sequence[ChosenKernel], budget_s: float, *, reads_code: bool
) -> list[int]:
    """Return the cases of a device that a budget suffices for, by place."""
    sizes = two_sizes(data, slug)
    observations = data.recorded(slug).observations
    spent, places = 0.0, []
    for kernel in chosen:
        if kernel.name not in sizes:
            continue
        own = sizes[kernel.name]
        spent += cost_s([observations[place].time_s for place in own], reads_code=reads_code)
        if spent > budget_s:
            break
        places += own
    return places


class Simulation:
    """Calibrations of one device."""

    def __init__(self, data: Data, slug: str, known: KnownModel) -> None:
        self.data, self.slug, self.known = data, slug, known
        self.recorded = data.recorded(slug)
        self.memory = memory_hierarchy_of(self.recorded.device)

    def design_of(self, places: Sequence[int]) -> Design:
        """Return the design of some cases."""
        known, design = self.data.design(self.slug, self.known.kind)
        row_of = {place: row for row, place in enumerate(known)}
        return design.of_cases(np.array([row_of[place] for place in places]))

    def fit(self, places: Sequence[int]) -> FitResult:
        """Fit the device to some of its cases."""
        cases = [self.recorded.observations[place] for place in places]
        header = self.recorded.header
        return fit_with_prior(
            cases, self.known, header, memory=self.memory, caches=self.memory.counted
        )

    def predicted(self, fit: FitResult, used: Sequence[int]) -> list[dict[str, Any]]:
        """Predict all other cases: logarithms of ratios, and standard errors by the weights."""
        lines = self.recorded.lines
        seen = {lines[place]["kernel"] for place in used}
        allowed, _ = self.data.design(self.slug, self.known.kind)
        places = [
            place
            for place in allowed
            if lines[place]["kernel"] not in seen
            and (lines[place]["purpose"] in JUDGES or _is_sampled(lines[place]["kernel"]))
        ]
        design = self.design_of(places)
        columns = fit.estimate.function.columns
        extra = [column not in columns for column in design.function.columns]
        lacking = np.any(design.counts[:, np.array(extra)] != 0, axis=1)
        own = design.with_columns(columns)
        solution = fit.estimate.solution
        assert solution.covariance is not None
        times = own.scaled @ solution.coefficients
        slopes = own.scaled / times[:, np.newaxis]
        spread = np.sqrt(np.einsum("ij,jk,ik->i", slopes, solution.covariance, slopes))
        return [
            {
                "purpose": lines[place]["purpose"],
                "family": lines[place]["family"],
                "log": float(np.log(times[i] / own.times_s[i])),
                "spread": float(spread[i]),
            }
            for i, place in enumerate(places)
            if not lacking[i]
        ]


def _is_sampled(kernel: str) -> bool:
    """Tell whether a measurement kernel is among the quarter that is predicted."""
    return zlib.crc32(kernel.encode()) % 4 == 0


def geometric(rows: Sequence[Mapping[str, Any]], purpose: str) -> float:
    """Return the geometric mean of the relative errors of cases for a purpose."""
    errors = [abs(np.expm1(row["log"])) for row in rows if row["purpose"] == purpose]
    return mean_error(errors, floor=LEAST_ERROR).value


def family_error(rows: Sequence[Mapping[str, Any]]) -> float:
    """Return that of measurement kernels that were not measured; each family counts the same."""
    by_family: dict[str, list[float]] = {}
    for row in rows:
        if row["purpose"] == "measurement":
            error = max(abs(np.expm1(row["log"])), LEAST_ERROR)
            by_family.setdefault(row["family"], []).append(np.log(error))
    return float(np.exp(np.mean([np.mean(logs) for logs in by_family.values()])))


def is_inside(row: Mapping[str, Any], quantile: float, level: float) -> bool:
    """Tell whether an interval, made as `countperf.models.function.interval` does, holds a time."""
    ratio = np.exp(-row["log"])  # measured over predicted
    weights = NORMAL_QUANTILES[level] * row["spread"]
    up = np.hypot(np.expm1(quantile), weights)
    down = np.hypot(-np.expm1(-quantile), weights)
    return 1.0 - down <= ratio <= 1.0 + up


def quantile_of(rows: Sequence[Mapping[str, Any]], level: float) -> float:
    """Return what intervals need beside the weights' errors to hold a share of the cases."""
    own = [row for row in rows if row["purpose"] == "measurement"]
    families = {row["family"] for row in own}
    sizes = Counter(row["family"] for row in own)
    needed = np.array([_needed(row, level) for row in own])
    shares = np.array([1.0 / (len(families) * sizes[row["family"]]) for row in own])
    return conformal_quantile(needed, shares, level, units=len(families))


def _needed(row: Mapping[str, Any], level: float) -> float:
    """Return the smallest quantile whose interval holds a time: `is_inside` solved for it."""
    away = float(np.expm1(-row["log"]))  # measured over predicted, less one
    rest = np.sqrt(max(away**2 - (NORMAL_QUANTILES[level] * row["spread"]) ** 2, 0.0))
    return float(np.log1p(rest) if away > 0 else -np.log1p(-rest))


def simulate(data: Data) -> list[dict[str, Any]]:
    """Calibrate every device by every budget."""
    found: list[dict[str, Any]] = []
    for processor in sorted({processor_of(slug) for slug in DEVICES}):
        models, chosen = _without(data, processor, _MOST_S)
        for kind, model in models.items():
            for slug in slugs_of(kind, data):
                if processor_of(slug) == processor:
                    simulation = Simulation(data, slug, model)
                    found += [_judge_calibration(simulation, chosen, each) for each in MINUTES]
    return found


def _without(
    data: Data, processor: str, budget_s: float
) -> tuple[dict[ModelKind, KnownModel], Sequence[ChosenKernel]]:
    """Return what is known without a processor, and the choice of kernels."""

    def known(kind: ModelKind) -> KnownModel:
        slugs = [slug for slug in slugs_of(kind, data) if processor_of(slug) != processor]
        return known_model(data, kind, slugs)

    models: dict[ModelKind, KnownModel] = {
        kind: data.kept(f"known.{kind}.without.{processor}", partial(known, kind)) for kind in KINDS
    }
    make = partial(choose, data, models, budget_s=budget_s)
    return models, data.kept(f"choice.without.{processor}", make)


def _judge_calibration(
    simulation: Simulation, chosen: Sequence[ChosenKernel], minutes: float
) -> dict[str, Any]:
    kind, slug = simulation.known.kind, simulation.slug
    reads_code = kind == COMPILED
    places = kernels_within(simulation.data, slug, chosen, 60.0 * minutes, reads_code=reads_code)
    allowed = set(simulation.data.design(slug, kind)[0])
    places = [place for place in places if place in allowed]
    fit = simulation.fit(places)
    rows = simulation.predicted(fit, places)
    quality = fit.weights.quality
    assert quality is not None
    return {
        "device": slug,
        "kind": kind,
        "minutes": minutes,
        "kernels": len({simulation.recorded.lines[place]["kernel"] for place in places}),
        "cases": len(places),
        **{purpose: geometric(rows, purpose) for purpose in JUDGES},
        "families": family_error(rows),
        "held_out": quality.held_out_error or 0.0,
        "rows": rows,
    }


def expected_errors(
    found: Sequence[Mapping[str, Any]], kind: str, *, without: str = ""
) -> tuple[ExpectedErrors, ...]:
    """Return the errors of devices by the number of kernels, one processor left out if asked."""
    table: list[ExpectedErrors] = []
    for minutes in sorted({each["minutes"] for each in found}):
        some = [
            each
            for each in found
            if each["kind"] == kind
            and each["minutes"] == minutes
            and processor_of(each["device"]) != without
        ]
        rows = [
            {**row, "family": f"{each['device']} {row['family']}"}
            for each in some
            for row in each["rows"]
        ]
        table.append(
            ExpectedErrors(
                kernels=round(float(np.mean([each["kernels"] for each in some]))),
                log_error_90=round(quantile_of(rows, 0.9), 4),
                log_error_95=round(quantile_of(rows, 0.95), 4),
                typical_error=round(_mean([each["families"] for each in some]), 4),
                typical_held_out_error=round(_mean([each["held_out"] for each in some]), 4),
            )
        )
    return _not_growing(table)


def _not_growing(table: Sequence[ExpectedErrors]) -> tuple[ExpectedErrors, ...]:
    """Return errors of which none is below one after more kernels: that would be chance."""
    found: list[ExpectedErrors] = []
    for each in reversed(table):
        later = found[-1] if found else each
        changes = {
            name: max(getattr(each, name), getattr(later, name))
            for name in ("log_error_90", "log_error_95", "typical_error")
        }
        found.append(each.model_copy(update=changes))
    return tuple(reversed(found))


def _mean(errors: Sequence[float]) -> float:
    return mean_error(errors).value


def table_text(found: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of errors and intervals as Markdown."""
    lines = [
        "| model, minutes | kernels | test kernels | applications | variants"
        " | 90 % intervals hold | half-width |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for kind in KINDS:
        for number, minutes in enumerate(sorted({each["minutes"] for each in found})):
            some = [e for e in found if e["kind"] == kind and e["minutes"] == minutes]
            inside, widths = _coverage(found, some, kind, number)
            means = " | ".join(f"{100 * _mean([e[p] for e in some]):.1f} %" for p in JUDGES)
            name = "reading code" if kind == COMPILED else "no compiler"
            lines.append(
                f"| {name}, {minutes:g} | {np.mean([e['kernels'] for e in some]):.0f} | {means}"
                f" | {100 * inside:.0f} % | ×{widths:.2f} |"
            )
    return "\n".join(lines) + "\n"


def _coverage(
    found: Sequence[Mapping[str, Any]], some: Sequence[Mapping[str, Any]], kind: str, number: int
) -> tuple[float, float]:
    """Return how many judged cases intervals of the other processors hold, and their half-width."""
    inside: list[bool] = []
    widths: list[float] = []
    for each in some:
        others = expected_errors(found, kind, without=processor_of(each["device"]))[number]
        for row in each["rows"]:
            if row["purpose"] in JUDGES:
                inside.append(is_inside(row, others.log_error_90, 0.9))
                up = np.hypot(np.expm1(others.log_error_90), NORMAL_QUANTILES[0.9] * row["spread"])
                widths.append(float(np.log1p(up)))
    return float(np.mean(inside)), float(np.exp(np.median(widths)))


def write_documents(data: Data, found: Sequence[Mapping[str, Any]]) -> None:
    """Write what calibrations ship with."""
    models, chosen = _without(data, "", _SHIPPED_S)
    measured = {kernel.name for kernel in chosen}
    known = KnownDevices(
        counting_rules=COUNTING_RULES_VERSION,
        own_caches=True,
        models=tuple(
            _of_kernels(model, measured).model_copy(update={"errors": expected_errors(found, kind)})
            for kind, model in models.items()
        ),
    )
    choice = KernelChoice(kernels=tuple(chosen))
    for name, document in (("calibration-kernels", choice), ("known-devices", known)):
        (FOLDER / f"{name}.json").write_text(json.dumps(document.to_object()) + "\n")


def _of_kernels(model: KnownModel, wanted: Collection[str]) -> KnownModel:
    """Return a known model with the residuals of some kernels only."""
    places = [place for place, name in enumerate(model.kernels) if name in wanted]
    devices = tuple(
        each.model_copy(
            update={"residuals": tuple(each.residuals[i] for i in places if each.residuals)}
        )
        for each in model.devices
    )
    kernels = tuple(model.kernels[place] for place in places)
    return model.model_copy(update={"devices": devices, "kernels": kernels})


def main() -> None:
    """Run the simulation, and write its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, required=True, help="folder for designs")
    parser.add_argument("--output", type=Path, required=True, help="where the table goes (.md)")
    parser.add_argument("--documents", action="store_true", help="write those that ship, too")
    options = parser.parse_args()
    data = Data(options.cache)
    found = data.kept("results", partial(simulate, data))
    options.output.write_text(table_text(found))
    if options.documents:
        write_documents(data, found)


if __name__ == "__main__":
    main()
