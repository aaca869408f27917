"""From measurements to weights."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from countperf.errors import FitError, FitNotConvergedError, RankDeficientFitError
from countperf.execution.memory_hierarchy import MemoryHierarchy
from countperf.fitting import verdicts
from countperf.fitting.correcting import learn
from countperf.fitting.design import (
    Observation,
    check_counting_rules,
    common_view,
    inputs_of,
)
from countperf.fitting.estimate import Estimate, estimate, recipe_of, weighted_by_noise
from countperf.fitting.exercise import exercise
from countperf.fitting.intervals import coverage_without_own_family, interval_calibration
from countperf.fitting.keeping import keep_largest
from countperf.fitting.nonlinear import Recipe
from countperf.fitting.result import FitResult
from countperf.fitting.selection import REFINEMENT, held_out_figure, numbered, select_model
from countperf.fitting.validation import (
    HeldOutCase,
    corrected,
    leave_one_family_out,
    log_scatter,
)
from countperf.hardware.memory import memory_hierarchy_of
from countperf.measurements import Measurement, MeasurementSet
from countperf.metrics import mean_error
from countperf.models import structural
from countperf.models.compiled import COMPILED, compiled_candidates
from countperf.models.correction import Correction, without_support
from countperf.models.definition import CODE, Loss, ModelDefinition, Residual
from countperf.models.library import shipped_policies
from countperf.models.records import (
    Candidate,
    FitQuality,
    FittedParameter,
    MeasurementSource,
    Range,
    Support,
    Weight,
)
from countperf.models.shipped import MODELS, fitted_model
from countperf.models.structural import STRUCTURAL
from countperf.models.units import DERIVED
from countperf.models.weights import WeightSet
from countperf.properties.group_shape import says_group_shape
from countperf.properties.taxonomy import COUNTING_RULES_VERSION, View, describe
from countperf.properties.transactions import transaction_roots
from countperf.properties.vector import PropertyVector

AUTO = "auto"
"""Instead of a model's name: choose among those that ship (`countperf.fitting.selection`)."""

_MOST_INSTRUCTIONS_PER_S = 1e12
"""No processor executes more: what was followed in the code of such a case is not what ran."""

_SUPPLIERS = 5
"""Kernels that are stored for each feature without a weight."""

UNSETTLED_NOISE = 0.35
"""Noise of a case that never settled is at least that of two levels a factor of two apart: half of
that factor's logarithm."""


