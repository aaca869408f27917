"""Fitted weights: the time that they give for counts, and whether they can be used for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from countperf.counting.counts import transaction_roots
from countperf.counting.taxonomy import UNKNOWN_GROUPS
from countperf.devices.identity import DeviceIdentity
from countperf.errors import MismatchError, ParameterError, PredictionError, option
from countperf.models.anchored import Origin
from countperf.models.charging import (
    Charge,
    charge_inputs,
    correct_charge,
    find_log_reach,
    find_missing,
)
from countperf.models.cost_function import CostFunction, lacking_cost
from countperf.models.features import vector_of
from countperf.models.function import model_inputs
from countperf.models.predictions import ParameterValue, Prediction, largest_first
from countperf.models.validity import (
    EXTRAPOLATION_FACTOR,
    EXTRAPOLATION_WIDENING,
    LAUNCH,
    REMEDIES,
    Level,
    anywhere,
    breaks,
    broken_groups,
    describe_device,
    describe_groups,
    describe_guess,
    describe_interval,
    describe_range,
    describe_substitutes,
    features_outside,
    interval,
    make_caveats,
    make_unmeasured_error,
    refuse_negative,
)
from countperf.models.weight_document import WeightDocument
from countperf.sizes import given_sizes

if TYPE_CHECKING:
    from countperf.counting.vector import PropertyVector

MOST_GUESSED = 0.5
"""Share of a time that may rest on weights which the fit cannot tell apart; more is refused."""

_SHORT = (
    "the model gives less than {:.3g} µs, the time of the shortest launch known of a {}, which is"
    " predicted"
)
_NEGATIVE = "the predicted time is not positive: negative weights outweigh the others"


class WeightSet(WeightDocument):
    """Weights of a fitted model on a device, which predict.

    Attributes
    ----------
    model, definition : str, ModelDefinition
        Name of the model, and its terms and features.
    device : DeviceIdentity
        What they were measured on.
    counting_rules, view, counted_caches
        Version of the counting rules, view and caches by which the kernels of the fit were counted.
    weights : tuple of Weight
        One for each feature of a term that the measurements exercise, s per unit.
    quality, source : FitQuality or None, MeasurementSource or None
        Errors and intervals of the fit, and its measurements; None for weights from elsewhere.
    correction : Correction or None
        What measured kernels say of kernels like them, by which predictions are corrected.
    """

    def predict(
        self,
        counts: Mapping[str, Any],
        parameters: Mapping[str, ParameterValue] | None = None,
        /,
        *,
        incomplete_ok: bool = False,
        level: Level = 0.95,
        **more: ParameterValue,
    ) -> Prediction:
        """Predict the time of one launch of a kernel from its counts, by these weights.

        Parameters
        ----------
        counts : PropertyVector or Mapping from str to int or str
            Counts in the view of the weights, or counts written by hand. A kernel is counted and
            predicted by `countperf.predict`.
        parameters, **more : int or ndarray of integers
            Values of the size parameters.
        incomplete_ok, level
            As for `countperf.predict`, which also predicts for other devices.

        Raises
        ------
        ParameterError, PredictionError, MismatchError
            A kernel was given, or a size is missing; a property has no weight; the view is another.
        """
        if not isinstance(counts, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be unchecked
            raise ParameterError(
                f"weights predict counts of a kernel, not what is a {type(counts).__name__}: pass a"
                " kernel to countperf.predict(kernel, sizes, weights=weights)",
                parameter="counts",
            )
        made = self.predict_counts(
            vector_of(counts, view=self.view),
            given_sizes(parameters, more),
            incomplete_ok=incomplete_ok,
            level=level,
        )
        refuse_negative(made.model, made.kernel, made.time_s)
        return made

    def predict_counts(
        self,
        kernel: PropertyVector,
        parameters: Mapping[str, ParameterValue],
        *,
        incomplete_ok: bool = False,
        level: Level = 0.95,
        shrink: float = 1.0,
        device: DeviceIdentity | None = None,
    ) -> Prediction:
        """Predict as `predict` does, for any device, also times below zero.

        The logarithmic width of intervals is multiplied by `shrink`.
        """
        self.check_counting_rules()
        vector = self.count(kernel)
        self._check_what_has_no_formula(vector)
        counts = vector.evaluate(parameters)
        inputs = model_inputs(self.definition, counts)
        missing = find_missing(self, inputs)
        if missing and not incomplete_ok:
            raise make_unmeasured_error(vector.kernel, self.device.slug, missing)
        charge = charge_inputs(self, inputs)
        time_s, parts, corrections = correct_charge(self, charge)
        if not incomplete_ok:
            self._check_guessed(vector.kernel, charge)
        outside, below = features_outside(self.by_feature, charge.values, parts)
        for name, value in inputs.variables.items():
            limit = self.ranges[name].largest if name in self.ranges else np.inf
            if np.any(beyond := np.asarray(value) > EXTRAPOLATION_FACTOR * limit):
                outside[name] = beyond
        unsure = (breaks(group, charge.changes) for group in self.indistinguishable)
        reach = shrink * find_log_reach(self, charge, level)
        by_data = np.asarray(counts.get(UNKNOWN_GROUPS, 0) if self.definition.reads_code else 0) > 0
        is_wide = anywhere((*outside.values(), *below.values(), by_data))
        widening = np.where(is_wide, EXTRAPOLATION_WIDENING, 1.0)
        known = ~anywhere((*missing.values(), *unsure))
        interval_s = interval(time_s, np.where(known, widening * reach, np.nan))
        columns = {own: self.function.find_column(own) for own in inputs.values}
        caveats = make_caveats(
            complete=f"without the cost of {', '.join(missing)}" if missing else "",
            indistinguishable=describe_guess(self.indistinguishable, charge.changes),
            extrapolation=describe_range(outside, below, has_interval=interval_s is not None),
            masked=describe_substitutes(
                {own[1]: to[1] for own, to in columns.items() if own != to}
            ),
            launch=_SHORT.format(self.shortest_launch_s * 1e6, self.device.device_type.upper())
            if np.any(np.asarray(parts.get(LAUNCH, 0.0)) > 0)
            else "",
            interval="" if self.quality is None else describe_interval(reach),
            groups=describe_groups(has_interval=interval_s is not None) if np.any(by_data) else "",
            sign="" if np.all(np.asarray(time_s) > 0) else _NEGATIVE,
            device=describe_device(self.device, device),
        )
        return Prediction(
            kernel=vector.kernel,
            device=self.device.slug if device is None else device.slug,
            model=self.model,
            weights=self.name,
            parameters=dict(parameters),
            time_s=time_s,
            interval_s=interval_s,
            interval_level=level,
            breakdown=largest_first(parts),
            missing=tuple(missing),
            ignored=inputs.ignored,
            verdicts=(*caveats, *corrections, *make_caveats(weights=self.remark)),
            resources=self.resources,
            origin=Origin(
                weights=self,
                kernel=kernel,
                options={"level": level, "incomplete_ok": incomplete_ok, "device": device},
            ),
        )

    def compile(self, kernel: object, *, incomplete_ok: bool = False) -> CostFunction:
        """Return the predicted time of a kernel as a fast function of its parameters.

        Errors are those of `predict`; a property without a weight raises when the function is
        called with parameters at which it is not zero.
        """
        self.check_counting_rules()
        vector = self.count(kernel)
        if self.definition.reads_code:
            raise PredictionError(
                f"the {self.model} model reads compiled code, and a cost function has formulas"
                " only: predict(...) at the sizes of interest, or compile weights of a model that"
                f" reads none, such as load_weights({self.device.slug!r}, model='structural')"
            )
        there = transaction_roots(vector)
        if without := [n for n in self.definition.named_transactions if n not in there]:
            raise PredictionError(
                f"the {self.model} model names {', '.join(without)}, which is found at single sizes"
                " and has no formula, and a cost function has formulas only: predict(...) at the"
                " sizes of interest, or compile weights of a model that does not name it"
            )
        return CostFunction(
            kernel=vector.kernel,
            device=self.device.slug,
            vector=vector,
            function=self.function,
            weights_s=np.array(self.unknowns, np.float64),
            lacking=lacking_cost(self.function, self.ranges, vector),
            incomplete_ok=incomplete_ok,
            correction=self.correction,
            shortest_s=self.shortest_launch_s,
        )

    def _check_guessed(self, kernel: str, charge: Charge) -> None:
        """Refuse a time of which much is shared among weights that were never told apart."""
        groups = broken_groups(self.indistinguishable, charge.changes)
        names = {name for group in groups for name in group.features}
        sizes = {name: np.abs(np.asarray(part)) for name, part in charge.parts.items()}
        guessed = sum((part for n, part in sizes.items() if n in names), start=np.zeros(()))
        whole = sum(sizes.values(), start=np.zeros(()))
        if np.any(guessed > MOST_GUESSED * whole):
            problem = describe_guess(groups, charge.changes)
            raise PredictionError(
                f"kernel {kernel!r}: {problem}; {REMEDIES['indistinguishable']}, or ask for the"
                f" guess ({option('incomplete_ok', 'True')})"
            )

    def count(self, kernel: object) -> PropertyVector:
        """Return the vector of a kernel, counted under the view of the weights."""
        vector = vector_of(
            kernel,
            view=self.view,
            transactions=self.definition.named_transactions,
            caches=self.counted_caches,
        )
        if self.view == "source":
            vector = vector.emitted()
        if vector.view == self.view:
            if self.view != "structure":
                return vector
            self._check_caches(vector)
            return vector.mapped(self.definition.count_model_inputs)
        raise MismatchError(
            f"kernel '{vector.kernel}' was counted in the {vector.view} view, and the weights for"
            f" {self.device.slug} were fitted to the {self.view} view: count it with"
            f" count_kernel(..., view={self.view!r}), or fit weights to vectors of the other view"
        )

    def _check_caches(self, vector: PropertyVector) -> None:
        """Raise `MismatchError` if a vector was counted for other caches than those fitted."""
        wanted, caches = self.counted_caches, vector.caches
        if caches is None or wanted.counts_alike(caches):
            if caches is None or not self.definition.reads_code or wanted.code == caches.code:
                return
            expected, there = wanted.code.text, caches.code.text
        else:
            expected, there = wanted.text, caches.text
        raise MismatchError(
            f"kernel '{vector.kernel}' was counted for caches of {there}, and the {self.model}"
            f" weights for {self.device.slug} are for {expected}: predict the kernel itself, or"
            " count it with count_kernel(..., view='structure', caches=weights.counted_caches);"
            " counts of measurements are made anew by countperf.api.evaluation.recount"
        )

    def _check_what_has_no_formula(self, vector: PropertyVector) -> None:
        if lacking := [n for n in self.definition.named_transactions if not vector.knows(n)]:
            raise PredictionError(
                f"the {self.model} model names {', '.join(lacking)}, which counts of kernel"
                f" {vector.kernel!r} do not say: pass the kernel itself"
            )
        if self.definition.reads_code and not vector.knows("code"):
            raise PredictionError(
                f"the {self.model} model reads compiled code, and there is none with the counts of"
                f" kernel {vector.kernel!r}: add it with countperf.with_compiled_code(kernel,"
                f" sizes), or countperf.predict(kernel, sizes, weights={self.device.slug!r})"
            )
