"""Commands on what there is: ``doctor`` (devices), ``weights`` (fits)."""

from __future__ import annotations

import argparse

from countperf.api.fits import available_weights
from countperf.cli.common import print_json, show
from countperf.devices.discovery import doctor
from countperf.errors import DeviceError


def run_doctor(options: argparse.Namespace) -> None:
    """Try every device and print what was found."""
    report = doctor()
    show(options, report.lay_out())
    if not report.is_healthy:
        raise DeviceError("no OpenCL device works; the advice above says what to do")


def run_weights(options: argparse.Namespace) -> None:
    """List the fitted weights that there are."""
    shown = available_weights().lay_out()
    if options.json:
        print_json(shown.object()["fits"])
    else:
        show(options, shown)