def fit(
    measurements: MeasurementSet,
    *,
    model: str | ModelDefinition = "linear",
    nonnegative: bool = False,
    residual: Residual | None = None,
    loss: Loss | None = None,
    loss_scale: float | None = None,
    weigh_noise: bool = True,
    max_evaluations: int | None = None,
    leave_out_unstable: bool = False,
    require_full_rank: bool = False,
    correct: bool = True,
    memory: MemoryHierarchy | None = None,
    exercising_kernels: Callable[[ModelDefinition], Mapping[str, Sequence[str]]] | None = None,
    executor: Executor | None = None,
) -> FitResult:
    r"""Fit the weights of a model to measurements of one device.

    Parameters
    ----------
    measurements : MeasurementSet
        Only those whose purpose is ``measurement`` are used, never those that judge fits; by a
        model that names the shape of work groups, only those whose groups are all alike, and by one
        that names transactions of sub-groups, only those whose transactions are known.
    model : str or ModelDefinition, optional
        A model, its name, or the path of its document; or ``auto``, to choose the one of those that
        ship which predicts families of measurement kernels best that were left out, among them
        models of execution policies where kernels were counted in the structure view, the policies
        of shipped fits included; or ``structural``, to choose among those alone; or ``compiled``,
        for the one that reads compiled code (`countperf.models.compiled`), from the cases for which
        it is there.
    nonnegative : bool, optional
        Keep weights at least zero; the paper's are free.
    residual : {"relative", "log"}, optional
        What is made small: ``1 - predicted/measured``, or ``log(predicted/measured)``; by default
        what the model asks for, as for the next two.
    loss : {"linear", "soft_l1", "huber"}, optional
        How residuals are summed: squares, or less for those far beyond `loss_scale`.
    loss_scale : float, optional
        Size of the residuals from which on a robust loss counts them for less.
    weigh_noise : bool, optional
        Count cases for less whose times do not repeat, or never settled, as `Notes` says; the
        paper's fit counts all the same.
    max_evaluations : int, optional
        After how many evaluations from one start a fit that is not linear gives up.
    leave_out_unstable : bool, optional
        Leave out cases whose samples spread too far.
    require_full_rank : bool, optional
        Raise if the measurements cannot tell some weights apart.
    correct : bool, optional
        Correct predictions of a model of an execution policy by what measured kernels like the one
        at hand were off by (`countperf.models.correction`), if families that are left out are
        predicted better so.
    memory : MemoryHierarchy, optional
        Caches of the device, for models of an execution policy that are chosen here; by default
        those of its processor (`countperf.hardware.memory`).
    exercising_kernels : callable, optional
        From a model to a mapping from its features to the measurement kernels that exercise them,
        stored with the weights.
    executor : concurrent.futures.Executor, optional
        What fits without some of the families each, as for `leave_one_family_out`.

    Returns
    -------
    FitResult
        Weights, verdicts, and what they follow from.

    Raises
    ------
    FitError
        There is nothing to fit, or kernels were counted in different views;
        `FitNotConvergedError` if the solver stopped early, and
        `RankDeficientFitError` with `require_full_rank`: both carry the result.
    ParameterError
        No such model, residual or loss, or a loss scale that is not positive.

    Notes
    -----
    For a sum, :math:`\alpha = \arg\min \sum_j (1 - \sum_i \alpha_i p_i(n_j) / T_j)^2`, with
    columns scaled to norm one. Where weights are not determined, those of smallest norm in scaled
    columns are taken. Covariance: :math:`s^2 (X^T X)^+`, :math:`s^2` the residual sum of squares
    over the degrees of freedom; :math:`X` is the Jacobian for other expressions. It takes the cases
    as independent, which sizes of one kernel are not quite, and leaves out unknowns at a bound.

    Residuals are multiplied by :math:`e / \sqrt{e^2 + n_j^2}`, with the noise :math:`n_j` of a case
    (`countperf.measurements.summary`; of cases that did not settle, at least `UNSETTLED_NOISE`) and
    the model's own typical error :math:`e`, found from a first fit in which all count the same.
    """
    changes = {"residual": residual, "loss": loss, "loss_scale": loss_scale}
    Recipe(**{name: value for name, value in changes.items() if value is not None})  # pyright: ignore[reportArgumentType] - before anything takes time
    wanted = [m for m in measurements if m.purpose == "measurement"]
    kept = [m for m in wanted if m.stable or not leave_out_unstable]
    view = common_view(kept)
    observations = counted = observations_of(kept)
    candidates: tuple[Candidate, ...] = ()
    if model == COMPILED or (isinstance(model, ModelDefinition) and model.reads_code):
        observations = _with_code(observations)
    if model in (AUTO, STRUCTURAL, COMPILED):
        available = dict(MODELS) if model == AUTO else {}
        units = measurements.device.compute_units
        caches = memory or memory_hierarchy_of(measurements.device)
        if model == COMPILED:
            _require_structure(view, COMPILED)
            available = compiled_candidates(units, memory=caches)
        elif model == STRUCTURAL or view == "structure":
            _require_structure(view, STRUCTURAL)
            usual = structural.candidates(known=shipped_policies(), units=units, memory=caches)
            available |= numbered(usual)
        definition, candidates = select_model(
            observations,
            available,
            refine=None if model == COMPILED else partial(structural.refinements, units=units),
            weigh_noise=weigh_noise,
            executor=executor,
        )
    else:
        definition = fitted_model(model) if isinstance(model, str) else model
    if definition.policy is not None:
        _require_structure(view, definition.name)
    if definition.named_shape:
        _require_structure(view, definition.name, "names the shape of work groups")
    observations = _with_what_it_names(observations, definition)
    known = {case.name for case in observations}
    if nonnegative:
        definition = _nonnegative(definition)
    recipe = recipe_of(definition, max_evaluations=max_evaluations, **changes)
    definition = definition.model_copy(
        update={"residual": recipe.residual, "loss": recipe.loss, "loss_scale": recipe.loss_scale}
    )
    inputs = inputs_of(observations, definition)
    if weigh_noise:
        recipe = weighted_by_noise(observations, definition, recipe, inputs=inputs)
    fitted = estimate(observations, definition, recipe, inputs=inputs)
    smaller, inputs = keep_largest(observations, fitted, recipe, inputs)
    if smaller is not definition:
        definition = smaller
        fitted = estimate(observations, definition, recipe, inputs=inputs)
    held_out: tuple[HeldOutCase, ...] = ()
    stopped: FitNotConvergedError | None = None
    try:
        if fitted.converged:
            held_out = leave_one_family_out(
                observations,
                definition,
                recipe=recipe,
                fitted=fitted,
                inputs=inputs,
                with_correction=correct and definition.policy is not None,
                executor=executor,
            )
    except FitNotConvergedError as error:
        stopped = error
    is_emitted = definition.policy is None and not definition.named_shape
    fitted_view = "source" if view == "structure" and is_emitted else view
    support = fitted.support([case.family for case in observations])
    quality = _quality(fitted, held_out, recipe.model_error, support)
    correction = _correction(observations, fitted, held_out, quality)
    if correction is not None:
        held_out = corrected(held_out)
        quality = _quality(fitted, held_out, recipe.model_error, support)
    weights = _weight_set(
        measurements,
        fitted_view,
        observations,
        fitted,
        quality,
        exercising_kernels(definition) if exercising_kernels else {},
        candidates,
        correction,
    )
    result = FitResult(
        weights=weights,
        verdicts=(
            verdicts.rank_verdict(fitted.diagnosis, len(fitted.function.keys)),
            verdicts.condition_verdict(fitted.diagnosis),
            verdicts.exercise_verdict(fitted.design),
            verdicts.error_verdict(observations, fitted.relative_errors),
            verdicts.held_out_verdict(held_out),
            *([] if correction is None else [verdicts.correction_verdict(correction)]),
            verdicts.coverage_verdict(quality.coverage),
            verdicts.sign_verdict(weights.weights),
            verdicts.bound_verdict(fitted),
            verdicts.significance_verdict(weights.weights),
            verdicts.stability_verdict(observations, len(wanted) - len(kept)),
            verdicts.counting_verdict(
                tuple(dict.fromkeys(m.kernel for m in kept if m.properties is None)),
                tuple(case.kernel for case in counted if case.name not in known),
            ),
            verdicts.convergence_verdict(fitted),
            verdicts.unseen_verdict(fitted),
            *([] if definition.memory is None else [verdicts.memory_verdict(definition.memory)]),
        ),
        observations=observations,
        estimate=fitted,
        held_out=held_out,
    )
    if not fitted.converged:
        verdict = verdicts.convergence_verdict(fitted)
        raise FitNotConvergedError(f"{verdict.message}; {verdict.remedy}", result=result)
    if stopped is not None:
        raise FitNotConvergedError(str(stopped), result=result) from stopped
    if require_full_rank and fitted.diagnosis.groups:
        verdict = result.verdicts[0]
        raise RankDeficientFitError(f"{verdict.message}: {verdict.remedy}", result=result)
    return result


