"""From measurements to weights."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from countperf.errors import RankDeficientFitError
from countperf.fitting import verdicts
from countperf.fitting.design import (
    Design,
    Diagnosis,
    Observation,
    build_design,
    check_counting_rules,
    common_view,
    diagnose,
)
from countperf.fitting.result import FitResult
from countperf.fitting.solve import Solution, least_squares
from countperf.fitting.validation import HeldOutCase, leave_one_family_out, log_scatter
from countperf.measurements import Measurement, MeasurementSet
from countperf.metrics import mean_error
from countperf.models.linear import FittedModel, fitted_model
from countperf.models.records import FitQuality, MeasurementSource, Weight
from countperf.models.weights import WeightSet
from countperf.properties.taxonomy import COUNTING_RULES_VERSION, View, describe
from countperf.properties.vector import PropertyVector


def fit(
    measurements: MeasurementSet,
    *,
    model: str = "linear",
    nonnegative: bool = False,
    leave_out_unstable: bool = False,
    require_full_rank: bool = False,
    suppliers: Mapping[str, Sequence[str]] | None = None,
) -> FitResult:
    r"""Fit the weights of a model to measurements of one device.

    Parameters
    ----------
    measurements : MeasurementSet
        Only those whose purpose is ``measurement`` are used, never test kernels.
    model : str, optional
        Name of the model.
    nonnegative : bool, optional
        Keep weights at least zero; the paper's are free.
    leave_out_unstable : bool, optional
        Leave out cases whose samples spread too far.
    require_full_rank : bool, optional
        Raise if the measurements cannot tell some weights apart.
    suppliers : Mapping from str to sequence of str, optional
        From a feature to the measurement kernels that exercise it, stored with the weights.

    Returns
    -------
    FitResult
        Weights, verdicts, and what they follow from.

    Raises
    ------
    FitError
        There is nothing to fit; kernels were counted in different views; or, with
        `require_full_rank`, `RankDeficientFitError`.
    ParameterError
        No such model.

    Notes
    -----
    :math:`\alpha = \arg\min \sum_j (1 - \sum_i \alpha_i p_i(n_j) / T_j)^2`, with columns scaled to
    norm one. Where weights are not determined, those of smallest norm in scaled columns are taken.
    Covariance: :math:`s^2 (X^T X)^+` with :math:`s^2` the residual sum of squares over the degrees
    of freedom. It takes the cases as independent, which sizes of one kernel are not quite.
    """
    wanted = [m for m in measurements if m.purpose == "measurement"]
    kept = [m for m in wanted if m.stable or not leave_out_unstable]
    definition = fitted_model(model)
    view = common_view(kept)
    observations = observations_of(kept)
    design = build_design(observations, definition.features)
    diagnosis = diagnose(design)
    solution = least_squares(design.relative, np.ones(len(observations)), nonnegative=nonnegative)
    held_out = leave_one_family_out(observations, definition.features, nonnegative=nonnegative)
    weights = _weight_set(
        definition,
        measurements,
        view,
        observations,
        design,
        diagnosis,
        solution,
        held_out,
        suppliers,
    )
    result = FitResult(
        weights=weights,
        verdicts=(
            verdicts.rank_verdict(diagnosis, len(design.names)),
            verdicts.condition_verdict(diagnosis),
            verdicts.exercise_verdict(design),
            verdicts.error_verdict(observations, solution),
            verdicts.held_out_verdict(held_out),
            verdicts.sign_verdict(weights.weights),
            verdicts.bound_verdict(design.names, solution),
            verdicts.significance_verdict(weights.weights),
            verdicts.stability_verdict(observations, len(wanted) - len(kept)),
            verdicts.counting_verdict(
                tuple(dict.fromkeys(m.kernel for m in kept if m.properties is None))
            ),
        ),
        observations=observations,
        design=design,
        diagnosis=diagnosis,
        solution=solution,
        held_out=held_out,
    )
    if require_full_rank and diagnosis.groups:
        verdict = result.verdicts[0]
        raise RankDeficientFitError(f"{verdict.message}: {verdict.remedy}", result=result)
    return result


def observations_of(measurements: Iterable[Measurement]) -> tuple[Observation, ...]:
    """Evaluate the property vectors of measured cases at their parameters.

    Cases whose kernel could not be counted are left out.

    Raises
    ------
    DocumentError
        A stored property vector is damaged.
    FitError
        It was counted under other rules.
    """
    vectors: dict[str, PropertyVector] = {}
    observations: list[Observation] = []
    for measurement in measurements:
        if measurement.properties is None:
            continue
        key = json.dumps(measurement.properties)
        if key not in vectors:
            check_counting_rules(measurement)
            vectors[key] = PropertyVector.from_document(measurement.properties)
        observations.append(
            Observation(
                name=measurement.case,
                kernel=measurement.kernel,
                family=measurement.family,
                counts=vectors[key].evaluate(measurement.parameters),
                time_s=measurement.time_s,
                stable=measurement.stable,
            )
        )
    return tuple(observations)


def _weight_set(
    model: FittedModel,
    measurements: MeasurementSet,
    view: View,
    observations: Sequence[Observation],
    design: Design,
    diagnosis: Diagnosis,
    solution: Solution,
    held_out: Sequence[HeldOutCase],
    suppliers: Mapping[str, Sequence[str]] | None,
) -> WeightSet:
    header = measurements.header
    return WeightSet(
        model=model.name,
        expression=model.expression,
        device=header.device,
        counting_rules=COUNTING_RULES_VERSION,
        view=view,
        features=model.features,
        weights=_weights(design, diagnosis, solution),
        covariance_s2=None
        if solution.covariance is None
        else tuple(tuple(row) for row in solution.covariance.tolist()),
        indistinguishable=diagnosis.groups,
        quality=_quality(design, solution, held_out),
        source=MeasurementSource(
            cases=len(observations),
            unstable_cases=sum(not case.stable for case in observations),
            families=tuple(dict.fromkeys(case.family for case in observations)),
            protocol=header.protocol.name,
            recorded_at=header.environment.recorded_at,
        ),
        suppliers={
            name: tuple(kernels)
            for name, kernels in (suppliers or {}).items()
            if name not in design.names
        },
        written_by=_version(),
    )


def _weights(design: Design, diagnosis: Diagnosis, solution: Solution) -> tuple[Weight, ...]:
    grouped = {name for group in diagnosis.groups for name in group.features}
    weights: list[Weight] = []
    for i, name in enumerate(design.names):
        variance = None if solution.covariance is None else float(solution.covariance[i, i])
        uncertain = variance is None or name in grouped or solution.at_bound[i]
        exercised = design.counts[:, i][design.counts[:, i] != 0]
        weights.append(
            Weight(
                feature=name,
                value_s=float(solution.coefficients[i]),
                standard_error_s=None if uncertain or variance is None else variance**0.5,
                unit=describe(name).unit,
                smallest=float(exercised.min()),
                largest=float(exercised.max()),
            )
        )
    return tuple(weights)


def _quality(design: Design, solution: Solution, held_out: Sequence[HeldOutCase]) -> FitQuality:
    predicted = design.counts @ solution.coefficients
    determined = [(c.predicted_s, c.measured_s) for c in held_out if c.predicted_s is not None]
    errors = [error for case in held_out if (error := case.relative_error) is not None]
    return FitQuality(
        in_sample_error=mean_error(np.abs(solution.residuals)).value,
        held_out_error=mean_error(errors).value if errors else None,
        in_sample_scatter=log_scatter(predicted.tolist(), design.times_s.tolist()),
        held_out_scatter=log_scatter([p for p, _ in determined], [m for _, m in determined]),
    )


def _version() -> str:
    try:
        return version("countperf")
    except PackageNotFoundError:
        return "unknown"
