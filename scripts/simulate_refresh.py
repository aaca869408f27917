"""Compare a refresh after memory has become slower by a factor with a full refit.

Times of the committed measurements are scaled: the part of each that the device's own full fit
gives to memory (`countperf.fitting.transfer.refreshing.groups_of`) takes that factor as long. Then
the weights are refreshed from the kernels that half a minute suffices for, and fitted anew to all
measurement kernels; both predict the kernels that judge.

    python scripts/simulate_refresh.py --cache /tmp/calibration
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from calibration_data import ERROR, KINDS, Data, slugs_of, training, two_sizes
from countperf.fitting.design import Design
from countperf.fitting.transfer.calibrated import rows_of
from countperf.fitting.transfer.choice import shipped_choice
from countperf.fitting.transfer.common_unknowns import guesses, shares_of
from countperf.fitting.transfer.penalised import LogPrior, Times, fit_with_prior
from countperf.fitting.transfer.prior import ModelKind, unknowns_of
from countperf.fitting.transfer.refreshing import (
    ERROR as REFRESH_ERROR,
)
from countperf.fitting.transfer.refreshing import change_prior, groups_of
from countperf.workflow.refreshing import MEASURE_S
from simulate_calibration import JUDGES, kernels_within

_FACTOR = 1.6
_WIDE = 20.0


def full_fit(design: Design, kind: ModelKind) -> np.ndarray:
    """Fit a device by itself: the logarithms of its weights."""
    guess = guesses(design)
    mean = np.array([guess(column) or -30.0 for column in unknowns_of(design.function)])
    prior = LogPrior(mean=mean, covariance=np.diag(np.full(mean.size, _WIDE)))
    return fit_with_prior(design, prior, error=ERROR[kind]).logs


def error_of(design: Design, logs: np.ndarray) -> float:
    """Return the geometric mean of relative errors."""
    times = Times(design.function, design)(logs)[0]
    return float(np.exp(np.mean(np.log(np.maximum(np.abs(times / design.times_s - 1), 1e-3)))))


def refreshed_and_refitted(data: Data, slug: str, kind: ModelKind) -> tuple[float, float, float]:
    """Return errors of the old weights, of refreshed and of refitted ones, and the kernels run."""
    places, design = data.design(slug, kind)
    own = training(data, slug, places)
    lines = data.recorded(slug).lines
    judged = np.array([lines[place]["purpose"] in JUDGES for place in places])
    old = full_fit(rows_of(design, own), kind)
    columns = unknowns_of(design.function)
    memory = groups_of(columns)["memory"]
    slower = 1.0 + (_FACTOR - 1.0) * (shares_of(design, old.tolist()) @ memory)
    now = replace(design, times_s=design.times_s * slower)
    kernels = shipped_choice().serving(
        shipped_choice().rows(shipped_choice().kernels),
        change_prior(shipped_choice().columns),
        {each.name: 1.0 for each in shipped_choice().kernels},
        budget_s=24.0,
    )
    known = [each for each in kernels if each.name in two_sizes(data, slug)]
    run = set(kernels_within(data, slug, known, MEASURE_S, reads_code=False))
    chosen = np.array([place in run for place in places])
    predicted = Times(design.function, design)(old)[0]
    relative = replace(design, times_s=predicted * now.times_s / design.times_s)
    refreshed = fit_with_prior(
        rows_of(relative, chosen), change_prior(columns, old), error=REFRESH_ERROR
    ).logs
    refitted = full_fit(rows_of(now, own), kind)
    test = rows_of(now, judged)
    return error_of(test, old), error_of(test, refreshed), error_of(test, refitted)


def main() -> None:
    """Print a row for each device and model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, required=True, help="folder for designs")
    options = parser.parse_args()
    data = Data(options.cache)
    print("| device | model | old weights | refreshed | refitted | ratio |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for kind in KINDS:
        ratios: list[float] = []
        for slug in slugs_of(kind, data):
            old, refreshed, refitted = refreshed_and_refitted(data, slug, kind)
            ratios.append(refreshed / refitted)
            errors = f"{old:.1%} | {refreshed:.1%} | {refitted:.1%}"
            print(f"| {slug} | {kind} | {errors} | {ratios[-1]:.2f} |", flush=True)
        print(f"| mean | {kind} | | | | {np.exp(np.mean(np.log(ratios))):.2f} |", flush=True)


if __name__ == "__main__":
    main()
