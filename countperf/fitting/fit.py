"""Fits of a model's weights to measurements."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

from countperf.errors import FitError, FitNotConvergedError, RankDeficientFitError
from countperf.execution.memory_hierarchy import CountedCaches, MemoryHierarchy
from countperf.fitting import verdicts
from countperf.fitting.design import (
    Observation,
    check_counting_rules,
    common_caches,
    common_view,
    inputs_of,
)
from countperf.fitting.estimate import Estimate, estimate, recipe_of, weighted_by_noise
from countperf.fitting.fitted_document import MeasuredWhere, correction_of, fit_quality, weight_set
from countperf.fitting.keeping import keep_largest
from countperf.fitting.leaving_out import HeldOutCase, corrected, leave_families_out
from countperf.fitting.result import FitResult, Verdict
from countperf.fitting.selection import numbered, select_model
from countperf.fitting.solve import Recipe
from countperf.fitting.threads import on_one_thread
from countperf.hardware.identity import DeviceIdentity
from countperf.hardware.memory import memory_hierarchy_of
from countperf.measurements import Measurement, MeasurementSet
from countperf.models import structural
from countperf.models.compiled import COMPILED, compiled_candidates
from countperf.models.correction import Correction
from countperf.models.definition import Loss, ModelDefinition, Residual
from countperf.models.library import shipped_policies
from countperf.models.linear import LINEAR
from countperf.models.records import Candidate, FitQuality
from countperf.models.shipped import fitted_model
from countperf.models.structural import STRUCTURAL
from countperf.models.weights import WeightSet
from countperf.properties.counts import says_group_shape
from countperf.properties.taxonomy import View
from countperf.properties.transactions import transaction_roots
from countperf.properties.vector import PropertyVector

AUTO = "auto"
"""Instead of a model's name: choose among those that ship (`countperf.fitting.selection`)."""

UNSETTLED_NOISE = 0.35
"""Noise of a case that never settled is at least that of two levels a factor of two apart: half of
that factor's logarithm."""


