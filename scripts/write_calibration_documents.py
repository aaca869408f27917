"""The documents that calibrations ship with, from the committed measurements of CPUs.

Writes ``known-devices.json`` (weights of known devices, and errors of calibrations that leave each
processor out, from the results of `simulate_calibration`) and ``calibration-kernels.json`` (the
kernels to measure, in their order) into ``countperf/models/fitting``.

    python scripts/write_calibration_documents.py --cache runs/calibration --results results.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection
from functools import partial
from pathlib import Path

from calibration_data import KINDS, Data, choose, known_model, slugs_of
from countperf.counting.taxonomy import COUNTING_RULES_VERSION
from countperf.models.fitting.prior import FOLDER, KernelChoice, KnownDevices, KnownModel, ModelKind
from simulate_calibration import expected_errors

_BUDGET_S = 660.0


def _of_kernels(model: KnownModel, wanted: Collection[str]) -> KnownModel:
    """Return a known model with the residuals of some kernels only."""
    places = [place for place, name in enumerate(model.kernels) if name in wanted]
    devices = tuple(
        each.model_copy(
            update={"residuals": tuple(each.residuals[i] for i in places if each.residuals)}
        )
        for each in model.devices
    )
    kernels = tuple(model.kernels[place] for place in places)
    return model.model_copy(update={"devices": devices, "kernels": kernels})


def main() -> None:
    """Write both documents."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, required=True, help="folder for designs")
    parser.add_argument("--results", type=Path, required=True, help="of simulate_calibration")
    options = parser.parse_args()
    data = Data(options.cache)
    found = json.loads(options.results.read_text())
    models: dict[ModelKind, KnownModel] = {
        kind: data.kept(f"known.{kind}", partial(known_model, data, kind, slugs_of(kind, data)))
        for kind in KINDS
    }
    chosen = data.kept("choice", partial(choose, data, models, budget_s=_BUDGET_S))
    choice = KernelChoice(kernels=tuple(chosen))
    (FOLDER / "calibration-kernels.json").write_text(
        json.dumps(choice.to_object(), indent=None) + "\n"
    )
    measured = {kernel.name for kernel in chosen}
    known = KnownDevices(
        counting_rules=COUNTING_RULES_VERSION,
        own_caches=True,
        models=tuple(
            _of_kernels(model, measured).model_copy(update={"errors": expected_errors(found, kind)})
            for kind, model in models.items()
        ),
    )
    (FOLDER / "known-devices.json").write_text(json.dumps(known.to_object(), indent=None) + "\n")


if __name__ == "__main__":
    main()
