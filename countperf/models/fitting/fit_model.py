"""Fits of a model's weights to measurements."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from countperf import __version__
from countperf.counting.counts import says_group_shape, transaction_roots
from countperf.counting.structure.memory_hierarchy import CountedCaches
from countperf.counting.taxonomy import COUNTING_RULES_VERSION, View, property_unit
from countperf.counting.vector import PropertyVector
from countperf.errors import FitError, FitNotConvergedError
from countperf.measuring import Header, Measurement, MeasurementSet
from countperf.models.correction import Correction
from countperf.models.definition import CODE, OVERLAPPED, ModelDefinition
from countperf.models.fitting import judging
from countperf.models.fitting.design import (
    Observation,
    build_design,
    check_counting_rules,
    common_caches,
    common_view,
)
from countperf.models.fitting.estimate import (
    Estimate,
    estimate_design,
    on_one_thread,
    recipe_of,
    weigh_by_noise,
)
from countperf.models.fitting.leaving_out import (
    HeldOutCase,
    corrected,
    coverage_without_own_family,
    held_out_factor,
    interval_calibration,
    learn,
    leave_families_out,
    log_scatter,
)
from countperf.models.function import DERIVED, FitQuality, MeasurementSource, Range, Weight
from countperf.models.metrics import mean_error
from countperf.models.predictions import Verdict, verdict_lines
from countperf.models.shipped import LINEAR
from countperf.models.validity import NOTABLE_SHARE, SHORTEST_LAUNCH_S
from countperf.models.weights import WeightSet
from countperf.models.weights_text import weights_table
from countperf.text import Printed, Result, format_percent, picked, short_name

LEAST_GAIN = 0.002
"""Decrease of the logarithm of the factor over left-out families that a correction has to bring."""

UNSETTLED_NOISE = 0.35
"""Noise of a case that never settled is at least that of two levels a factor of two apart: half of
that factor's logarithm."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FitResult(Result):
    """A fit."""

    weights: WeightSet  # the weights with their uncertainty, ready to predict with and to be stored
    verdicts: tuple[Verdict, ...]  # one per check
    observations: tuple[Observation, ...]  # the measured cases of the fit
    estimate: Estimate  # the fitted function over the design, and what the design can tell apart
    # each case, predicted without its family, and corrected if the weights' predictions are
    held_out: tuple[HeldOutCase, ...]

    @property
    def caveats(self) -> tuple[Verdict, ...]:
        """The verdicts that did not pass."""
        return tuple(verdict for verdict in self.verdicts if not verdict.passed)

    __repr__ = Result.__str__

    def lay_out(self) -> Printed:
        """Give a fit: how well it describes and predicts, its weights, its verdicts."""
        quality = self.weights.quality
        errors = [] if quality is None else [f"in-sample {format_percent(quality.in_sample_error)}"]
        if quality is not None and quality.held_out_error is not None:
            errors.append(f"families left out {format_percent(quality.held_out_error)}")
        expression = (
            [f"time_s = {self.weights.definition.expression}"]
            if len(self.weights.definition.terms) > 1
            else []
        )
        held_out = {case.name: case.predicted_s for case in self.held_out}
        return Printed(
            head=[
                f"error: {', '.join(errors)} (geometric means of relative errors)",
                f"{short_name(self.weights.model)} model on {self.weights.device.slug},"
                f" {len(self.observations)} cases,"
                f" rank {self.estimate.diagnosis.rank} of {len(self.weights.unknowns)}",
                *expression,
            ],
            rows=[
                {
                    **picked(case, "kernel", "family", "stable"),
                    "case": case.name,
                    "measured_s": case.time_s,
                    "predicted_s": predicted_s,
                    "relative_error": error,
                    "noise": case.noise,
                    "held_out_s": held_out.get(case.name),
                }
                for case, predicted_s, error in zip(
                    self.observations,
                    self.estimate.predicted_s.tolist(),
                    self.estimate.relative_errors.tolist(),
                    strict=True,
                )
            ],
            shown=weights_table(self.weights),
            notes=verdict_lines(self.verdicts),
            facts={
                "device": self.weights.device.slug,
                "model": self.weights.model,
                "cases": len(self.observations),
                "rank": self.estimate.diagnosis.rank,
                "verdicts": self.verdicts,
                "weights": self.weights.to_object(),
            },
        )


