"""Making sure of a device: what is tried, and in which order."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

import ensure_device as ensure


class _Machine:
    """Programs that succeed or fail by a script, and a device once some of them ran."""

    def __init__(self, works_after: str | None, failing: Sequence[str] = ()) -> None:
        self.commands: list[str] = []
        self._works_after = works_after
        self._failing = failing

    def run(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        text = " ".join(command)
        if command[:3] == (sys.executable, "-P", "-c"):
            if self._works_after and any(self._works_after in done for done in self.commands):
                return subprocess.CompletedProcess(command, 0, "pocl:0 (cpu)", "")
            return subprocess.CompletedProcess(command, 1, "", "no OpenCL device found\n")
        self.commands.append(text)
        failed = any(word in text for word in self._failing)
        said = "E: network is down" if failed else ""
        return subprocess.CompletedProcess(command, int(failed), "", said)


@pytest.fixture(autouse=True)
def _debian_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OCL_ICD_VENDORS", raising=False)
    monkeypatch.setattr(ensure, "is_debian_root", lambda: True)
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/apt-get")


def _ensured(machine: _Machine) -> tuple[ensure.Outcome, list[str]]:
    said: list[str] = []
    return ensure.ensure_device(said.append, machine.run), said


def test_root_on_debian_installs_the_package() -> None:
    machine = _Machine(works_after="pocl-opencl-icd")
    outcome, said = _ensured(machine)
    assert outcome.device == "pocl:0 (cpu)"
    update, install = machine.commands
    assert (update.split()[-1], install.split()[-1]) == ("update", "pocl-opencl-icd")
    assert said == ["no working OpenCL device yet; installing Debian's pocl-opencl-icd"]


@pytest.mark.parametrize(("failing", "is_root"), [("apt-get", True), ("-", True), ("-", False)])
def test_where_debian_does_not_help_the_extra_is_installed(
    failing: str, is_root: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ensure, "is_debian_root", lambda: is_root)
    machine = _Machine(works_after="[intel]", failing=[failing] if failing != "-" else [])
    assert _ensured(machine)[0].device == "pocl:0 (cpu)"
    assert machine.commands[-1].startswith(f"{sys.executable} -P -m pip install")
    assert (len(machine.commands) > 1) is is_root


def test_when_nothing_helps_each_step_is_explained() -> None:
    outcome, _ = _ensured(_Machine(works_after=None, failing=["apt-get"]))
    assert outcome.device is None
    failed = "pocl-opencl-icd: apt-get failed: E: network is down"
    assert all(s in outcome.message for s in (failed, "countperf[intel]", "no OpenCL device found"))


def test_a_users_own_choice_of_drivers_is_not_repaired_by_installing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OCL_ICD_VENDORS", "/nonexistent")
    machine = _Machine(works_after=None)
    assert _ensured(machine)[0].message == "no OpenCL device found"
    assert machine.commands == []


def test_a_driver_that_crashes_is_named_as_such() -> None:
    outcome = ensure.try_once(lambda command: subprocess.CompletedProcess(command, -11, "", ""))
    assert outcome.device is None
    assert "signal 11" in outcome.message


@pytest.mark.parametrize(
    ("device", "said", "status"),
    [("pocl:0 (cpu)", "OpenCL device: pocl:0 (cpu)", 0), (None, "all failed", 1)],
)
def test_exit_status_and_messages(
    device: Any, said: str, status: int, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    outcome = ensure.Outcome(device=device, message="" if device else "all failed")
    monkeypatch.setattr(ensure, "ensure_device", lambda _: outcome)
    assert ensure.main() == status
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err
