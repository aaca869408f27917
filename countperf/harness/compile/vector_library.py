"""Files of the vector library that Intel's runtime links kernels against."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from countperf.harness.icd import find_drivers

_DRIVER = "libintelocl.so"


@lru_cache(maxsize=16)
def find_library(name: str) -> Path | None:
    """Return the library of this name beside Intel's OpenCL driver, or None if there is none."""
    for driver in find_drivers().files:
        path = Path(driver.library)
        if path.name == _DRIVER and (path.parent / name).is_file():
            return path.parent / name
    return None
