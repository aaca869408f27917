"""Fits of a model's weights to measurements."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from countperf import __version__
from countperf.counting.structure import memory_hierarchy
from countperf.counting.structure.memory_hierarchy import CountedCaches, MemoryHierarchy
from countperf.counting.taxonomy import COUNTING_RULES_VERSION, View, property_unit
from countperf.counting.vector import PropertyVector, says_group_shape, transaction_roots
from countperf.errors import FitError, FitNotConvergedError
from countperf.measuring import Header, Measurement, MeasurementSet
from countperf.models import function as functions
from countperf.models.correction import Correction
from countperf.models.definition import ModelDefinition, Objective
from countperf.models.explanation import weights_table
from countperf.models.fitting import design, leaving_out
from countperf.models.fitting.design import Estimate, Observation
from countperf.models.fitting.solve import Recipe
from countperf.models.metrics import check_counting_rules, mean_error
from countperf.models.predictions import Verdict, verdict_lines
from countperf.models.shipped import LINEAR
from countperf.models.weights import WeightSet
from countperf.text import Printed, Result, extract, format_percent, short_name, some_of

LEAST_GAIN = 0.002
"""Decrease of the logarithm of the factor over left-out families that a correction has to bring."""

UNSETTLED_NOISE = 0.35
"""Least noise of a case that never settled: half of the logarithm of a factor of two."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FitResult(Result):
    """A fit."""

    weights: WeightSet  # the weights with their uncertainty, ready to predict with and to be stored
    verdicts: tuple[Verdict, ...] = ()  # one per check
    observations: tuple[Observation, ...]  # the measured cases of the fit
    estimate: Estimate  # the fitted function over the design, and what the design can tell apart
    # each case, predicted without its family, and corrected if the weights' predictions are
    held_out: tuple[leaving_out.HeldOutCase, ...]

    @property
    def caveats(self) -> tuple[Verdict, ...]:
        """The verdicts that did not pass."""
        return tuple(verdict for verdict in self.verdicts if not verdict.passed)

    __repr__ = Result.__str__

    def lay_out(self) -> Printed:
        """Give a fit: how well it describes and predicts, its weights, its verdicts."""
        quality = self.weights.quality
        assert quality is not None  # of a fit
        error = f"in-sample {format_percent(quality.in_sample_error)}"
        if quality.held_out_error is not None:
            error += f", on classes left out {format_percent(quality.held_out_error)}"
        definition = self.weights.definition
        expression = [f"time_s = {definition.expression}"] if len(definition.terms) > 1 else []
        held_out = {c.name: c.predicted_s for c in self.held_out if not math.isnan(c.predicted_s)}
        predicted_s = self.estimate.predicted_s.tolist()
        errors = self.estimate.relative_errors.tolist()
        return Printed(
            head=[
                f"error: {error} (geometric means of relative errors)",
                f"{short_name(self.weights.model)} model on {self.weights.device.slug},"
                f" {len(self.observations)} cases,"
                f" rank {self.estimate.rank} of {len(self.weights.unknowns)}",
                f"minimized: {quality.objective}",
                *expression,
            ],
            rows=[
                {
                    **extract(case, "kernel", "family", "stable"),
                    "case": case.name,
                    "measured_s": case.time_s,
                    "predicted_s": predicted_s[i],
                    "relative_error": errors[i],
                    "noise": case.noise,
                    "held_out_s": held_out.get(case.name),
                }
                for i, case in enumerate(self.observations)
            ],
            shown=weights_table(self.weights),
            notes=verdict_lines(self.verdicts),
            facts={
                **{"device": self.weights.device.slug, "model": self.weights.model},
                **{"cases": len(self.observations), "rank": self.estimate.rank},
                "objective": quality.objective,
                **{"verdicts": self.verdicts, "weights": self.weights.to_object()},
            },
        )


