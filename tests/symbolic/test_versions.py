"""Wrong versions of islpy and Loopy are refused with what to install."""

from __future__ import annotations

import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from countperf.errors import CountperfError, IncompatibleVersionError
from countperf.symbolic import RANGES, check_versions

RIGHT = {"islpy": "2026.1", "loopy": "2025.2", "pymbolic": "2025.1"}


@pytest.mark.parametrize(
    ("package", "version"),
    [
        *(("islpy", version) for version in ("2026.2", "2026.2.1", "2025.2.4")),
        *(("loopy", "2026.1rc1"), ("pymbolic", "2024.2.2")),
    ],
)
def test_other_versions_are_refused_with_what_to_install(
    package: str, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = {**RIGHT, package: version}.__getitem__
    with pytest.raises(IncompatibleVersionError) as refused:
        check_versions(installed)
    monkeypatch.setenv("COUNTPERF_ANY_VERSION", "1")
    check_versions(installed)
    lowest, too_new = RANGES[package]
    assert f"pip install '{package}>={lowest},<{too_new}'" in str(refused.value)
    assert (refused.value.package, refused.value.actual) == (package, version)
    assert isinstance(refused.value, CountperfError)
    assert isinstance(refused.value, ImportError)


@pytest.mark.parametrize("version", ["2025.2.5.post1", "2026.1.4"])
def test_right_versions_are_taken(version: str) -> None:
    check_versions({**RIGHT, "islpy": version}.__getitem__)


def test_missing_packages_are_refused_with_what_to_install() -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    with pytest.raises(IncompatibleVersionError, match=r"islpy, which is not installed; install"):
        check_versions(missing)


def test_a_newer_islpy_is_taken_beside_a_loopy_of_named_sets() -> None:
    newer = {**RIGHT, "islpy": "2026.2.2"}.__getitem__
    check_versions(newer, lambda _: ["islpy>=2025.2.5", "namedisl>=2026.1.1"])
    with pytest.raises(IncompatibleVersionError):
        check_versions(newer, lambda _: ["islpy>=2025.2.5"])


def test_ranges_are_those_of_the_package() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    for package, (lowest, too_new) in RANGES.items():
        assert f"{package}>={lowest},<{too_new}" in project["project"]["dependencies"]
