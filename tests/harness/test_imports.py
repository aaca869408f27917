"""The harness imports what is heavy, or may be missing, when first needed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_CHECK = """
import sys
__import__(sys.argv[1])
heavy = {"pyopencl", "cupy", "pynvml", "loopy", "islpy", "scipy", "pandas"} & set(sys.modules)
assert not heavy, heavy
"""


@pytest.mark.parametrize(
    "module",
    [
        "countperf.measurements",
        "countperf.harness.devices",
        "countperf.harness.device",
        "countperf.harness.nvcc",
    ],
)
def test_nothing_heavy_is_imported(module: str) -> None:
    subprocess.run([sys.executable, "-c", _CHECK, module], check=True)


@pytest.mark.parametrize("module", ["countperf.harness.campaign", "countperf.harness.sizes"])
def test_campaigns_import_loopy_and_no_more(module: str) -> None:
    check = _CHECK.replace('"pyopencl", ', "").replace('"loopy", "islpy", ', "")  # Loopy's own

    subprocess.run([sys.executable, "-c", check, module], check=True)


def test_ensuring_a_device_needs_the_standard_library_only() -> None:
    check = _CHECK.replace('"pandas"', '"pandas", "numpy", "pydantic", "platformdirs"')

    scripts = str(Path(__file__).parents[2] / "scripts")
    environment = {**os.environ, "PYTHONPATH": scripts}
    subprocess.run([sys.executable, "-c", check, "ensure_device"], env=environment, check=True)
