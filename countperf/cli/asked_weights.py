"""The weights that options name."""

from __future__ import annotations

import argparse

from countperf.models.weights import WeightSet
from countperf.workflow.prediction import weights_for


def asked_weights(options: argparse.Namespace, device: str | None) -> WeightSet | str | None:
    """Return the weights that ``--weights`` and ``--model`` name together."""
    if options.model is None:
        return options.weights
    return weights_for(options.weights, device, model=options.model)
