"""The weights that there are on this machine, and which of a fit's models predicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from countperf.devices.device import Device
from countperf.devices.discovery import discover, matching_devices
from countperf.devices.identity import DeviceIdentity
from countperf.devices.parameters import DeviceParameters, available_devices, load_device
from countperf.errors import DocumentError
from countperf.machine_code import tools
from countperf.models.library import AvailableFit, NamedFit, find_fit, fits_for, list_fits, model_in
from countperf.models.shipped import COMPILED
from countperf.models.weights import WeightSet
from countperf.text import Column, Printed, Result, columns_of, extract, format_percent, short_name


class AvailableWeights(tuple[AvailableFit, ...], Result):
    """A table of the fits there are: those that ship first, then the user's own."""

    __slots__ = ()
    __repr__ = Result.__str__

    def lay_out(self) -> Printed:
        """Give a row for each fit; the error is that of the model that predicts here."""
        what = ("name", "device", "models", "model", "date", "held_out_error", "is_here", "problem")
        rows = [{**extract(fit, *what), "is_default": fit.is_default} for fit in self]
        none = "no fitted weights: measure a device and fit it first"
        return Printed(head=[] if rows else [none], rows=rows, columns=_FIT_COLUMNS, name="fits")


def why_no_code(device: Device) -> str:
    """Return why compiled code cannot be read on a device; nothing if it can."""
    from countperf.devices.compile.compiled_kernel import GROUP_STATES

    if device.identity.platform not in GROUP_STATES:
        return f"{device.identity.platform} does not keep its machine code"
    if tools.find_objdump() is None:
        return f"no objdump found: {tools.OBJDUMP_ADVICE}"
    if tools.find_analyzer() is None:
        return f"no llvm-mca found that is new enough: {tools.ANALYZER_ADVICE}"
    return ""


def why_not_compiled(
    fit: NamedFit, device: DeviceIdentity | None = None, *, has_code: bool = False
) -> str:
    """Return why a fit does not predict by compiled code; nothing if it does."""
    identity = fit.identity if COMPILED in fit.models else None
    if identity is None:
        return f"{fit.name} has no weights of the model {COMPILED}"
    if device is not None and not identity.matches(device):
        return f"the device asked for, {device.slug}, is not that of the weights"
    if has_code:
        return ""
    here = matching_devices(identity)
    if not here:
        return f"the device of the weights, {identity.slug}, is not here to compile for"
    return why_no_code(here[0])


def available_weights() -> AvailableWeights:
    """List the fitted weights that there are, those that ship first: a sequence that prints."""
    present = tuple(device.identity for device in discover().devices)
    defaults = {
        fit.name for fit in (next(iter(fits_for(device)), None) for device in present) if fit
    }
    rows = (_row(fit, present) for fit in list_fits().values())
    return AvailableWeights(
        [replace(row, is_default=row.name in defaults) for row in rows if row is not None]
    )


def _row(fit: NamedFit, present: Sequence[DeviceIdentity]) -> AvailableFit | None:
    """Describe a fit by the document that predicts; None if it is gone."""
    row = partial(AvailableFit, name=fit.name, models=tuple(fit.models))
    path = fit.default
    if path is None:
        return None
    try:
        if not why_not_compiled(fit):
            path = fit.path_of(COMPILED)
        weights = WeightSet.read_file(path)
    except DocumentError as error:
        if not path.exists():  # removed in the meantime
            return None
        unknown: dict[str, Any] = {"date": "", "held_out_error": None, "is_here": False}
        device = "" if fit.is_own else fit.folder.name
        model = short_name(model_in(path))
        return row(device=device, model=model, problem=str(error), **unknown)
    return row(
        device=weights.device.slug,
        model=short_name(weights.model),
        date="" if weights.source is None else weights.source.recorded_at[:10],
        held_out_error=None if weights.quality is None else weights.quality.held_out_error,
        is_here=any(weights.device.matches(other) for other in present),
    )


def look_up_device(slug: str, beside: Path | str | None = None) -> DeviceParameters | None:
    """Return what is known of a device, or None."""
    if beside is not None:
        fit = find_fit(str(beside))
        path = Path(beside) if fit is None else fit.folder
        near = (path if path.is_dir() else path.parent) / "parameters.json"
        if near.is_file() and (parameters := DeviceParameters.read_file(near)).slug == slug:
            return parameters
    return load_device(slug) if slug in available_devices() else None


_FIT_COLUMNS = {
    "name": Column("name"),
    **columns_of("device models"),
    "model": Column("predicts here"),
    "date": Column("measured"),
    "held_out_error": Column("error on classes left out", format_percent),
    "is_here": Column("this machine"),
    "is_default": Column("default"),
    "problem": Column(),
}
