"""``countperf application``."""

from __future__ import annotations

import argparse
from pathlib import Path

from countperf.cli.common import print_json
from countperf.cli.mechanistic import check_figures
from countperf.errors import ParameterError
from countperf.report.drawing import save_figure
from countperf.report.mechanistic import schedule_object, schedule_text
from countperf.report.timeline import schedule_figure
from countperf.workflow.applications import measure_application, predict_application
from countperf.workflow.running_applications import run_application


def run(options: argparse.Namespace) -> None:
    """Print the predicted schedule, the one by measured steps, and the measured one."""
    if not options.device_documents and options.device is None:
        message = (
            "name a described device (--on nvidia-gtx-970), a device at hand (--device), or both"
        )
        raise ParameterError(message, parameter="device")
    check_figures(options.figure)
    path = Path(options.application)
    found = []
    if options.device_documents:
        given = {"registers_per_work_item": options.registers} if options.registers else {}
        found.append(
            predict_application(
                path, options.device_documents, model=options.model, profile_options=given
            )
        )
    if options.device is not None:
        found.append(measure_application(path, options.device, longest_s=options.longest))
        found.append(run_application(path, options.device, longest_s=options.longest))
    if options.json:
        print_json({"schedules": [schedule_object(each) for each in found]})
    else:
        print("\n\n".join(map(schedule_text, found)))
    if options.figure:
        save_figure(schedule_figure(*found), options.figure)
