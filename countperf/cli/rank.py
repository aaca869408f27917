"""``countperf rank``."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from countperf.cli.common import as_dict, show
from countperf.documents import check_writable, write_atomically
from countperf.report.rows import plain
from countperf.report.tuning import point as point_row
from countperf.report.tuning import ranking as ranking_printed
from countperf.workflow.prediction import Target
from countperf.workflow.tuning import rank

if TYPE_CHECKING:
    from countperf.models.weights import WeightSet


def asked_weights(options: argparse.Namespace) -> WeightSet | str | None:
    """Return the weights that predict variants, or their name."""
    if options.model is None:
        return options.weights
    return Target(weights=options.weights, device=options.device, model=options.model).loaded()


def run(options: argparse.Namespace) -> None:
    """Predict all points and print the best."""
    check_writable(options.output)  # before the work, not after it
    lines: list[str] = []
    ranking = rank(
        options.space,
        as_dict(options.parameters),
        weights=asked_weights(options),
        device=options.device,
        force=options.force,
        incomplete_ok=options.incomplete,
        points=options.points,
        workers=options.workers,
        longest_s=options.longest,
        on_point=None
        if options.output is None
        else lambda point: lines.append(json.dumps(plain(point_row(point))) + "\n"),
    )
    if options.output is not None:
        write_atomically(options.output, "".join(lines))
    ranking.check_predicted()
    show(options, ranking_printed(ranking, written_to=options.output))
