"""Which drivers the loader is to see."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from countperf.devices.device import VENDORS_VARIABLE, find_drivers, loader_setting


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


def _libraries(
    variables: dict[str, str], prefix: Path, system: Path, *, needs_folder: bool = False
) -> list[str]:
    search = find_drivers(variables, prefix, system_folder=system)
    assert search.needs_folder == needs_folder
    assert not search.problem
    return [file.library for file in search.files if not file.problem]


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


def test_other_drivers_of_the_environment_are_seen(system: Path, prefix: Path) -> None:
    folder = prefix / "etc" / "OpenCL" / "vendors"
    folder.mkdir(parents=True)
    (folder / "pocl.icd").write_text("libpocl-conda.so\n")

    libraries = _libraries({}, prefix, system, needs_folder=True)
    assert libraries == ["libpocl.so.2", "libpocl-conda.so"]


def test_the_systems_folder_can_be_moved_and_a_users_folder_wins(
    system: Path, prefix: Path
) -> None:
    moved = {"OPENCL_VENDOR_PATH": str(system)}
    assert _libraries(moved, prefix, system / "absent") == ["libpocl.so.2"]
    _install_intel(prefix)
    own = system.parent / "own"
    own.mkdir()
    (own / "mine.icd").write_text("libmine.so\n")
    assert _libraries({VENDORS_VARIABLE: str(own)}, prefix, system) == ["libmine.so"]


@pytest.mark.parametrize(
    "setting",
    [
        pytest.param("{tmp}/vendors/pocl.icd", id="a file"),
        pytest.param("pocl.icd", id="a file of the system's folder"),
        pytest.param("libpocl.so.2", id="a library for the dynamic loader"),
    ],
)
def test_a_users_file_wins(system: Path, prefix: Path, tmp_path: Path, setting: str) -> None:
    variables = {VENDORS_VARIABLE: setting.format(tmp=tmp_path)}

    assert _libraries(variables, prefix, system) == ["libpocl.so.2"]


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        pytest.param("{tmp}/absent", "is not there", id="no such folder"),
        pytest.param("{tmp}/absent.icd", "is not there", id="no such file"),
        pytest.param("{tmp}/vendors:{tmp}/env", "is a list", id="a list of folders"),
        pytest.param("{tmp}/env", "without .icd files", id="a folder without drivers"),
        pytest.param("{tmp}/dead", "/gone/libx.so is not there", id="a driver that is gone"),
    ],
)
def test_a_wrong_setting_is_explained(
    system: Path, prefix: Path, tmp_path: Path, setting: str, said: str
) -> None:
    dead = tmp_path / "dead"
    dead.mkdir()
    (dead / "x.icd").write_text("/gone/libx.so")
    variables = {VENDORS_VARIABLE: setting.format(tmp=tmp_path)}

    search = find_drivers(variables, prefix, system_folder=system)

    assert said in search.problem
    assert f"unset {VENDORS_VARIABLE}" in search.advice


def test_the_loader_gets_one_private_folder_and_the_variable_is_put_back(
    system: Path, prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VENDORS_VARIABLE, raising=False)
    library = _install_intel(prefix)
    search = find_drivers({}, prefix, system_folder=system)

    with loader_setting(search):
        folder = Path(os.environ[VENDORS_VARIABLE])
        libraries = [path.read_text() for path in sorted(folder.glob("*.icd"))]
        mode = stat.S_IMODE(folder.stat().st_mode)

    assert libraries == ["libpocl.so.2\n", f"{library}\n"]
    assert mode == 0o700
    assert not folder.exists()
    assert VENDORS_VARIABLE not in os.environ


def test_a_loader_that_is_left_alone_keeps_the_users_variable(
    system: Path, prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VENDORS_VARIABLE, str(system))
    search = find_drivers(None, prefix)

    with loader_setting(search):
        assert os.environ[VENDORS_VARIABLE] == str(system)