@on_one_thread
def fit(
    measurements: MeasurementSet,
    *,
    model: ModelDefinition = LINEAR,
    nonnegative: bool = False,
    weigh_noise: bool = True,
    correct: bool = True,
) -> FitResult:
    r"""Fit the weights of a model to measurements of one device.

    By default :math:`\alpha = \arg\min \sum_j (1 - \sum_i \alpha_i p_i(n_j) / T_j)^2`; the solver
    is that of `countperf.models.fitting.solve`. Where weights are not determined, those of smallest
    norm in scaled columns are taken. Standard errors take the cases as independent, which sizes of
    one kernel are not quite. Predictions are corrected by kernels alike where the model has an
    execution policy and families that are left out gain by it.

    Residuals are multiplied by :math:`e / \sqrt{e^2 + n_j^2}`, with the noise :math:`n_j` of a case
    (`countperf.measuring.cases`; of cases that did not settle, at least `UNSETTLED_NOISE`) and
    the model's own typical error :math:`e`, found from a first fit in which all count the same.
    """
    kept = [m for m in measurements if m.purpose == "measurement"]
    view, caches = common_view(kept), common_caches(kept)
    counted = observations_of(kept)
    if not counted:
        raise FitError("there is no measurement to fit; measure the measurement kernels first")
    _check_view(view, model)
    observations = _with_code(counted) if model.reads_code else counted
    observations = _with_what_it_names(observations, model)
    definition = _nonnegative(model) if nonnegative else model
    recipe = recipe_of(definition)
    design = build_design(observations, definition)
    if weigh_noise:
        recipe = weigh_by_noise(design, recipe)
    fitted = estimate_design(design, recipe)
    if not fitted.solution.converged:
        raise FitNotConvergedError(f"the solver stopped early: {fitted.solution.message}")
    held_out = leave_families_out(
        observations,
        fitted,
        recipe,
        with_correction=correct and definition.policy is not None,
    )
    correction = correction_of(observations, fitted, held_out)
    if correction is not None:
        held_out = corrected(held_out)
    quality = fit_quality(fitted, held_out, recipe.model_error)
    is_emitted = definition.policy is None and not definition.named_shape
    weights = weight_set(
        observations,
        fitted,
        quality,
        measurements.header,
        view="source" if view == "structure" and is_emitted else view,
        caches=caches,
        correction=correction,
    )
    known = {case.name for case in observations}
    uncounted = dict.fromkeys(m.kernel for m in kept if m.properties is None)
    lacking = [case.kernel for case in counted if case.name not in known]
    errors = fitted.relative_errors
    return FitResult(
        weights=weights,
        verdicts=(
            judging.rank_verdict(fitted.diagnosis, len(fitted.function.keys)),
            judging.exercise_verdict(fitted.design),
            judging.error_verdict(observations, errors, held_out, quality.coverage),
            judging.cases_verdict(observations, tuple(uncounted), lacking),
            *(
                [judging.memory_verdict(definition.memory, caches)]
                if definition.memory is not None
                else []
            ),
        ),
        observations=observations,
        estimate=fitted,
        held_out=held_out,
    )


def _check_view(view: View, definition: ModelDefinition) -> None:
    """Refuse kernels whose counts do not have what a model is made of."""
    if view == "structure" or (definition.policy is None and not definition.named_shape):
        return
    why = "is made of what the device issues"
    if definition.policy is None:
        why = "names the shape of work groups"
    raise FitError(
        f"the {definition.name} model {why}, and the measured kernels were counted in the {view}"
        " view: count them again in the structure view (countperf.api.evaluation.recount)"
    )


def says_overlap(measurements: Iterable[Measurement]) -> bool:
    """Return whether some code was read with cycles that overlap; 0.2.0 read none."""
    codes = [m.code for m in measurements if m.code and f"{CODE}cycles" in m.code]
    return not codes or any(OVERLAPPED in code for code in codes)


def _with_code(observations: Sequence[Observation]) -> tuple[Observation, ...]:
    """Return the cases whose compiled code is known, and was followed to a possible end."""
    with_code = tuple(case for case in observations if case.has_code)
    if not with_code:
        raise FitError(
            "no measured case says what its compiled code executes: read it first"
            " (countperf compiled --store FILE, where the device is)"
        )
    return with_code


def _with_what_it_names(
    observations: Sequence[Observation], definition: ModelDefinition
) -> tuple[Observation, ...]:
    """Return the cases of which a model's group shape and transactions are known, if it has any."""
    with_what_it_names = tuple(
        case for case in observations if not definition.named_shape or says_group_shape(case.counts)
    )
    if not (named := definition.named_transactions):
        return with_what_it_names
    known = tuple(
        case for case in with_what_it_names if set(named) <= set(transaction_roots(case.counts))
    )
    if with_what_it_names and not known:
        raise FitError(
            f"the {definition.name} model names {', '.join(named)}, and of no measured case"
            " transactions are known: fit with countperf.fit, or countperf fit, which find those of"
            " kernels of the catalogue"
        )
    return known


def _nonnegative(model: ModelDefinition) -> ModelDefinition:
    """Return a model whose weights are at least zero."""
    terms = {
        name: term.model_copy(update={"lower": max(term.lower or 0.0, 0.0)})
        for name, term in model.terms.items()
    }
    return ModelDefinition.model_validate(model.model_copy(update={"terms": terms}).model_dump())


