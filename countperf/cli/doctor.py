"""Commands on what there is: ``doctor`` (devices), ``weights`` (fits)."""

from __future__ import annotations

import argparse

from countperf.api.fits import available_weights
from countperf.cli.common import print_json, show
from countperf.devices.discovery import examine
from countperf.errors import DeviceError
from countperf.report.rows import Printed
from countperf.report.weights import available, doctor_text


def run_doctor(options: argparse.Namespace) -> None:
    """Try every device and print what was found."""
    report = examine()
    said = [
        f"driver {driver.library} (from {driver.origin})"
        + (f": {driver.problem}" if driver.problem else "")
        for driver in report.drivers
    ]
    advice = "; ".join(report.advice)
    said.append(doctor_text(report.devices, default=report.default or "", advice=advice))
    for tool in report.tools:
        state = tool.path or f"not found; {tool.needed_for} needs it: {tool.advice}"
        said.append(f"{'ok' if tool.path else '--'}  {tool.name}: {state}")
    show(options, Printed(head=said, facts=report.to_object()))
    if not report.is_healthy:
        raise DeviceError("no OpenCL device works; the advice above says what to do")


def run_weights(options: argparse.Namespace) -> None:
    """List the fitted weights that there are."""
    fits = available_weights()
    shown = available(fits)
    if options.json:
        print_json(shown.object()["fits"])
    else:
        print(shown.text())
