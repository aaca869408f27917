"""Advice of messages, followed literally: tables of rows, and how they are read and run.

A row of a table (``*.txt``) is ``!`` what is refused or warned of, ``?`` what is said then (one
fragment a line), and ``>`` what does literally so, once for each alternative; it has to work, and
where it is a comparison to hold. A line is a command (``countperf ...``) or an expression of Python
in the names of `builders`. Before it, ``=`` prepares, and ``@`` marks as pytest does; ``+``
prepares all rows below in the table.
"""

from __future__ import annotations

import contextlib
import io
import shlex
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from countperf.cli import main
from countperf.errors import CountperfError
from tests.shipped import FITS

HERE = Path(__file__).parent
NOT_FOLLOWED: dict[str, tuple[str, ...]] = {
    "installs or updates a driver, toolkit or program": (
        "install an OpenCL driver",
        "install NVIDIA's driver",
        "install it with",
        "name the nvcc of such a toolkit in COUNTPERF_NVCC",
        "reinstall that driver",
        "remove the file",
        "see that its kernel driver is loaded",
        "take nvcc and nvdisasm of one toolkit",
        "update or reinstall the driver of …",
        "upgrade countperf",
    ),
    "frees memory or a disk, or starts a lost device again": (
        "end other programs",
        "free memory on the machine and the device, and try again",
        "make it flatter",
        "see that 'nvidia-smi' shows no error and free memory on …, and that CuPy and NVRTC fit"
        " driver and GPU",
        "start anew",
        "see to it that the file can be used and that its disk has space",
        "start a new process to use the device again",
    ),
    "begins again from a copy of a damaged file": ("make the file anew", "restore it from a copy"),
    "measures for minutes on a device": (
        "End those programs and calibrate again, which goes on from there",
        "give more",
        "measure a device and fit it first",
        "measure and fit a device first",
        "measure and fit anew on this device",
        "measure test kernels or applications",
        "pass …, which uses the others as well and makes intervals wider",
        "pass that document, …",
        "read it first",
        "read it there",
        "time again when the machine is quiet",
        "wait and calibrate again",
    ),
    "is followed in tests/models/test_weights.py": ("fit to either part",),
    "is followed in tests/devices/compile/test_gpu_counts.py": (
        "follow all with …, which takes long",
    ),
    "is followed in tests/api/test_timing.py": ("predict --anchor FILE",),
    "is followed in tests/api/test_workflow.py": ("read it again",),
    "is followed in tests/api/test_recording.py": ("name what predicts, recording(weights=...)",),
    "is followed in tests/tuning/test_ranking.py": (
        "let its functions be functions of a module that they can import, which hold no locks,"
        " files or the like",
    ),
    "needs a kernel that is counted for minutes": ("state more assumptions on the parameters",),
    "is no advice": (
        "Fit of …",
        "Predict the run time of Loopy kernels from exact symbolic counts and weights fitted to a"
        " device.",
        "compute unit",
        "inline __device__",
        "keep=…",
        "raise ValueError",
        "time of one launch, …s",
        "time of the best of the k predicted to be fastest over the fastest",
        "time spent, s",
    ),
}
"""Advice that no test can follow, by what it does."""


@dataclass
class Row:
    """A row of a table; the field of a mark holds its lines."""

    table: str
    marks: list[str] = field(default_factory=list)
    prepared: list[str] = field(default_factory=list)
    refused: str = ""
    said: list[str] = field(default_factory=list)
    advised: list[str] = field(default_factory=list)


def read_rows() -> list[Row]:
    """Return the rows of all tables."""
    rows: list[Row] = []
    for path in sorted(HERE.glob("*.txt")):
        row, shared = Row(path.stem), list[str]()
        for line in path.read_text(encoding="utf-8").splitlines():
            mark, _, text = line.partition(" ")
            if mark in ("=", "@", "!") and row.advised:
                row = Row(path.stem, prepared=[*shared])
            match mark:
                case "+":
                    shared.append(text)
                    row = Row(path.stem, prepared=[*shared])
                case "@":
                    row.marks.append(text)
                case "=":
                    row.prepared.append(text)
                case "!":
                    row.refused = text
                case "?":
                    row.said.append(text)
                case ">":
                    if not row.advised:
                        rows.append(row)
                    row.advised.append(text)
                case _:
                    assert mark in ("", "#"), (path, line)
    return rows


def follow(line: str, names: dict[str, Any]) -> tuple[bool, str]:
    """Run a line; return if it works, and all that it says."""
    line = line.replace("{FITS}", str(FITS))
    out = io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(out),
        warnings.catch_warnings(record=True) as warned,
    ):
        warnings.simplefilter("always")
        try:
            if line.startswith("countperf "):
                works = main(shlex.split(line)[1:]) == 0
            else:
                result = eval(line, names)
                works = result is not False
                out.write(result if isinstance(result, str) else "")
        except (CountperfError, TypeError) as error:
            works = False
            out.write(str(error))
        except SystemExit as error:
            works = not error.code
    said = [out.getvalue(), *(str(each.message) for each in warned)]
    return works, " ".join(" ".join(said).split())
