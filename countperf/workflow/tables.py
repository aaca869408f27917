"""Times that were measured elsewhere, as measurements."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from countperf.errors import DeviceError, TableError
from countperf.hardware.identity import DeviceIdentity
from countperf.hardware.library import load_device
from countperf.measurements import MeasurementSet
from countperf.measurements.recorded import read_times
from countperf.measurements.tables import identity_elsewhere
from countperf.workflow.kernels import table_kernels


def measurements_of_table(
    table: Path | str,
    *,
    kernels: str | None = None,
    device: str,
    source: str = "",
    ignore: Sequence[str] = (),
) -> MeasurementSet:
    """Read times that were measured elsewhere from a file."""
    place, name = kernels or "", ""
    if ":" in place:
        place, _, name = place.rpartition(":")
    if device.endswith(".json"):
        identity = DeviceIdentity.read_file(device)
    else:
        known = load_device(device)
        if known.num_compute_units is None:
            raise DeviceError(
                f"the description of {device} has no number of compute units, which tells devices "
                "apart; give an identity (.json)",
                device=device,
            )
        identity = identity_elsewhere(known.slug, known.name, known.num_compute_units)
    frame = read_times(table)
    if name and "kernel" not in frame.columns:
        frame = frame.assign(kernel=name)
    elif name:
        frame = frame.loc[frame["kernel"] == name].reset_index(drop=True)
        if frame.empty:
            message = f"{table}: no row of the column 'kernel' is {name!r}; leave :{name} out"
            raise TableError(message, column="kernel")
    named = frame["kernel"].tolist() if "kernel" in frame.columns else []
    names = [str(each) for each in dict.fromkeys(named)]
    return MeasurementSet.from_table(
        frame,
        table_kernels(names, place or None),
        device=identity,
        source=source or Path(table).name,
        ignore=ignore,
    )
