"""Exact symbolic counting of integer points; the only user of islpy.

Versions of islpy and Loopy with which counts are right are checked before anything else.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from importlib import metadata

from countperf.errors import IncompatibleVersionError

RANGES = {
    "islpy": ("2025.2.5", "2026.2"),
    "loopy": ("2025.2", "2025.3"),
    "pymbolic": ("2025.1", "2025.2"),
}
"""Lowest version, and the lowest that is too new, by package; as pyproject.toml states them."""

_ISLPY_BESIDE_NAMED_SETS = "2026.3"
"""Lowest version of islpy that is too new for Loopy's development version, with namedisl."""

_ANY_VERSION = "COUNTPERF_ANY_VERSION"
"""Environment variable: set to try other versions, whose counts nobody vouches for."""


def check_versions(
    version: Callable[[str], str] = metadata.version,
    requires: Callable[[str], list[str] | None] = metadata.requires,
) -> None:
    """Refuse packages of versions with which counting is known to fail, or is not known to work."""
    if os.environ.get(_ANY_VERSION):
        return
    for package, (lowest, too_new) in RANGES.items():
        if package == "islpy" and any(it.startswith("namedisl") for it in requires("loopy") or ()):
            too_new = _ISLPY_BESIDE_NAMED_SETS
        mend = f"install it with: pip install '{package}>={lowest},<{too_new}'"
        try:
            installed = version(package)
        except metadata.PackageNotFoundError as error:
            said = f"countperf needs {package}, which is not installed; {mend}"
            raise IncompatibleVersionError(said, package=package) from error
        if not _numbers(lowest) <= _numbers(installed) < _numbers(too_new):
            said = (
                f"{package} {installed} is installed, with which countperf does not count; {mend}"
            )
            raise IncompatibleVersionError(said, package=package, actual=installed)


def _numbers(version: str) -> tuple[int, ...]:
    """Return the release of a version as numbers, without what follows it."""
    release = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, release[0].split("."))) if release else ()


check_versions()
