"""``countperf compare``."""

from __future__ import annotations

import argparse

from countperf.cli.common import show_all
from countperf.documents import check_writable
from countperf.errors import ParameterError
from countperf.measurements import TimingDocument
from countperf.report.accuracy import comparison
from countperf.workflow.comparing import compare, measured_devices


def run(options: argparse.Namespace) -> None:
    """Compare all models and print their errors."""
    places = options.measurements or list(measured_devices())
    if options.kernel and not options.measurements and options.timing:
        places = [TimingDocument.read_file(options.timing).device.slug]
    if not places:
        raise ParameterError(
            "no measurements of any device came with this installation; name a campaign's file,"
            " such as runs/mine.jsonl",
            parameter="measurements",
        )
    if options.output and len(places) != 1:
        raise ParameterError(
            f"--output writes one device's comparison, but {len(places)} were asked for: "
            f"{', '.join(map(str, places))}; name one",
            parameter="output",
        )
    check_writable(options.output)  # before the work, not after it
    names = [name for part in options.model or () for name in part.split(",") if name]
    models = () if "all" in names else tuple(names)
    given = {"registers_per_work_item": options.registers} if options.registers else {}
    found = [
        compare(
            position,
            models=models,
            kernel=options.kernel,
            timing=options.timing,
            profile_options=given,
            levels=tuple(options.level or ("published", "scaled")),
            purposes=tuple(options.purpose or ("test",)),
        )
        for position in places
    ]
    show_all(options, [comparison(each) for each in found], "comparisons")
    if options.output:
        found[0].write_file(options.output)
