"""A file of kernels of the user's, with functions that make their arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

from countperf import errors
from countperf.devices.discovery import discover
from countperf.machine_code.tools import find_analyzer, find_objdump
from countperf.models.library import fits_for

KERNELS = """
import loopy as lp
import numpy as np

axpy = lp.split_iname(lp.make_kernel(
    "{ [i] : 0 <= i < n }", "z[i] = 2*x[i] + y[i]",
    [lp.GlobalArg("x,y,z", np.float32, shape="n"), lp.ValueArg("n", np.int32)],
    assumptions="n >= 1", lang_version=(2018, 2), name="axpy"),
    "i", 64, outer_tag="g.0", inner_tag="l.0")

rows = lp.split_iname(lp.make_kernel(
    ["{ [i] : 0 <= i < m }", "{ [j] : 0 <= j < length }"],
    \"\"\"
    for i
        <> length = starts[i + 1] - starts[i]
        z[i] = sum(j, x[starts[i] + j])
    end
    \"\"\",
    [lp.GlobalArg("starts", np.int32, shape="m + 1"), lp.GlobalArg("x", np.float32, shape="k"),
     lp.GlobalArg("z", np.float32, shape="m"), lp.ValueArg("m,k", np.int32)],
    name="rows", assumptions="m >= 1", lang_version=(2018, 2)),
    "i", 128, outer_tag="g.0", inner_tag="l.0")

def inputs(rng, sizes):
    print("making inputs")
    return {name: np.full(sizes["n"], 2, np.float32) for name in ("x", "y")}

def exits(rng, sizes):
    raise SystemExit(3)

def nothing(rng, sizes):
    return 5

def endless(rng, sizes):
    import os, time
    with open("number", "w") as file:
        file.write(str(os.getpid()))
    time.sleep(1000)
"""


@pytest.fixture
def kernel_file(tmp_path: Path) -> Path:
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS)
    return path


@pytest.fixture
def slug_here() -> str:
    """Return the name of a fit that ships for a device of this machine, whose code can be read."""
    if find_objdump() is None or find_analyzer() is None:
        pytest.skip("objdump or llvm-mca is not here")
    try:
        present = discover().devices
    except errors.DeviceError as error:
        pytest.skip(str(error))
    fits = [fit for device in present for fit in fits_for(device.identity) if not fit.is_own]
    names = [fit.name for fit in fits if "compiled" in fit.models]
    return names[0] if names else pytest.skip("no fit that reads code ships for a device here")