@design.on_one_thread
def fit(
    measurements: MeasurementSet,
    *,
    model: ModelDefinition = LINEAR,
    nonnegative: bool = False,
    objective: Objective | None = None,
    correct: bool = True,
) -> FitResult:
    r"""Fit the weights of a model to measurements of one device.

    Where weights are not determined, those of smallest norm in scaled columns are taken.
    Predictions are corrected by kernels alike where the model has an execution policy and families
    that are left out gain by it. For the objective `noise` residuals are multiplied by
    :math:`e / \sqrt{e^2 + n_j^2}`, with the noise :math:`n_j` of a case and the model's own typical
    error :math:`e`. That of the paper, the default of the linear model, is the sum of squares of
    relative errors, all cases alike (Stevens & Klöckner (2016), section 4.3).
    """
    kept = [m for m in measurements if m.purpose == "measurement"]
    view, caches = design.common_view(kept), design.common_caches(kept)
    counted = observations_of(kept)
    if not counted:
        raise FitError("there is no measurement to fit; measure the measurement kernels first")
    observations = select_readable(counted, model, view)
    definition = _nonnegative(model) if nonnegative else model
    objective = objective or ("paper" if model.name == LINEAR.name else "noise")
    if objective == "paper":
        definition = definition.model_copy(update={"residual": "relative", "loss": "linear"})
    recipe = design.recipe_of(definition)
    whole = design.build_design(observations, definition)
    if objective == "noise":
        recipe = design.weigh_by_noise(whole, recipe)
    fitted = design.estimate_design(whole, recipe)
    if not fitted.solution.converged:
        raise FitNotConvergedError(f"the solver stopped early: {fitted.solution.message}")
    correct = correct and definition.policy is not None
    held_out = leaving_out.leave_families_out(observations, fitted, recipe, with_correction=correct)
    correction = correction_of(observations, fitted, held_out)
    if correction is not None:
        held_out = leaving_out.take_corrections(held_out)
    quality = fit_quality(fitted, held_out, recipe.model_error)
    quality = quality.model_copy(update={"objective": describe_objective(definition, recipe)})
    is_emitted = definition.policy is None and not definition.named_shape
    view = "source" if view == "structure" and is_emitted else view
    made = observations, fitted, quality, measurements.header
    weights = weight_set(*made, view=view, caches=caches, correction=correction)
    verdicts = [*_judge_design(fitted), _cases_verdict(observations, counted, kept)]
    verdicts.insert(2, _error_verdict(observations, fitted, held_out, quality.coverage))
    if definition.memory is not None:
        verdicts.append(memory_verdict(definition.memory, caches))
    return FitResult(
        weights=weights,
        verdicts=tuple(verdicts),
        observations=observations,
        estimate=fitted,
        held_out=held_out,
    )


def select_readable(
    cases: Sequence[Observation], model: ModelDefinition, view: View
) -> tuple[Observation, ...]:
    """Return the cases whose counts have what a model is made of; refuse where none has."""
    if view != "structure" and (model.policy is not None or model.named_shape):
        made = "what the device issues" if model.policy else "the shape of work groups"
        raise FitError(
            f"the {model.name} model is made of {made}, and the measured kernels were counted in"
            f" the {view} view: count them again in the structure view"
            " (countperf.api.evaluation.recount)"
        )
    if model.reads_code:
        cases = [case for case in cases if case.has_code]
        if not cases:
            raise FitError(
                "no measured case says what its compiled code executes: read it first"
                " (countperf compiled --store FILE, where the device is)"
            )
    if model.named_shape:
        cases = [case for case in cases if says_group_shape(case.counts)]
    if (named := model.named_transactions) and cases:
        cases = [case for case in cases if set(named) <= set(transaction_roots(case.counts))]
        if not cases:
            raise FitError(
                f"the {model.name} model names {', '.join(named)}, and of no measured case"
                " transactions are known: fit with countperf.fit, or countperf fit, which find"
                " those of kernels of the catalogue"
            )
    return tuple(cases)