def _with_code(observations: Sequence[Observation]) -> tuple[Observation, ...]:
    """Return the cases whose compiled code is known, and was followed to a possible end."""
    found = tuple(
        case
        for case in observations
        if any(name.startswith(CODE) for name in case.counts)
        and float(case.counts.get(f"{CODE}all", 0)) <= _MOST_INSTRUCTIONS_PER_S * case.time_s
    )
    if not found:
        raise FitError(
            "no measured case says what its compiled code executes: read it first"
            " (countperf compiled --store FILE, where the device is)"
        )
    return found


def _with_what_it_names(
    observations: Sequence[Observation], definition: ModelDefinition
) -> tuple[Observation, ...]:
    """Return the cases of which a model's group shape and transactions are known, if it has any."""
    found = tuple(
        case for case in observations if not definition.named_shape or says_group_shape(case.counts)
    )
    if not (named := definition.named_transactions):
        return found
    known = tuple(case for case in found if set(named) <= set(transaction_roots(case.counts)))
    if found and not known:
        raise FitError(
            f"the {definition.name} model names {', '.join(named)}, and of no measured case"
            " transactions are known: fit with countperf.fit, or countperf fit, which find those of"
            " kernels of the catalogue"
        )
    return known


def _require_structure(
    view: View, model: str, why: str = "is made of what the device issues"
) -> None:
    if view != "structure":
        raise FitError(
            f"the {model} model {why}, and the measured"
            f" kernels were counted in the {view} view: count them again in the structure view"
            " (countperf.workflow.measured.recount)"
        )


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
                counts=vectors[key].evaluate(measurement.parameters) | measurement.known_at_sizes,
                time_s=measurement.time_s,
                stable=measurement.stable,
                noise=measurement.noise
                if measurement.settling == "settled"
                else max(measurement.noise, UNSETTLED_NOISE),
            )
        )
    return tuple(observations)


