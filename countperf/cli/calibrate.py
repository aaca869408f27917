"""``countperf calibrate``."""

from __future__ import annotations

import argparse

from countperf.cli.common import as_dict, show
from countperf.cli.progress import show_event
from countperf.errors import ParameterError
from countperf.report.weights import calibration
from countperf.workflow.calibrating import calibrate


def run(options: argparse.Namespace) -> None:
    """Calibrate, and say what was reached."""
    if options.parameters and not options.serve:
        message = "sizes are of the kernels that are to be served: add --for FILE.py:NAME"
        raise ParameterError(message, parameter="sizes")
    result = calibrate(
        device=options.device,
        minutes=options.minutes,
        name=options.name,
        serve=options.serve,
        sizes=as_dict(options.parameters),
        store=options.store,
        busy=options.busy,
        progress=show_event,
    )
    show(options, calibration(result))
