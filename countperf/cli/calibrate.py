"""``countperf calibrate``."""

from __future__ import annotations

import argparse

from countperf.cli.common import show
from countperf.report.weights import calibration
from countperf.workflow.calibrating import calibrate


def run(options: argparse.Namespace) -> None:
    """Calibrate, and say what was reached."""
    result = calibrate(
        device=options.device,
        minutes=options.minutes,
        name=options.name,
        store=options.store,
        busy=options.busy,
    )
    show(options, calibration(result))
