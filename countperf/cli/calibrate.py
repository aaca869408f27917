"""``countperf calibrate``."""

from __future__ import annotations

import argparse

from countperf.cli.common import print_json
from countperf.cli.progress import show_event
from countperf.errors import ParameterError
from countperf.report.calibration import (
    calibration_object,
    calibration_text,
    refreshed_object,
    refreshed_text,
)
from countperf.workflow.calibrating import calibrate
from countperf.workflow.refreshing import refresh


def run(options: argparse.Namespace) -> None:
    """Calibrate or refresh, and say what was reached."""
    if options.refresh is not None:
        if options.serve or options.store is not None:
            message = "--refresh scales stored weights: leave out --for and --store"
            raise ParameterError(message, parameter="refresh")
        refreshed = refresh(
            options.refresh, device=options.device, name=options.name, progress=show_event
        )
        if options.json:
            print_json(refreshed_object(refreshed))
        else:
            print(refreshed_text(refreshed))
        return
    if options.sizes and not options.serve:
        message = "sizes are of the kernels that are to be served: add --for FILE.py:NAME"
        raise ParameterError(message, parameter="sizes")
    result = calibrate(
        device=options.device,
        minutes=options.minutes,
        name=options.name,
        serve=options.serve,
        sizes=dict(options.sizes),
        store=options.store,
        progress=show_event,
    )
    if options.json:
        print_json(calibration_object(result))
    else:
        print(calibration_text(result))
