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
"""Lowest version of islpy that is too new for Loopy's development version."""

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
        if package == "islpy" and _has_named_sets(requires("loopy")):
            too_new = _ISLPY_BESIDE_NAMED_SETS
        mend = f"install it with: pip install '{package}>={lowest},<{too_new}'"
        try:
            installed = version(package)
        except metadata.PackageNotFoundError as error:
            raise IncompatibleVersionError(
                f"countperf needs {package}, which is not installed; {mend}", package=package
            ) from error
        if not _numbers(lowest) <= _numbers(installed) < _numbers(too_new):
            raise IncompatibleVersionError(
                f"{package} {installed} is installed, with which countperf does not count; {mend}",
                package=package,
                actual=installed,
            )


def _has_named_sets(requirements: list[str] | None) -> bool:
    """Return whether Loopy is its development version, which has sets of namedisl."""
    return any(requirement.startswith("namedisl") for requirement in requirements or ())


def _numbers(version: str) -> tuple[int, ...]:
    """Return the release of a version as numbers, without what follows it."""
    release = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, release[0].split("."))) if release else ()


check_versions()