def describe_objective(model: ModelDefinition, recipe: Recipe) -> str:
    """Say what a fit makes small, and what weights it lets be."""
    is_free = all(term.lower is None for term in model.terms.values())
    summed = "squares" if recipe.loss == "linear" else f"soft-L1 losses ({recipe.loss_scale:g})"
    error = "1 - predicted/measured" if recipe.residual == "relative" else "log(predicted/measured)"
    alike = "all cases alike" if recipe.model_error is None else "noisy cases for less"
    signs = "of any sign" if is_free else "with lower bounds"
    whose = ", as in the paper" if is_free and recipe == Recipe() else ""
    return f"sum of {summed} of {error}, {alike}; weights {signs}{whose}"


def _nonnegative(model: ModelDefinition) -> ModelDefinition:
    items = model.terms.items()
    terms = {n: t.model_copy(update={"lower": max(t.lower or 0.0, 0.0)}) for n, t in items}
    return ModelDefinition.model_validate(model.model_copy(update={"terms": terms}).model_dump())


def observations_of(measurements: Iterable[Measurement]) -> tuple[Observation, ...]:
    """Evaluate the counts of measured cases at their sizes, where their kernel was counted."""
    vectors: dict[str, PropertyVector] = {}
    observations: list[Observation] = []
    for measurement in measurements:
        if measurement.properties is None:
            continue
        key = json.dumps(measurement.properties)
        if key not in vectors:
            check_counting_rules(measurement)
            vectors[key] = PropertyVector.from_document(measurement.properties)
        least = 0.0 if measurement.settling == "settled" else UNSETTLED_NOISE
        observations.append(
            Observation(
                name=measurement.case,
                kernel=measurement.kernel,
                family=measurement.family,
                counts=vectors[key].evaluate(measurement.parameters) | measurement.known_at_sizes,
                time_s=measurement.time_s,
                stable=measurement.stable,
                noise=max(measurement.noise, least),
                parameters=measurement.parameters,
            )
        )
    return tuple(observations)


def weight_set(
    observations: Sequence[Observation],
    fitted: Estimate,
    quality: functions.FitQuality,
    header: Header,
    *,
    view: View,
    caches: CountedCaches,  # for which the kernels were counted
    correction: Correction | None = None,
) -> WeightSet:
    """Return the document of a fit."""
    model, scales = fitted.function.model, fitted.design.scales
    largest = {n: float(values.max()) for n, values in scales.items() if np.any(values)}
    return WeightSet(
        model=model.name,
        definition=model,
        device=header.device,
        counting_rules=COUNTING_RULES_VERSION,
        view=view,
        counted_caches=caches,
        weights=_weights(fitted, header.device.device_type),
        ranges={name: functions.Range(largest=value) for name, value in largest.items()},
        indistinguishable=fitted.groups,
        quality=quality,
        source=measurement_source(observations, header),
        correction=correction,
        written_by=__version__,
    )


def measurement_source(cases: Sequence[Observation], header: Header) -> functions.MeasurementSource:
    """Say what weights rest on."""
    return functions.MeasurementSource(
        cases=len(cases),
        unstable_cases=sum(not case.stable for case in cases),
        families=tuple(dict.fromkeys(case.family for case in cases)),
        protocol=header.protocol.name,
        recorded_at=header.environment.recorded_at,
        memory_s=header.environment.memory_s,
    )


def _weights(fitted: Estimate, device_type: str) -> tuple[functions.Weight, ...]:
    cases, solution = fitted.design, fitted.solution
    # where a launch is a notable part of some case, there is nothing to extrapolate below
    notable_s = functions.NOTABLE_SHARE * float(cases.times_s.min())
    has_short = notable_s <= functions.SHORTEST_LAUNCH_S.get(device_type, 0.0)
    grouped = {feature for group in fitted.groups for feature in group.features}
    weights: list[functions.Weight] = []
    for i, (term, feature) in enumerate(fitted.function.columns):
        values = cases.counts[:, i]
        above = values[values > 0]
        error = None  # at a bound, among inseparable unknowns, and without effect
        is_alone = fitted.function.keys[i] not in grouped
        if solution.covariance is not None and not solution.at_bound[i] and is_alone:
            error = max(float(solution.covariance[i, i]), 0.0) ** 0.5
        is_derived = feature in cases.function.model.derived
        weights.append(
            functions.Weight(
                feature=feature,
                term=term,
                value_s=float(solution.coefficients[i]),
                standard_error_s=error,
                unit=functions.DERIVED if is_derived else property_unit(feature),
                smallest=None if has_short or not above.size else float(above.min()),
                largest=float(values.max(initial=0.0)),
            )
        )
    return tuple(weights)