def _weight_set(
    measurements: MeasurementSet,
    view: View,
    observations: Sequence[Observation],
    fitted: Estimate,
    quality: FitQuality,
    exercising_kernels: Mapping[str, Sequence[str]],
    candidates: tuple[Candidate, ...],
    correction: Correction | None,
) -> WeightSet:
    header = measurements.header
    covariance = fitted.solution.covariance
    model = fitted.function.model
    charged = {feature for _, feature in fitted.function.columns}
    return WeightSet(
        model=model.name,
        definition=model,
        device=header.device,
        counting_rules=COUNTING_RULES_VERSION,
        view=view,
        weights=_weights(fitted),
        parameters=_parameters(fitted),
        ranges={
            name: Range(smallest=float(values[values != 0].min()), largest=float(values.max()))
            for name, values in fitted.design.variables.items()
            if np.any(values)
        },
        covariance_s2=None
        if covariance is None
        else tuple(tuple(row) for row in covariance.astype(np.float32).tolist()),
        indistinguishable=fitted.diagnosis.groups,
        quality=quality,
        source=MeasurementSource(
            cases=len(observations),
            unstable_cases=sum(not case.stable for case in observations),
            families=tuple(dict.fromkeys(case.family for case in observations)),
            protocol=header.protocol.name,
            recorded_at=header.environment.recorded_at,
        ),
        exercising_kernels={
            name: tuple(kernels[:_SUPPLIERS])
            for name, kernels in exercising_kernels.items()
            if name not in charged
        },
        candidates=candidates,
        exercise=exercise(fitted.function, fitted.solution.coefficients.tolist(), observations),
        correction=correction,
        written_by=_version(),
    )


def _standard_error(fitted: Estimate, place: int) -> float | None:
    """Return a standard error; None at a bound, among inseparable unknowns, and without effect."""
    covariance = fitted.solution.covariance
    key = fitted.function.keys[place]
    grouped = {name for group in fitted.diagnosis.groups for name in group.features}
    if covariance is None or fitted.solution.at_bound[place]:
        return None
    if key in grouped or key in fitted.unseen:
        return None
    return max(float(covariance[place, place]), 0.0) ** 0.5


def _weights(fitted: Estimate) -> tuple[Weight, ...]:
    design = fitted.design
    weights: list[Weight] = []
    for i, (term, feature) in enumerate(fitted.function.columns):
        exercised = design.counts[:, i][design.counts[:, i] != 0]
        derived = feature in fitted.function.model.derived
        weights.append(
            Weight(
                feature=feature,
                term=term,
                value_s=float(fitted.solution.coefficients[i]),
                standard_error_s=_standard_error(fitted, i),
                unit=DERIVED if derived else describe(feature).unit,
                smallest=float(exercised.min()),
                largest=float(exercised.max()),
            )
        )
    return tuple(weights)


def _parameters(fitted: Estimate) -> tuple[FittedParameter, ...]:
    first = len(fitted.function.columns)
    return tuple(
        FittedParameter(
            name=name,
            value=float(fitted.solution.coefficients[i]),
            standard_error=_standard_error(fitted, i),
            lower=parameter.lower,
            upper=parameter.upper,
            at_bound=bool(fitted.solution.at_bound[i]),
        )
        for i, (name, parameter) in enumerate(fitted.function.model.all_parameters.items(), first)
    )


def _quality(
    fitted: Estimate,
    held_out: Sequence[HeldOutCase],
    model_error: float | None,
    support: Support,
) -> FitQuality:
    determined = [(c.predicted_s, c.measured_s) for c in held_out if c.predicted_s is not None]
    errors = [error for case in held_out if (error := case.relative_error) is not None]
    return FitQuality(
        in_sample_error=mean_error(fitted.relative_errors).value,
        held_out_error=mean_error(errors).value if errors else None,
        in_sample_scatter=log_scatter(fitted.predicted_s.tolist(), fitted.design.times_s.tolist()),
        held_out_scatter=log_scatter([p for p, _ in determined], [m for _, m in determined]),
        calibration=interval_calibration(held_out, support),
        coverage=coverage_without_own_family(held_out),
        model_error=model_error,
    )


def _correction(
    observations: Sequence[Observation],
    fitted: Estimate,
    held_out: Sequence[HeldOutCase],
    quality: FitQuality,
) -> Correction | None:
    """Return what corrects predictions, if families that are left out are predicted better so."""
    with_it = corrected(held_out)
    if not any(case.predicted_s is not None for case in with_it):
        return None
    uncorrected, better = (held_out_figure(cases).factor for cases in (held_out, with_it))
    learnt = learn(fitted, observations)
    if learnt is None or np.log(uncorrected / better) <= REFINEMENT:
        return None
    return learnt.document(
        factor=better, uncorrected_factor=uncorrected, without=without_support(quality)
    )


def _version() -> str:
    try:
        return version("countperf")
    except PackageNotFoundError:
        return "unknown"
