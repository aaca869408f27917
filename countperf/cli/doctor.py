"""Commands on what there is: ``doctor`` (devices), ``weights`` (fits)."""

from __future__ import annotations

import argparse

from countperf.api.fits import available_weights
from countperf.cli.common import print_json, show, show_all
from countperf.devices.discovery import doctor
from countperf.errors import DeviceError, ParameterError
from countperf.models.library import find_fit, load_weights, remove_own_fit
from countperf.text import Printed


def run_doctor(options: argparse.Namespace) -> None:
    """Try every device and print what was found."""
    report = doctor()
    show(options, report.lay_out())
    if not report.is_healthy:
        raise DeviceError("no OpenCL device works; the advice above says what to do")


def run_weights(options: argparse.Namespace) -> None:
    """List the fitted weights that there are, show those of a fit, or remove a fit."""
    if (options.action is None) != (options.fit is None):
        message = f"weights {options.action} takes the name of a fit (countperf weights lists them)"
        raise ParameterError(message, parameter="fit")
    if options.action == "show":
        fit = find_fit(options.fit)
        names = [*fit.models] if fit is not None and options.model is None else [options.model]
        weights = [load_weights(options.fit, model=model) for model in names]
        show_all(options, [each.lay_out() for each in weights], "models")
    elif options.action == "remove":
        removed = remove_own_fit(options.fit)
        show(options, Printed(head=[f"{removed.name} is removed: {removed.folder}"]))
    elif options.json:
        print_json(available_weights().lay_out().object()["fits"])
    else:
        show(options, available_weights().lay_out())
