"""``countperf application``."""

from __future__ import annotations

import argparse
from pathlib import Path

from countperf.cli.common import show_all
from countperf.errors import ParameterError
from countperf.report.mechanistic import schedule
from countperf.workflow.applications import measure_application, predict_application


def run(options: argparse.Namespace) -> None:
    """Print the predicted schedule, and the one by measured steps."""
    if not options.device_document and options.device is None:
        message = (
            "name a described device (--on nvidia-gtx-970), a device at hand (--device), or both"
        )
        raise ParameterError(message, parameter="device")
    path = Path(options.application)
    found = []
    if options.device_document:
        given = {"registers_per_work_item": options.registers} if options.registers else {}
        found.append(
            predict_application(
                path, options.device_document, model=options.model, profile_options=given
            )
        )
    if options.device is not None:
        found.append(measure_application(path, options.device, longest_s=options.longest))
    show_all(options, [schedule(each) for each in found], "schedules")