def fit_quality(
    fitted: Estimate, held_out: Sequence[leaving_out.HeldOutCase], model_error: float | None
) -> functions.FitQuality:
    """Return the errors of a fit, in sample and on families that are left out."""
    known = [case for case in held_out if not math.isnan(case.predicted_s)]
    errors = [case.relative_error for case in known]
    counts = any(not case.overhead_only for case in known)
    calibration = leaving_out.interval_calibration(held_out)
    # of few cases, the median says little
    freedom = fitted.solution.degrees_of_freedom if calibration is None else None
    number = len(known) if calibration is None else None
    times = (fitted.predicted_s.tolist(), fitted.design.times_s.tolist())
    held_out_times = [c.predicted_s for c in known], [c.measured_s for c in known]
    return functions.FitQuality(
        in_sample_error=mean_error(fitted.relative_errors).value,
        held_out_error=mean_error(errors).value if errors else None,
        held_out_factor=leaving_out.find_held_out_factor(held_out) if counts else None,
        in_sample_scatter=leaving_out.log_scatter(*times, freedom=freedom),
        held_out_scatter=leaving_out.log_scatter(*held_out_times, freedom=number),
        calibration=calibration,
        coverage=leaving_out.coverage_without_own_family(held_out),
        model_error=model_error,
    )


def correction_of(
    observations: Sequence[Observation],
    fitted: Estimate,
    held_out: Sequence[leaving_out.HeldOutCase],
) -> Correction | None:
    """Return what corrects predictions, if families that are left out are predicted better so."""
    with_it = leaving_out.take_corrections(held_out)
    if all(math.isnan(case.predicted_s) for case in with_it):
        return None
    plain, better = (leaving_out.find_held_out_factor(cases) for cases in (held_out, with_it))
    if np.log(plain / better) <= LEAST_GAIN:
        return None
    return leaving_out.learn_correction(fitted, observations)


ERROR_LIMIT = 0.2  # in-sample error above which a fit does not describe its own measurements

HELD_OUT_LIMIT = 0.5
"""Error over families left out above which predictions of new kernels mean little."""

COVERAGE_ERRORS = 2.0
"""Standard errors by which coverage may lie below its level, with families as single draws."""

_WORST = 3


def _check(name: str, problems: Sequence[str], otherwise: str, remedy: str) -> Verdict:
    if not problems:
        return Verdict(name=name, passed=True, message=otherwise)
    return Verdict(name=name, passed=False, message="; ".join(problems), remedy=remedy)


def _judge_design(fitted: Estimate) -> list[Verdict]:
    """Say which weights are determined, and what gets none."""
    cases, number = fitted.design, len(fitted.function.keys)
    groups = "; ".join(" and ".join(group.features) for group in fitted.groups)
    shared = "each group shares its cost in proportion"
    problem = f"{fitted.rank} of {number}: the measurements cannot tell apart {groups}; {shared}"
    lacking = {"never exercised": cases.unexercised, "the model has no rule for": cases.unknown}
    return [
        _check(
            "rank",
            [problem] if groups else [],
            f"full: {number} weights are all determined",
            "measure kernels that have these properties in other proportions; until then trust"
            " only kernels that have them in the same proportion",
        ),
        _check(
            "exercise",
            [f"{what}: {', '.join(names)}" for what, names in lacking.items() if names],
            "every property of the kernels is exercised",
            "these get no weight; measure kernels that exercise them at other parameters",
        ),
    ]


