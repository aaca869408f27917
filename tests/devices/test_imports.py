"""Packages of devices and measuring import what is heavy, or may be missing, when first needed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_CHECK = """
import sys
__import__(sys.argv[1])
assert not {*sys.argv[2:]} & {*sys.modules}, {*sys.argv[2:]} & {*sys.modules}
"""
_OPTIONAL = ("cupy", "scipy", "pandas")
_LOOPYS = ("loopy", "islpy", "pyopencl")
_BASIC = ("numpy", "pydantic", "platformdirs")


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("countperf.measuring", (*_OPTIONAL, *_LOOPYS)),
        ("countperf.devices.discovery", (*_OPTIONAL, *_LOOPYS)),
        ("countperf.measuring.campaign", _OPTIONAL),
        ("ensure_device", (*_OPTIONAL, *_LOOPYS, *_BASIC)),
    ],
)
def test_nothing_heavy_is_imported(module: str, absent: tuple[str, ...]) -> None:
    scripts = str(Path(__file__).parents[2] / "scripts")
    environment = {**os.environ, "PYTHONPATH": scripts}
    command = [sys.executable, "-c", _CHECK, module, *absent]
    subprocess.run(command, env=environment, check=True)
