"""``countperf application``."""

from __future__ import annotations

import argparse
from pathlib import Path

from countperf.cli.common import show
from countperf.errors import ParameterError
from countperf.report.mechanistic import schedule
from countperf.workflow.mechanistic import predict_application


def run(options: argparse.Namespace) -> None:
    """Print the predicted schedule."""
    if not options.device_document:
        message = "name a described device: --on nvidia-gtx-970"
        raise ParameterError(message, parameter="device")
    given = {"registers_per_work_item": options.registers} if options.registers else {}
    found = predict_application(
        Path(options.application),
        options.device_document,
        model=options.model,
        profile_options=given,
    )
    show(options, schedule(found))
