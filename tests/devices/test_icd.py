"""Which drivers the loader is to see."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from countperf.devices import device
from countperf.devices.device import (
    VENDORS_VARIABLE,
    DriverFile,
    advise_drivers,
    find_drivers,
    loader_setting,
)


@pytest.fixture
def system(tmp_path: Path) -> Path:
    folder = tmp_path / "vendors"
    folder.mkdir()
    (folder / "pocl.icd").write_text("libpocl.so.2\n")
    return folder


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    root = tmp_path / "env"
    (root / "lib").mkdir(parents=True)
    return root


def _install_intel(prefix: Path) -> Path:
    library = prefix / "lib" / "libintelocl.so"
    library.touch()
    folder = prefix / "etc" / "OpenCL" / "vendors"
    folder.mkdir(parents=True)
    # as the wheel has it: a path of the machine on which it was made
    (folder / "intel-cpu.icd").write_text("/opt/anaconda1/lib/libintelocl.so")
    return library


def _find(
    variables: dict[str, str], prefix: Path, system: Path
) -> tuple[tuple[DriverFile, ...], bool]:
    with pytest.MonkeyPatch.context() as patch:
        for name in (VENDORS_VARIABLE, "OPENCL_VENDOR_PATH"):
            patch.delenv(name, raising=False)
        for name, value in variables.items():
            patch.setenv(name, value)
        patch.setattr(sys, "prefix", str(prefix))
        patch.setattr(device, "SYSTEM_FOLDER", str(system))
        return find_drivers()


def _libraries(
    variables: dict[str, str], prefix: Path, system: Path, *, needs_folder: bool = False
) -> list[str]:
    files, takes_folder = _find(variables, prefix, system)
    assert takes_folder == needs_folder
    return [file.library for file in files if not file.problem]


def test_drivers_of_the_environment_stand_beside_those_of_the_system(
    system: Path, prefix: Path
) -> None:
    # without any, the loader is left alone
    assert _libraries({}, prefix, system) == ["libpocl.so.2"]
    # as PyPI has Intel's
    library = str(_install_intel(prefix))
    assert _libraries({}, prefix, system, needs_folder=True) == ["libpocl.so.2", library]
    assert _libraries({}, prefix, system / "absent", needs_folder=True) == [library]
    # a dead entry of the system does not hide it, one that lives does
    (system / "intel.icd").write_text("/gone/libintelocl.so\n")
    assert library in _libraries({}, prefix, system, needs_folder=True)
    of_system = system.parent / "libintelocl.so"
    of_system.touch()
    (system / "intel.icd").write_text(f"{of_system}\n")
    assert sorted(_libraries({}, prefix, system)) == sorted(["libpocl.so.2", str(of_system)])


def test_other_drivers_of_the_environment_are_seen_the_systems_folder_can_be_moved_or_replaced(
    system: Path, prefix: Path
) -> None:
    moved = {"OPENCL_VENDOR_PATH": str(system)}
    assert _libraries(moved, prefix, system / "absent") == ["libpocl.so.2"]
    _install_intel(prefix).unlink()
    (prefix / "etc/OpenCL/vendors/pocl.icd").write_text("libpocl-conda.so\n")
    libraries = _libraries({}, prefix, system, needs_folder=True)
    assert libraries == ["libpocl.so.2", "libpocl-conda.so"]
    own = system.parent / "own"
    own.mkdir()
    (own / "mine.icd").write_text("libmine.so\n")
    assert _libraries({VENDORS_VARIABLE: str(own)}, prefix, system) == ["libmine.so"]


def test_a_wrong_setting_is_explained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VENDORS_VARIABLE, str(tmp_path / "absent"))
    problem, advice = advise_drivers()
    assert f"{VENDORS_VARIABLE}={tmp_path}" in problem
    assert f"unset {VENDORS_VARIABLE}" in advice


def test_the_loader_gets_one_private_folder_and_the_variable_is_put_back(
    system: Path, prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VENDORS_VARIABLE, raising=False)
    library = _install_intel(prefix)
    files, _ = _find({}, prefix, system)
    with loader_setting(files):
        folder = Path(os.environ[VENDORS_VARIABLE])
        libraries = [path.read_text() for path in sorted(folder.glob("*.icd"))]
        mode = stat.S_IMODE(folder.stat().st_mode)
    assert libraries == ["libpocl.so.2\n", f"{library}\n"]
    assert mode == 0o700
    assert not folder.exists()
    assert VENDORS_VARIABLE not in os.environ
