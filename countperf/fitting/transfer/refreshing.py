"""Scaling of groups of weights to a machine whose clock, memory or load has changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from countperf.fitting.design import Observation
from countperf.fitting.solve import Vector
from countperf.fitting.transfer.calibrated import TransferFit, fit_definition
from countperf.fitting.transfer.penalised import LogPrior
from countperf.fitting.transfer.prior import PARAMETER
from countperf.models.function import Column, model_inputs
from countperf.models.weights import WeightSet

_CHANGE = 0.5
"""Standard deviation of the logarithm of a group's change, before anything is run."""

_OF_ITS_OWN = 0.03
"""That of what a single weight changes beside its group."""

ERROR = 0.1
"""Size of what groups of weights do not explain of a kernel's change, relative."""

_WITHOUT_OLD_TIME = 0.4
"""Noise of a case whose old time is not known: what the model is off by counts as a change."""

_LEAST = 1e-18

_BY_NAME = {
    "address translation": ("out_of_reach",),
    "memory": ("beyond_llc",),
    "last-level cache": ("beyond_l2", "beyond_streams", "_lines_", ".l2_reuse"),
}
"""Groups of weights by what names of their features have."""


def groups_of(columns: Sequence[Column]) -> dict[str, Vector]:
    """Return the groups of weights that change together: launches, work on chip, memory by level.

    Parameters
    ----------
    columns : sequence of (str, str)
        Term and feature of each weight.

    Returns
    -------
    dict from str to ndarray, shape (n_columns,)
        One for members, zero for others.
    """
    names = [_group(column) for column in columns]
    return {
        name: np.array([float(each == name) for each in names])
        for name in dict.fromkeys(names)
        if name
    }


def _group(column: Column) -> str:
    term, feature = column
    if term == PARAMETER:
        return ""
    if term == "launch":
        return "launches"
    for name, marks in _BY_NAME.items():
        if any(mark in feature for mark in marks):
            return name
    return "work on chip"


def change_prior(columns: Sequence[Column], mean: Vector | None = None) -> LogPrior:
    """Return what may have changed since weights were fitted: groups, and each weight a little."""
    found = np.zeros(len(columns)) if mean is None else mean
    covariance = np.diag(np.full(found.size, _OF_ITS_OWN**2))
    for members in groups_of(columns).values():
        covariance += _CHANGE**2 * np.outer(members, members)
    return LogPrior(mean=found, covariance=covariance)


def relative_to_old(
    weights: WeightSet, observations: Sequence[Observation], old_s: Mapping[str, float]
) -> list[Observation]:
    """Replace times by those that the old weights give, times the change since the old times.

    What the model is off by cancels then, and only changes of the machine are left.

    Parameters
    ----------
    weights : WeightSet
        The old weights.
    observations : sequence of Observation
        Cases, timed now.
    old_s : Mapping from str to float
        Old times by case, s; cases without one are kept, and count for less.
    """
    found: list[Observation] = []
    for case in observations:
        if case.name not in old_s:
            noise = float(np.hypot(case.noise, _WITHOUT_OLD_TIME))
            found.append(replace(case, noise=noise))
            continue
        predicted = weights.charge(model_inputs(weights.definition, case.counts)).time_s
        time_s = float(np.asarray(predicted)) * case.time_s / old_s[case.name]
        found.append(replace(case, time_s=time_s))
    return found


def refreshed(weights: WeightSet, observations: Sequence[Observation]) -> TransferFit:
    """Scale groups of weights to new times of some kernels.

    Parameters
    ----------
    weights : WeightSet
        The old weights, all positive or zero.
    observations : sequence of Observation
        The kernels' cases, as `relative_to_old` returns them.

    Returns
    -------
    TransferFit
        The prior's mean is the logarithms of the old weights.
    """
    columns = (
        *weights.function.columns,
        *((PARAMETER, parameter.name) for parameter in weights.parameters),
    )
    old = dict(zip(columns, np.log(np.maximum(weights.unknowns, _LEAST)).tolist(), strict=True))

    def prior_of(wanted: Sequence[Column], guess: object) -> LogPrior:
        del guess
        return change_prior(wanted, np.array([old[column] for column in wanted]))

    return fit_definition(
        observations, weights.definition, columns, prior_of, error=ERROR, only_columns=True
    )


def scaled(weights: WeightSet, fit: TransferFit) -> WeightSet:
    """Return weights with the values of a refreshed fit; their uncertainty is scaled alike."""
    values = np.exp(fit.fitted.logs)
    factors = values / np.maximum(weights.unknowns, _LEAST)
    columns = len(weights.weights)
    covariance = weights.covariance_s2
    if covariance is not None:
        grown = np.array(covariance) * np.outer(factors, factors)
        covariance = tuple(tuple(row) for row in grown.tolist())
    return weights.model_copy(
        update={
            "weights": tuple(
                weight.model_copy(
                    update={
                        "value_s": float(weight.value_s * factor),
                        "standard_error_s": None
                        if weight.standard_error_s is None
                        else float(weight.standard_error_s * factor),
                    }
                )
                for weight, factor in zip(weights.weights, factors[:columns], strict=True)
            ),
            "parameters": tuple(
                parameter.model_copy(update={"value": float(value)})
                for parameter, value in zip(weights.parameters, values[columns:], strict=True)
            ),
            "covariance_s2": covariance,
        }
    )


def changes(fit: TransferFit, columns: Sequence[Column]) -> Mapping[str, float]:
    """Return the factor by which each group of weights changed."""
    moved = fit.fitted.logs - fit.prior.mean
    return {
        name: float(np.exp(moved @ members / members.sum()))
        for name, members in groups_of(columns).items()
    }
