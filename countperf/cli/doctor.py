"""Commands on what there is: ``doctor`` (devices), ``weights`` (fits)."""

from __future__ import annotations

import argparse

from countperf.cli.common import print_json
from countperf.errors import DeviceError
from countperf.harness.devices import examine
from countperf.report.weights import available, doctor_text
from countperf.workflow.fits import available_weights


def run_doctor(options: argparse.Namespace) -> None:
    """Try every device and print what was found."""
    report = examine()
    if options.json:
        print_json(report.to_object())
    else:
        for driver in report.drivers:
            print(
                f"driver {driver.library} (from {driver.origin})"
                + (f": {driver.problem}" if driver.problem else "")
            )
        print(
            doctor_text(
                report.devices, default=report.default or "", advice="; ".join(report.advice)
            )
        )
        for tool in report.tools:
            state = tool.path or f"not found; {tool.needed_for} needs it: {tool.advice}"
            print(f"{'ok' if tool.path else '--'}  {tool.name}: {state}")
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