def _error_verdict(
    observations: Sequence[Observation],
    fitted: Estimate,
    held_out: Sequence[leaving_out.HeldOutCase],
    coverage: functions.Coverage | None,
) -> Verdict:
    """Say how well each family is predicted from the others, and where the fit does worst."""
    errors = fitted.relative_errors
    own = mean_error(errors)
    last = np.argsort(-errors)[:_WORST]
    worst = ", ".join(f"{observations[i].name} {100 * errors[i]:.0f} %" for i in last)
    message = f"{100 * own.value:.1f} % on the {own.count} cases of the fit (worst: {worst})"
    left_out = [case.relative_error for case in held_out if not math.isnan(case.predicted_s)]
    if not left_out or coverage is None:
        message += "; too few classes of kernels are predicted from the others"
        return Verdict(name="errors", passed=False, message=message, remedy="measure more classes")
    mean = mean_error(left_out)
    message += f", {100 * mean.value:.0f} % on {mean.count} cases predicted without their class"
    if left := len(held_out) - len(left_out):
        message += f" ({left} are not determined by other classes)"
    of = f"{coverage.cases} cases of {coverage.families} classes, each left out of what they are"
    if np.log(coverage.median_factor_90) >= functions.WIDEST_REACH:
        message += f"; intervals of 90 % would reach a factor of {coverage.median_factor_90:.0f}"
        message += f" either way ({of} made from), so none are given"
    else:
        message += f"; intervals of 90 % hold for {100 * coverage.share_90:.0f} % of {of} made from"
    slack = COVERAGE_ERRORS * (0.9 * 0.1 / coverage.families) ** 0.5
    is_good = own.value <= ERROR_LIMIT and mean.value <= HELD_OUT_LIMIT
    passed = is_good and coverage.share_90 >= 0.9 - slack
    remedy = "expect such errors for kernels unlike those measured; measure more classes"
    return Verdict(name="errors", passed=passed, message=message, remedy="" if passed else remedy)


def memory_verdict(memory: MemoryHierarchy, caches: CountedCaches) -> Verdict:
    """Say whose caches a model of an execution policy has, and its kernels were counted for."""
    if memory.name == memory_hierarchy.UNKNOWN:
        assumed = memory_hierarchy.ASSUMED
        return Verdict(
            name="memory",
            passed=False,
            message=f"the caches of this device are not known; those of {assumed} are assumed",
            remedy="fit on the device itself, if it is a processor whose system reports its caches,"
            " or in Python pass model=load_fitted_model('structural', device, MemoryHierarchy(...))"
            " of countperf.models.shipped",
        )
    own = f"{memory.name} has {memory.counted.text}"
    problem = f"kernels were counted for caches of {caches.text}, and {own}"
    return _check(
        "memory",
        [] if memory.counted.counts_alike(caches) else [problem],
        f"caches are those of {memory.name}",
        "count the measured kernels again: countperf.api.evaluation.recount",
    )


def _cases_verdict(
    fitted: Sequence[Observation], counted: Sequence[Observation], measured: Sequence[Measurement]
) -> Verdict:
    """Name cases whose samples spread too far, and kernels that are not in the fit, with why."""
    known = {case.name for case in fitted}
    unstable = [case.name for case in fitted if not case.stable]
    doubts = {
        f"the samples of {len(unstable)} of {len(fitted)} cases spread too far": unstable,
        "measured but not counted, so not in the fit": [
            case.kernel for case in measured if case.properties is None
        ],
        "without what the model names, so not in the fit": [
            case.kernel for case in counted if case.name not in known
        ],
    }
    return _check(
        "cases",
        [f"{what}: {some_of([*dict.fromkeys(n)], most=_WORST)}" for what, n in doubts.items() if n],
        f"all {len(fitted)} cases repeat and are in the fit",
        "measure these again on a quiet machine; see with countperf count why one is not counted",
    )
