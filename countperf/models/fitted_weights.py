"""The time that fitted weights give for counts, and what they can be used for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from countperf.display import shortened
from countperf.errors import (
    CacheMismatchError,
    DeviceMismatchError,
    ModelNotApplicableError,
    PredictionError,
    ViewMismatchError,
)
from countperf.features import vector_of
from countperf.hardware.identity import DeviceIdentity
from countperf.models.charge import Charge
from countperf.models.conformal import difficulty, overshoot, relative_standard_error, time_shares
from countperf.models.correction import CORRECTION, profile
from countperf.models.function import ModelInputs, model_inputs
from countperf.models.loans import Lenders, Loan, lent, loans_verdict
from countperf.models.records import Support
from countperf.models.units import unit_of
from countperf.models.unmeasured import ExercisingKernels, Unmeasured
from countperf.models.validity import (
    EXTRAPOLATION_FACTOR,
    EXTRAPOLATION_WIDENING,
    Level,
    broken_groups,
    device_verdict,
    extrapolation_verdict,
    features_outside,
    incomplete_verdict,
    indistinguishable_verdict,
    interval,
    local_interval,
    log_quantile,
    sign_verdict,
)
from countperf.models.weights_document import WeightsDocument
from countperf.predictions import ParameterValue, Prediction, Quantity, Verdict, largest_first
from countperf.properties.taxonomy import COUNTING_RULES_VERSION

if TYPE_CHECKING:
    from countperf.properties.vector import PropertyVector


MOST_GUESSED = 0.5
"""Share of a time that may rest on weights which the fit cannot tell apart; more is refused."""


class FittedWeights(WeightsDocument):
    """Weights of a fitted model on a device; `WeightSet` documents the fields."""

    def __str__(self) -> str:
        """Return the costs: a line for each weight, 25 at most."""
        rows = [
            f"  {key}: {weight.value_s:.3g} s per {unit_of(weight, self.definition)}"
            for key, weight in self.by_feature.items()
        ]
        head = f"{self.model} weights of {self.device.slug} ({self.device.name})"
        return shortened("\n".join([head, *rows]))

    @cached_property
    def _covariance(self) -> NDArray[np.float64] | None:
        return None if self.covariance_s2 is None else np.array(self.covariance_s2, np.float64)

    def predict_counts(
        self,
        kernel: object,
        parameters: Mapping[str, ParameterValue],
        *,
        incomplete_ok: bool = False,
        level: Level = 0.95,
        device: DeviceIdentity | None = None,
        force: bool = False,
        exercising_kernels: ExercisingKernels | None = None,
    ) -> Prediction:
        """Predict the time of one launch from the counts of a kernel.

        Parameters
        ----------
        kernel : PropertyVector, Mapping from str to int or str, or loopy.TranslationUnit
            The kernel's property vector, with what its compiled code executes if the model reads
            that; counts by property name written by hand; or a kernel, which gets counted.
        parameters : Mapping from str to int or ndarray
            Values of the size parameters; arrays broadcast.
        incomplete_ok : bool, optional
            Leave out what has no weight, and mark the prediction incomplete.
        level : {0.95, 0.9}, optional
            In which share of cases the interval is to hold the time.
        device : DeviceIdentity, optional
            The device to predict for; by default that of the weights.
        force : bool, optional
            Use the weights even for a device that they do not match.
        exercising_kernels : callable, optional
            From a property to the measurement kernels that exercise it, for messages; by default
            what the document has.

        Returns
        -------
        Prediction

        Raises
        ------
        UnmeasuredPropertyError
            The kernel has properties that the fit has no weight for.
        DeviceMismatchError
            The weights belong to another device, and `force` was not given.
        PredictionError
            The weights were fitted under other counting rules; the model reads compiled code, and
            the kernel is no vector that has it; `ViewMismatchError` if the kernel's vector is of
            another view than the weights, `CacheMismatchError` if it was counted for other caches;
            more than half of the time would be a guess, for the measurements of the fit cannot tell
            apart what the kernel has in another proportion.
        ParameterError
            A parameter is missing, unknown, or outside the kernel's assumptions; the model has no
            finite time there; or there is no interval of this level.
        CountingError
            The kernel cannot be counted exactly.
        """
        self.check_counting_rules()
        self.check_device(device, force=force)
        vector = self.counted(kernel)
        self._check_what_has_no_formula(vector)
        counts = vector.evaluate(parameters)
        loans = self.loans(counts)
        inputs = self.inputs(counts)
        missing = self.missing(inputs)
        if missing and not incomplete_ok:
            raise self.unmeasured(vector.kernel, missing, exercising_kernels).error()
        charge = self.charge(inputs)
        time_s, parts, corrected = self.corrected(charge)
        outside = (
            *features_outside(self.weights, charge.values, parts),
            *self._variables_outside(inputs),
        )
        complete = incomplete_verdict(missing)
        told_apart = indistinguishable_verdict(self.indistinguishable, charge.changes)
        if not told_apart.passed and not incomplete_ok:
            self._check_guessed(vector.kernel, charge, told_apart)
        interval_s = None
        if complete.passed and told_apart.passed:
            interval_s = self._interval(time_s, charge, level, outside=bool(outside))
            if interval_s is not None and loans:
                interval_s = self._with_loans(interval_s, charge, counts)
        verdicts = (
            complete,
            loans_verdict(loans),
            told_apart,
            extrapolation_verdict(outside, has_interval=interval_s is not None),
            sign_verdict(time_s),
            device_verdict(self.device, device),
            *(() if corrected is None else (corrected,)),
            *((Verdict(name="weights", passed=False, message=self.remark),) if self.remark else ()),
        )
        return Prediction(
            kernel=vector.kernel,
            device=self.device.slug if device is None else device.slug,
            model=self.model,
            parameters=dict(parameters),
            time_s=time_s,
            interval_s=interval_s,
            interval_level=level,
            breakdown=largest_first(parts),
            missing=missing,
            ignored=inputs.ignored,
            verdicts=verdicts,
        )

    def _check_guessed(self, kernel: str, charge: Charge, verdict: Verdict) -> None:
        """Refuse a time of which much is shared among weights that were never told apart."""
        names = {
            n for g in broken_groups(self.indistinguishable, charge.changes) for n in g.features
        }
        sizes = {name: np.abs(np.asarray(part)) for name, part in charge.parts.items()}
        guessed = sum((part for n, part in sizes.items() if n in names), start=np.zeros(()))
        whole = sum(sizes.values(), start=np.zeros(()))
        if np.any(guessed > MOST_GUESSED * whole):
            raise PredictionError(
                f"kernel {kernel!r}: {verdict.message}; {verdict.remedy}, or ask for the guess"
                " (incomplete_ok=True)"
            )

    @cached_property
    def lenders(self) -> Lenders:
        """The loans that these weights offer."""
        values = {(weight.term, weight.feature): weight.value_s for weight in self.weights}
        return Lenders(values, self.definition.term_features)

    def loans(self, counts: Mapping[str, Any]) -> tuple[Loan, ...]:
        """Return which properties without a weight are charged at the cost of others.

        Parameters
        ----------
        counts : Mapping from str to a number, an array or a count
            By property name.
        """
        return self.lenders.loans(self.definition.made_of(counts))

    def inputs(self, counts: Mapping[str, Any], *, off: int = 0) -> ModelInputs:
        """Sort a kernel's counts into the terms and names of the model, with loans.

        Parameters
        ----------
        counts : Mapping from str to int, Fraction or ndarray
            Property values, as `PropertyVector.evaluate` returns them.
        off : {0, 1, -1}
            1 to charge what is borrowed at the most that it may cost, -1 at the least.
        """
        seen = self.definition.made_of(counts)
        return model_inputs(self.definition, lent(seen, self.lenders.loans(seen), off=off))

    def _with_loans(
        self,
        interval_s: tuple[Quantity, Quantity],
        charge: Charge,
        counts: Mapping[str, Any],
    ) -> tuple[Quantity, Quantity]:
        """Widen an interval by what loans may be off."""
        least, most = (self.charge(self.inputs(counts, off=off)).time_s for off in (-1, 1))
        low, high = interval_s
        time_s = charge.time_s
        return (
            _quantity(low * np.minimum(np.minimum(least, most) / time_s, 1.0)),
            _quantity(high * np.maximum(np.maximum(least, most) / time_s, 1.0)),
        )

    def missing(self, inputs: ModelInputs) -> tuple[str, ...]:
        """Return the features and names that the kernel has and the fit had not."""
        known = set(self.function.columns)
        names = self.definition.base_properties
        return (
            *dict.fromkeys(
                feature for term, feature in inputs.values if (term, feature) not in known
            ),
            *(
                names.get(name, name)
                for name, value in inputs.variables.items()
                if name not in self.ranges and np.any(np.asarray(value) != 0)
            ),
            *inputs.unknown,
        )

    def _arguments(self, inputs: ModelInputs) -> tuple[NDArray[np.float64], dict[str, Quantity]]:
        """Return what the model's function takes: feature values, and scales of terms."""
        values = [inputs.values.get(column, 0.0) for column in self.function.columns]
        shape = np.broadcast_shapes(
            *(np.shape(value) for value in (*values, *inputs.variables.values()))
        )
        full = values
        if shape:
            full = [np.broadcast_to(np.asarray(value, np.float64), shape) for value in values]
        return np.array(full, np.float64).reshape(len(full), *shape), inputs.variables

    def charge(self, inputs: ModelInputs) -> Charge:
        """Charge what the model sees of a kernel; what has no weight is left out.

        Raises
        ------
        ModelNotApplicableError
            The model has no finite time there.
        """
        values, variables = self._arguments(inputs)
        scaled = self.function.scaled(values, variables)
        times = np.tensordot(np.asarray(self.unknowns, np.float64), scaled, 1)
        if not np.all(np.isfinite(times)):
            raise ModelNotApplicableError(
                f"the {self.model} model gives no finite time here: a derived feature divides by"
                " zero, or takes the logarithm of what is not positive"
            )
        keys = self.function.keys
        return Charge(
            time_s=_plain(times),
            values={key: _plain(row) for key, row in zip(keys, values, strict=True)},
            changes={key: _plain(row) for key, row in zip(keys, scaled, strict=True)},
            parts=self.function.breakdown(scaled, self.unknowns),
            scales=variables,
            features=values,
            scaled=scaled,
        )

    def corrected(self, charge: Charge) -> tuple[Quantity, dict[str, Quantity], Verdict | None]:
        """Return the time that is predicted, s, its parts, s, and what it is corrected by.

        Parameters
        ----------
        charge : Charge
            What the weights make of a kernel.
        """
        if self.correction is None:
            return charge.time_s, charge.parts, None
        told = profile(self.function, charge.features, charge.scaled, self.unknowns)
        log_factor = self.correction.corrector.log_factor(*told)
        time_s = charge.time_s * np.exp(log_factor)
        time_s = time_s if np.ndim(time_s) else float(time_s)
        parts = {**charge.parts, CORRECTION: time_s - charge.time_s}
        return time_s, parts, self.correction.verdict(log_factor, told)

    def _variables_outside(self, inputs: ModelInputs) -> tuple[str, ...]:
        return tuple(
            name
            for name, value in inputs.variables.items()
            if name in self.ranges
            and np.any(np.asarray(value) > EXTRAPOLATION_FACTOR * self.ranges[name].largest)
        )

    def _interval(
        self, time_s: Quantity, charge: Charge, level: float, *, outside: bool
    ) -> tuple[Quantity, Quantity] | None:
        if self.quality is None:
            return None
        calibration = self.quality.calibration
        if calibration is not None and calibration.local is not None:
            hard = self._difficulty(calibration.local.support, charge)
            return local_interval(time_s, hard, calibration.local, level)
        return interval(
            time_s,
            tuple(charge.scaled),
            self._covariance,
            log_quantile(self.quality, level),
            level=level,
            factor=EXTRAPOLATION_WIDENING if outside else 1.0,
        )

    def _difficulty(self, support: Support, charge: Charge) -> Quantity:
        return difficulty(
            support,
            time_shares(charge.scaled, self.unknowns),
            charge.features,
            relative_standard_error(charge.time_s, charge.scaled, self._covariance),
            overshoot(charge.scales, {name: found.largest for name, found in self.ranges.items()}),
        )

    def counted(self, kernel: object) -> PropertyVector:
        """Return the vector of a kernel, counted under the view of the weights.

        Raises
        ------
        ViewMismatchError, CacheMismatchError
            It is a vector, of the other view, or counted for other caches.
        CountingError
            The kernel cannot be counted exactly.
        """
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
            return vector.mapped(self.definition.made_of)
        raise ViewMismatchError(
            f"kernel '{vector.kernel}' was counted in the {vector.view} view, and the weights for"
            f" {self.device.slug} were fitted to the {self.view} view: count it with"
            f" count_kernel(..., view={self.view!r}), or fit weights to vectors of the other view",
            expected=self.view,
            found=vector.view,
        )

    def _check_caches(self, vector: PropertyVector) -> None:
        """Raise `CacheMismatchError` if a vector was counted for other caches than those fitted."""
        wanted, found = self.counted_caches, vector.caches
        if found is None or wanted.counts_alike(found):
            if found is None or not self.definition.reads_code or wanted.code == found.code:
                return
            expected, there = wanted.code.text, found.code.text
        else:
            expected, there = wanted.text, found.text
        raise CacheMismatchError(
            f"kernel '{vector.kernel}' was counted for caches of {there}, and the {self.model}"
            f" weights for {self.device.slug} are for {expected}: predict the kernel itself, or"
            " count it with count_kernel(..., view='structure', caches=weights.counted_caches);"
            " counts of measurements are made anew by countperf.workflow.measured.recount",
            expected=expected,
            found=there,
        )

    def _check_what_has_no_formula(self, vector: PropertyVector) -> None:
        if lacking := [n for n in self.definition.named_transactions if not vector.knows(n)]:
            raise PredictionError(
                f"the {self.model} model names {', '.join(lacking)}, which counts of kernel"
                f" {vector.kernel!r} do not say: pass the kernel itself, or add them with"
                f" countperf.with_transactions(kernel, {', '.join(map(repr, lacking))})"
            )
        if self.definition.reads_code and not vector.knows("code"):
            raise PredictionError(
                f"the {self.model} model reads compiled code, and there is none with the counts of"
                f" kernel {vector.kernel!r}: add it with countperf.with_compiled_code(kernel,"
                f" device), or predict by load_weights({self.device.slug!r})"
            )

    def check_counting_rules(self) -> None:
        """Raise `PredictionError` if kernels are now counted by other rules than in the fit."""
        if self.counting_rules != COUNTING_RULES_VERSION:
            message = (
                f"the weights for {self.device.slug} were fitted under counting rules"
                f" {self.counting_rules}, and kernels are now counted under"
                f" {COUNTING_RULES_VERSION}: refit from measurements"
            )
            raise PredictionError(message)

    def check_device(self, device: DeviceIdentity | None, *, force: bool = False) -> None:
        """Raise `DeviceMismatchError` if the weights belong to another device."""
        if device is None or force or self.device.matches(device):
            return
        raise DeviceMismatchError(
            f"the weights are for {self.device.slug} ({self.device.name}), not for {device.slug}"
            f" ({device.name}), which differ in {self.device.differences_text(device)}: fit weights"
            " for it, or force the use of these (force=True)",
            expected=self.device.slug,
            found=device.slug,
        )

    def unmeasured(
        self, kernel: str, missing: Sequence[str], lookup: ExercisingKernels | None
    ) -> Unmeasured:
        """Return the complaint about features without a weight, with kernels that exercise them."""
        return Unmeasured.find(
            missing,
            kernel=kernel,
            device=self.device.slug,
            stored=self.exercising_kernels,
            lookup=lookup,
        )


def _plain(row: NDArray[np.float64]) -> Quantity:
    return row if row.ndim else float(row)


def _quantity(value: Any) -> Quantity:
    return value if np.ndim(value) else float(value)
