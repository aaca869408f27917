"""Characterization of a device by microbenchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from countperf.documents import check_writable
from countperf.harness.characterization.bench import FULL, QUICK
from countperf.harness.characterization.suite import characterize as run
from countperf.harness.devices import find_device
from countperf.harness.progress import silent
from countperf.harness.registry import open_session

if TYPE_CHECKING:
    from countperf.harness.characterization.document import Characterization
    from countperf.harness.progress import Progress


def characterize(
    *,
    store: Path | str,
    device: str | None = None,
    parameters: Path | str | None = None,
    quick: bool = False,
    max_seconds: float | None = None,
    progress: Progress | None = None,
) -> Characterization:
    """Find out by microbenchmarks what a device can do; resumes where an earlier call stopped."""
    check_writable(store, parameters)
    found = run(
        open_session(find_device(device)),
        effort=QUICK if quick else FULL,
        store=store,
        max_seconds=max_seconds,
        progress=progress or silent,
    )
    if parameters is not None:
        found.parameters.write_file(parameters, rescue=True)
    return found
