"""Makes sure that there is a working OpenCL device: ``python scripts/ensure_device.py``.

A device that works already wins; else, as root on Debian and its kin, the package
``pocl-opencl-icd``; else the extra ``countperf[intel]``, into this environment.
Each step is followed by a try in a new process, which sees new drivers. Only the standard library
is imported here, so that a half-installed environment can run it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

DEBIAN_PACKAGE = "pocl-opencl-icd"
_CLONE = Path(__file__).resolve().parents[1]
_TRY = (
    "from countperf.errors import DeviceError\n"
    "from countperf.devices.discovery import find_device\n"
    "import sys\n"
    "try:\n"
    "    device = find_device()\n"
    "except DeviceError as error:\n"
    "    sys.exit(str(error))\n"
    "sys.stdout.write(f'{device.label} ({device.identity.name})')\n"
)

Say = Callable[[str], None]
Execute = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A working device, or what was tried and what to do."""

    device: str | None
    message: str = ""


def execute(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a program and keep what it says."""
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, env=quiet, errors="replace"
        )
    except OSError as error:
        return subprocess.CompletedProcess(command, 127, "", str(error))


def ensure_device(say: Say, run: Execute = execute) -> Outcome:
    """Find a working device, or install a driver and find one then."""
    outcome = try_once(run)
    if outcome.device is not None or os.environ.get("OCL_ICD_VENDORS"):
        return outcome  # a user who chose the drivers wants these and no others
    tried: list[str] = []
    for what, commands in _remedies():
        say(f"no working OpenCL device yet; installing {what}")
        failure = next((text for text in (_failure(c, run) for c in commands) if text), "")
        outcome = try_once(run)
        if outcome.device is not None:
            return outcome
        tried.append(f"{what}: {failure or outcome.message}")
    return Outcome(device=None, message="; ".join(tried) or outcome.message)


def try_once(run: Execute) -> Outcome:
    """Look for a working device in a new process."""
    result = run((sys.executable, "-P", "-c", _TRY))
    if result.returncode == 0:
        return Outcome(device=result.stdout.strip())
    if result.returncode < 0:
        message = f"trying the devices ended with signal {-result.returncode}: a driver crashed"
        return Outcome(device=None, message=message)
    return Outcome(device=None, message=_last_line(result.stderr))


def _remedies() -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    apt = shutil.which("apt-get")
    if apt and is_debian_root():
        install = (apt, "install", "-y", "--no-install-recommends", DEBIAN_PACKAGE)
        yield f"Debian's {DEBIAN_PACKAGE}", [(apt, "update"), install]
    pip = (sys.executable, "-P", "-m", "pip", "install", "--disable-pip-version-check")
    yield "Intel's runtime, countperf[intel]", [(*pip, "-e", f"{_CLONE}[intel]")]


def is_debian_root() -> bool:
    """Tell whether this is root on Debian or its kin."""
    return Path("/etc/debian_version").exists() and hasattr(os, "geteuid") and os.geteuid() == 0


def _failure(command: Sequence[str], run: Execute) -> str:
    result = run(command)
    if result.returncode == 0:
        return ""
    name = Path(command[0]).name
    return f"{name} failed: {_last_line(result.stderr or result.stdout)}"


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


def main() -> int:
    """Make sure of a device; messages go to standard error."""
    say = partial(print, file=sys.stderr, flush=True)
    outcome = ensure_device(say)
    if outcome.device is None:
        say(f"no working OpenCL device: {outcome.message}")
        say("'countperf doctor' shows what there is; a driver by hand helps as well, see README")
        return 1
    say(f"OpenCL device: {outcome.device}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
