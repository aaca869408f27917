"""OpenCL drivers that the loader sees.

The loader inside the pyopencl wheel (ocl-icd) reads its drivers' names from ``.icd`` files in one
folder: ``OCL_ICD_VENDORS``, else ``OPENCL_VENDOR_PATH``, else ``/etc/OpenCL/vendors``; lists of
folders are not understood. It never looks into the Python environment, and the ``.icd`` file of the
wheel ``intel-opencl-rt`` holds a path of the machine that made it. So where the environment holds
drivers of its own, we write one folder with the system's files and right ones for these.

The variable is read once, at the first question for platforms, and a user's own setting wins.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

VENDORS_VARIABLE = "OCL_ICD_VENDORS"
_SYSTEM_VARIABLE = "OPENCL_VENDOR_PATH"
_SYSTEM_FOLDER = Path("/etc/OpenCL/vendors")
INTEL_LIBRARY = "libintelocl.so"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFile:
    """An ``.icd`` file."""

    name: str  # of the file
    library: str  # driver library it names: a path, or a name for the dynamic loader
    origin: str  # folder or package it comes from
    problem: str = field(init=False, default="")  # with it, as far as can be seen from outside

    def __post_init__(self) -> None:
        if "/" in self.library and not Path(self.library).is_file():
            object.__setattr__(self, "problem", f"{self.library} is not there")


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverSearch:
    """Drivers that the loader finds, and where."""

    files: tuple[DriverFile, ...]  # the drivers
    needs_folder: bool = False  # whether the drivers have to be gathered in a folder of our own
    problem: str = ""  # what is wrong with the user's setting, and how to mend it
    advice: str = ""


def find_drivers(
    environment: Mapping[str, str] | None = None,
    prefix: Path | str | None = None,
    *,
    system_folder: Path = _SYSTEM_FOLDER,
) -> DriverSearch:
    """Find out which drivers the loader is to see; changes nothing."""
    variables = os.environ if environment is None else environment
    root = Path(sys.prefix if prefix is None else prefix)
    system = Path(variables.get(_SYSTEM_VARIABLE) or system_folder)
    setting = variables.get(VENDORS_VARIABLE)
    if setting:
        return _search_setting(setting, system)
    of_system = _read_folder(system)
    known = {Path(file.library).name for file in of_system if not file.problem}
    own = tuple(file for file in _find_own(root) if Path(file.library).name not in known)
    return DriverSearch(files=(*of_system, *own), needs_folder=bool(own))


@contextmanager
def loader_setting(search: DriverSearch) -> Generator[None]:
    """Point the loader to the drivers while it asks for platforms for the first time.

    The variable is put back afterwards, so that child processes make up their own minds.
    """
    if not search.needs_folder:
        yield
        return
    before = os.environ.get(VENDORS_VARIABLE)
    with tempfile.TemporaryDirectory(prefix="countperf-opencl-") as folder:
        for number, file in enumerate(search.files):
            # the loader takes files in their alphabetical order; keep ours after the system's
            target = Path(folder) / f"{number:02d}-{file.name}"
            target.write_text(file.library + "\n", encoding="utf-8")
        os.environ[VENDORS_VARIABLE] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ[VENDORS_VARIABLE]
            else:
                os.environ[VENDORS_VARIABLE] = before


def _find_own(prefix: Path) -> Iterator[DriverFile]:
    intel = prefix / "lib" / INTEL_LIBRARY
    if intel.is_file():
        yield DriverFile(name="countperf-intel.icd", library=str(intel), origin="intel-opencl-rt")
    for file in _read_folder(prefix / "etc" / "OpenCL" / "vendors"):
        if not file.problem and Path(file.library).name != INTEL_LIBRARY:
            yield file


def _search_setting(setting: str, system: Path) -> DriverSearch:
    advice = (
        f"unset {VENDORS_VARIABLE}, and countperf finds the drivers of the system and of the Python"
        f" environment itself; or set it to a folder with .icd files such as {system}"
    )
    path = Path(setting)
    if path.is_dir():
        files = _read_folder(path)
        problem = ""
        if not files:
            problem = f"{VENDORS_VARIABLE}={setting} is a folder without .icd files"
        elif all(file.problem for file in files):
            problem = f"{VENDORS_VARIABLE}={setting}: {files[0].problem}"
        return DriverSearch(files=files, problem=problem, advice=advice if problem else "")
    for file in (path, *(() if "/" in setting else (system / setting,))):
        if setting.endswith(".icd") and file.is_file():
            return DriverSearch(files=_read_files([file]))
    if path.is_file() or ("/" not in setting and ".so" in setting):
        library = DriverFile(name="", library=setting, origin=VENDORS_VARIABLE)
        return DriverSearch(files=(library,))
    kind = "a list, which the loader does not understand" if ":" in setting else "not there"
    problem = f"{VENDORS_VARIABLE}={setting} is {kind}"
    return DriverSearch(files=(), problem=problem, advice=advice)


def _read_folder(folder: Path) -> tuple[DriverFile, ...]:
    try:
        return _read_files(sorted(folder.glob("*.icd")))
    except OSError:  # a folder that cannot be read has nothing for the loader either
        return ()


def _read_files(paths: list[Path]) -> tuple[DriverFile, ...]:
    texts = ((path, path.read_text(encoding="utf-8", errors="replace")) for path in paths)
    return tuple(
        DriverFile(name=path.name, library=text.split("\n")[0].strip(), origin=str(path.parent))
        for path, text in texts
        if text.strip()
    )


INSTALL_ADVICE = (
    "install an OpenCL driver: on Debian or Ubuntu 'apt-get install pocl-opencl-icd' (as root),"
    " or in any Python environment on an x86-64 processor 'pip install countperf[intel]'"
)
