"""Fits of a model's weights to measurements."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial

from countperf.errors import FitError, FitNotConvergedError
from countperf.execution.memory_hierarchy import MemoryHierarchy
from countperf.fitting import verdicts
from countperf.fitting.design import (
    Observation,
    build_design,
    check_counting_rules,
    common_caches,
    common_view,
)
from countperf.fitting.estimate import estimate_design, recipe_of, weighted_by_noise
from countperf.fitting.fitted_document import correction_of, fit_quality, weight_set
from countperf.fitting.leaving_out import corrected, leave_families_out
from countperf.fitting.result import FitResult
from countperf.fitting.selection import numbered, select_model
from countperf.fitting.threads import on_one_thread
from countperf.hardware.identity import DeviceIdentity
from countperf.hardware.memory import memory_hierarchy_of
from countperf.measurements import Measurement, MeasurementSet
from countperf.models import structural
from countperf.models.compiled import COMPILED, compiled_candidates
from countperf.models.definition import ModelDefinition
from countperf.models.library import shipped_policies
from countperf.models.linear import LINEAR
from countperf.models.records import Candidate
from countperf.models.shipped import fitted_model
from countperf.models.structural import STRUCTURAL
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
    weigh_noise: bool = True,
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
    kept = [m for m in measurements if m.purpose == "measurement"]
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
    recipe = recipe_of(definition)
    design = build_design(observations, definition)
    if weigh_noise:
        recipe = weighted_by_noise(design, recipe)
    fitted = estimate_design(design, recipe)
    if not fitted.converged:
        raise FitNotConvergedError(f"the solver stopped early: {fitted.message}")
    held_out = leave_families_out(
        observations,
        fitted,
        recipe,
        with_correction=correct and definition.policy is not None,
        executor=executor,
    )
    correction = correction_of(observations, fitted, held_out)
    if correction is not None:
        held_out = corrected(held_out)
    quality = fit_quality(fitted, held_out, recipe.model_error)
    is_emitted = definition.policy is None and not definition.named_shape
    header = measurements.header
    weights = weight_set(
        observations,
        fitted,
        quality,
        device=header.device,
        view="source" if view == "structure" and is_emitted else view,
        caches=caches,
        protocol=header.protocol.name,
        recorded_at=header.environment.recorded_at,
        exercising_kernels=exercising_kernels(definition) if exercising_kernels else {},
        candidates=candidates,
        correction=correction,
    )
    known = {case.name for case in observations}
    uncounted = dict.fromkeys(m.kernel for m in kept if m.properties is None)
    lacking = [case.kernel for case in counted if case.name not in known]
    errors = fitted.relative_errors
    return FitResult(
        weights=weights,
        verdicts=(
            verdicts.rank_verdict(fitted.diagnosis, len(fitted.function.keys)),
            verdicts.exercise_verdict(fitted.design),
            verdicts.error_verdict(observations, errors, held_out, quality.coverage),
            verdicts.cases_verdict(observations, tuple(uncounted), lacking),
            *(
                [verdicts.memory_verdict(definition.memory, caches)]
                if definition.memory is not None
                else []
            ),
        ),
        observations=observations,
        estimate=fitted,
        held_out=held_out,
    )


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
