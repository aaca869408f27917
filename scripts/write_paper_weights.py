"""Write the weights that Stevens & Klöckner (2016) printed as weights that load.

``python scripts/write_paper_weights.py`` writes ``fits/amd-r9-fury-stevens2016`` from the paper's
Table 2, the only one with weights; for its NVIDIA GPUs the paper prints times alone (Table 1).
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from countperf import __version__
from countperf.counting.taxonomy import COUNTING_RULES_VERSION, property_unit
from countperf.devices.parameters import load_device
from countperf.measuring.tables import identity_elsewhere
from countperf.models.function import Weight
from countperf.models.shipped import COST, LINEAR
from countperf.models.weights import WeightSet

ROOT = Path(__file__).resolve().parent.parent

PROPERTIES = {
    "add/sub f32": "flop.add.f32",
    "mul f32": "flop.mul.f32",
    "pow f32": "flop.pow.f32",
    "rsqrt f32": "flop.special.f32",  # models charge all special functions of a type the same
    "local load f32": "lmem.load.32",
    "global load f32 stride 1": "gmem.load.32.stride1",
    "global load f32 stride 2/2": "gmem.load.32.2of2",
    "global load f32 stride 1/3": "gmem.load.32.1of3",
    "global load f32 stride 3/3": "gmem.load.32.3of3",
    "global load f32 stride 4/>4 (uncoalesced 100%)": "gmem.load.32.4ofn",
    "global store f32 stride 1": "gmem.store.32.stride1",
    "global store f32 stride 4/>4 (uncoalesced 100%)": "gmem.store.32.4ofn",
    "min(stride-1 loads; stride-1 stores) f32": "gmem.min.32.stride1",
    "barrier": "barrier.local",
    "work group": "groups",
    "constant": "launches",
}
"""This project's properties by the paper's names."""

REMARK = (
    "printed in a paper for counts by its own rules: a prefetch is the box of the loops in its"
    " subscript, three images are four, powers are as written. For the counts of this library they"
    " give 4.19, 4.52, 0.53 and 2.85 ms where its Table 1 prints 5.81, 3.44, 0.49 and 3.69"
    " (docs/evidence/papers.md)"
)
"""For whoever predicts with them."""


def paper_weights() -> WeightSet:
    """Return the weights of the Radeon R9 Fury."""
    device = load_device("amd-r9-fury")
    assert device.num_compute_units is not None
    table = ROOT / "tests" / "golden" / "stevens2016_table2_r9fury.csv"
    lines = [line for line in table.read_text().splitlines() if not line.startswith("#")]
    return WeightSet(
        model=LINEAR.name,
        definition=LINEAR,
        device=identity_elsewhere(device.slug, device.name, device.num_compute_units),
        counting_rules=COUNTING_RULES_VERSION,
        weights=tuple(
            Weight(
                feature=(name := PROPERTIES[row["property"]]),
                value_s=float(row["weight_s"]),
                standard_error_s=None,
                largest=sys.float_info.max,  # the paper does not say what was measured
                unit=property_unit(name),
                term=COST,
            )
            for row in csv.DictReader(lines)
        ),
        remark=REMARK,
        written_by=__version__,
    )


def main() -> None:
    """Write them."""
    weights = paper_weights()
    folder = ROOT / "fits" / "amd-r9-fury-stevens2016"
    weights.write_file(folder / "linear.json")
    weights.device.write_file(folder / "identity.json")


if __name__ == "__main__":
    main()