def observations_of(measurements: Iterable[Measurement]) -> tuple[Observation, ...]:
    """Evaluate the property vectors of measured cases at their parameters.

    Cases whose kernel could not be counted are left out.
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
                counts=vectors[key].evaluate(measurement.parameters) | measurement.known_at_sizes,
                time_s=measurement.time_s,
                stable=measurement.stable,
                noise=measurement.noise
                if measurement.settling == "settled"
                else max(measurement.noise, UNSETTLED_NOISE),
                parameters=measurement.parameters,
            )
        )
    return tuple(observations)


def weight_set(
    observations: Sequence[Observation],
    fitted: Estimate,
    quality: FitQuality,
    header: Header,
    *,
    view: View,
    caches: CountedCaches,  # for which the kernels were counted
    correction: Correction | None = None,
) -> WeightSet:
    """Return the document of a fit."""
    model = fitted.function.model
    return WeightSet(
        model=model.name,
        definition=model,
        device=header.device,
        counting_rules=COUNTING_RULES_VERSION,
        view=view,
        counted_caches=caches,
        weights=_weights(fitted, header.device.device_type),
        ranges={
            name: Range(largest=float(values.max()))
            for name, values in fitted.design.scales.items()
            if np.any(values)
        },
        indistinguishable=fitted.diagnosis.groups,
        quality=quality,
        source=measurement_source(observations, header),
        correction=correction,
        written_by=__version__,
    )


def measurement_source(observations: Sequence[Observation], header: Header) -> MeasurementSource:
    """Say what weights rest on."""
    return MeasurementSource(
        cases=len(observations),
        unstable_cases=sum(not case.stable for case in observations),
        families=tuple(dict.fromkeys(case.family for case in observations)),
        protocol=header.protocol.name,
        recorded_at=header.environment.recorded_at,
    )


def _standard_error(fitted: Estimate, column: int) -> float | None:
    """Return a standard error; None at a bound, among inseparable unknowns, and without effect."""
    covariance, key = fitted.solution.covariance, fitted.function.keys[column]
    is_grouped = any(key in group.features for group in fitted.diagnosis.groups)
    if covariance is None or fitted.solution.at_bound[column] or is_grouped:
        return None
    return max(float(covariance[column, column]), 0.0) ** 0.5


def _weights(fitted: Estimate, device_type: str) -> tuple[Weight, ...]:
    design = fitted.design
    # where a launch is a notable part of some case, there is nothing to extrapolate below
    notable_s = NOTABLE_SHARE * float(design.times_s.min())
    has_short = notable_s <= SHORTEST_LAUNCH_S.get(device_type, 0.0)
    weights: list[Weight] = []
    for i, (term, feature) in enumerate(fitted.function.columns):
        derived = feature in fitted.function.model.derived
        values = design.counts[:, i]
        above = values[values > 0]
        weights.append(
            Weight(
                feature=feature,
                term=term,
                value_s=float(fitted.solution.coefficients[i]),
                standard_error_s=_standard_error(fitted, i),
                unit=DERIVED if derived else property_unit(feature),
                smallest=None if has_short or not above.size else float(above.min()),
                largest=float(values.max(initial=0.0)),
            )
        )
    return tuple(weights)


def fit_quality(
    fitted: Estimate, held_out: Sequence[HeldOutCase], model_error: float | None
) -> FitQuality:
    """Return the errors of a fit, in sample and on families that are left out."""
    determined = [(c.predicted_s, c.measured_s) for c in held_out if c.predicted_s is not None]
    errors = [error for case in held_out if (error := case.relative_error) is not None]
    counts = any(c.predicted_s is not None and not c.overhead_only for c in held_out)
    calibration = interval_calibration(held_out)
    # of few cases, the median says little
    freedom = fitted.solution.degrees_of_freedom if calibration is None else None
    number = len(determined) if calibration is None else None
    times = (fitted.predicted_s.tolist(), fitted.design.times_s.tolist())
    return FitQuality(
        in_sample_error=mean_error(fitted.relative_errors).value,
        held_out_error=mean_error(errors).value if errors else None,
        held_out_factor=held_out_factor(held_out) if counts else None,
        in_sample_scatter=log_scatter(*times, freedom=freedom),
        held_out_scatter=log_scatter(
            [p for p, _ in determined], [m for _, m in determined], freedom=number
        ),
        calibration=calibration,
        coverage=coverage_without_own_family(held_out),
        model_error=model_error,
    )


def correction_of(
    observations: Sequence[Observation], fitted: Estimate, held_out: Sequence[HeldOutCase]
) -> Correction | None:
    """Return what corrects predictions, if families that are left out are predicted better so."""
    with_it = corrected(held_out)
    if not any(case.predicted_s is not None for case in with_it):
        return None
    uncorrected, better = (held_out_factor(cases) for cases in (held_out, with_it))
    if np.log(uncorrected / better) <= LEAST_GAIN:
        return None
    return learn(fitted, observations)