@on_one_thread
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

    By default :math:`\alpha = \arg\min \sum_j (1 - \sum_i \alpha_i p_i(n_j) / T_j)^2`; the solver
    is that of `countperf.fitting.solve`. Where weights are not determined, those of smallest norm
    in scaled columns are taken. Standard errors take the cases as independent, which sizes of one
    kernel are not quite. Predictions are corrected by kernels alike where the model has an
    execution policy and families that are left out gain by it.

    Residuals are multiplied by :math:`e / \sqrt{e^2 + n_j^2}`, with the noise :math:`n_j` of a case
    (`countperf.measurements.summary`; of cases that did not settle, at least `UNSETTLED_NOISE`) and
    the model's own typical error :math:`e`, found from a first fit in which all count the same.
    """
    changes = {"residual": residual, "loss": loss, "loss_scale": loss_scale}
    Recipe(**{name: value for name, value in changes.items() if value is not None})  # pyright: ignore[reportArgumentType] - before anything takes time
    wanted = [m for m in measurements if m.purpose == "measurement"]
    kept = [m for m in wanted if m.stable or not leave_out_unstable]
    view, caches = common_view(kept), common_caches(kept)
    counted = observations_of(kept)
    reads_code = model == COMPILED or (isinstance(model, ModelDefinition) and model.reads_code)
    observations = _with_code(counted) if reads_code else counted
    definition, candidates = _chosen(
        model, observations, measurements.device, view, memory, weigh_noise, executor
    )
    observations = _with_what_it_names(observations, definition)
    if nonnegative:
        definition = _nonnegative(definition)
    recipe = recipe_of(definition, max_evaluations=max_evaluations, **changes)
    definition = definition.model_copy(
        update={"residual": recipe.residual, "loss": recipe.loss, "loss_scale": recipe.loss_scale}
    )
    solved = _solve(
        observations,
        definition,
        recipe,
        weigh_noise=weigh_noise,
        correct=correct,
        executor=executor,
    )
    is_emitted = solved.definition.policy is None and not solved.definition.named_shape
    header = measurements.header
    weights = weight_set(
        MeasuredWhere(
            device=header.device,
            protocol=header.protocol.name,
            recorded_at=header.environment.recorded_at,
            caches=caches,
        ),
        "source" if view == "structure" and is_emitted else view,
        observations,
        solved.fitted,
        solved.quality,
        exercising_kernels(solved.definition) if exercising_kernels else {},
        candidates,
        solved.correction,
    )
    known = {case.name for case in observations}
    result = FitResult(
        weights=weights,
        verdicts=_verdicts(
            solved,
            weights,
            observations,
            caches=caches,
            unstable=len(wanted) - len(kept),
            uncounted=tuple(dict.fromkeys(m.kernel for m in kept if m.properties is None)),
            unused=tuple(case.kernel for case in counted if case.name not in known),
        ),
        observations=observations,
        estimate=solved.fitted,
        held_out=solved.held_out,
    )
    _require_usable(result, solved, require_full_rank=require_full_rank)
    return result


def _chosen(
    model: str | ModelDefinition,
    observations: Sequence[Observation],
    device: DeviceIdentity,
    view: View,
    memory: MemoryHierarchy | None,
    weigh_noise: bool,
    executor: Executor | None,
) -> tuple[ModelDefinition, tuple[Candidate, ...]]:
    """Return the model to fit, and those among which left-out families chose it."""
    if not observations:
        raise FitError("there is no measurement to fit; measure the measurement kernels first")
    candidates: tuple[Candidate, ...] = ()
    if model in (AUTO, STRUCTURAL, COMPILED):
        available = {LINEAR.name: LINEAR} if model == AUTO else {}
        units = device.compute_units
        caches = memory or memory_hierarchy_of(device)
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
    return definition, candidates


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Solved:
    """A model fitted to all cases, and what fits without some families say of it."""

    definition: ModelDefinition
    fitted: Estimate
    quality: FitQuality
    correction: Correction | None
    held_out: tuple[HeldOutCase, ...]
    stopped: FitNotConvergedError | None


def _solve(
    observations: Sequence[Observation],
    definition: ModelDefinition,
    recipe: Recipe,
    *,
    weigh_noise: bool,
    correct: bool,
    executor: Executor | None,
) -> _Solved:
    """Fit a model, keep its largest weights, leave families out, and correct by similar kernels."""
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
            held_out = leave_families_out(
                observations,
                fitted,
                recipe,
                with_correction=correct and definition.policy is not None,
                executor=executor,
            )
    except FitNotConvergedError as error:
        stopped = error
    correction = correction_of(observations, fitted, held_out)
    if correction is not None:
        held_out = corrected(held_out)
    quality = fit_quality(fitted, held_out, recipe.model_error)
    return _Solved(
        definition=definition,
        fitted=fitted,
        quality=quality,
        correction=correction,
        held_out=held_out,
        stopped=stopped,
    )


def _verdicts(
    solved: _Solved,
    weights: WeightSet,
    observations: Sequence[Observation],
    *,
    caches: CountedCaches,
    unstable: int,
    uncounted: tuple[str, ...],
    unused: tuple[str, ...],
) -> tuple[Verdict, ...]:
    """Return what is to be said of a fit; the verdict on its rank is the first."""
    fitted, correction, memory = solved.fitted, solved.correction, solved.definition.memory
    return (
        verdicts.rank_verdict(fitted.diagnosis, len(fitted.function.keys)),
        verdicts.condition_verdict(fitted.diagnosis),
        verdicts.exercise_verdict(fitted.design),
        verdicts.error_verdict(observations, fitted.relative_errors),
        verdicts.held_out_verdict(solved.held_out),
        *([] if correction is None else [verdicts.correction_verdict(correction)]),
        verdicts.coverage_verdict(solved.quality.coverage),
        verdicts.sign_verdict(weights.weights),
        verdicts.bound_verdict(fitted),
        verdicts.significance_verdict(weights.weights),
        verdicts.stability_verdict(observations, unstable),
        verdicts.counting_verdict(uncounted, unused),
        verdicts.convergence_verdict(fitted),
        *([] if memory is None else [verdicts.memory_verdict(memory, caches)]),
    )


def _require_usable(result: FitResult, solved: _Solved, *, require_full_rank: bool) -> None:
    """Raise an error that carries the result, if the fit did not converge or lacks full rank."""
    if not solved.fitted.converged:
        verdict = verdicts.convergence_verdict(solved.fitted)
        raise FitNotConvergedError(f"{verdict.message}; {verdict.remedy}", result=result)
    if solved.stopped is not None:
        raise FitNotConvergedError(str(solved.stopped), result=result) from solved.stopped
    if require_full_rank and solved.fitted.diagnosis.groups:
        verdict = result.verdicts[0]
        raise RankDeficientFitError(f"{verdict.message}: {verdict.remedy}", result=result)


def _with_code(observations: Sequence[Observation]) -> tuple[Observation, ...]:
    """Return the cases whose compiled code is known, and was followed to a possible end."""
    found = tuple(case for case in observations if case.has_code)
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
