"""LLVM's optimizations between Oclgrind's compiler and its simulator.

Oclgrind compiles a kernel without optimization and dumps the LLVM code; ``opt`` of the same LLVM
optimizes it; Oclgrind simulates the result. Before ``opt``, four facts are written into the code
that an implementation of OpenCL knows and Oclgrind's declarations do not say:

- functions may be optimized and inlined (``optnone`` and ``noinline`` stem from the dump's -O0);
- a built-in that only computes (``readnone``) does not wait for other items: it is not
  ``convergent``;
- a barrier returns, which makes what follows it certain to be executed;
- ``a + -1*b`` is a subtraction: contraction makes it a ``fmuladd`` by -1, which is not counted as a
  multiplication by anyone, and is written as ``fsub``.

Vectorization and unrolling are off: they change how often an instruction is executed, not what is
computed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

OPT = shutil.which("opt-14") or shutil.which("opt")
DUMPS = Path("/tmp")  # wherever temporary files go: Oclgrind asks nobody
SIMULATOR = shutil.which("oclgrind-kernel")

O3 = (
    "-passes=default<O3>",
    "-disable-loop-unrolling",
    "-vectorize-loops=false",
    "-vectorize-slp=false",
)
O3_WITH_UNROLLING = ("-passes=default<O3>", "-vectorize-loops=false", "-vectorize-slp=false")

_BARRIER = re.compile(r"@_Z7barrierj\(.*\) (#\d+)")
_ATTRIBUTES = re.compile(r"attributes (#\d+) = \{ (.*) \}")
_SUBTRACTION = re.compile(
    r"call (float|double) @llvm\.fmuladd\.f\d+"
    r"\((?:float|double) -1\.000000e\+00, (?:float|double) ([^,]+), (?:float|double) ([^,]+)\)"
)


def is_available() -> bool:
    """Return if there is an ``opt`` that reads and writes what Oclgrind's LLVM does."""
    if OPT is None or SIMULATOR is None:
        return False
    version = subprocess.run([OPT, "--version"], capture_output=True, text=True, check=False)
    match = re.search(r"LLVM version (\d+)", version.stdout)
    return match is not None and match[1] == "14"


def optimize(folder: Path, passes: Sequence[str]) -> None:
    """Replace the program of ``kernel.sim`` in a folder, ``kernel.cl``, by its optimized code."""
    assert OPT is not None
    assert SIMULATOR is not None
    subprocess.run(
        [SIMULATOR, "--dump-spir", "--build-options", "-cl-opt-disable -I.", "kernel.sim"],
        cwd=folder,
        capture_output=True,
        check=True,
    )
    (folder / "kernel.ll").write_text(_completed(_dumped((folder / "kernel.cl").read_text())))
    subprocess.run(
        [OPT, *passes, "kernel.ll", "-o", "kernel.bc"], cwd=folder, capture_output=True, check=True
    )
    simulation = (folder / "kernel.sim").read_text().split("\n", 1)
    (folder / "kernel.sim").write_text(f"kernel.bc\n{simulation[1]}")


def _dumped(source: str) -> str:
    """Return the code that was dumped for a source; dumps are named by a hash of it."""
    for path in DUMPS.glob("oclgrind_*.cl"):
        if path.read_text() == source:
            code = path.with_suffix(".ll").read_text()
            for suffix in (".cl", ".ll", ".bc"):
                path.with_suffix(suffix).unlink(missing_ok=True)
            return code
    raise AssertionError(f"Oclgrind dumped no code into {DUMPS}")


def _completed(code: str) -> str:
    """Write into LLVM code what an implementation of OpenCL knows."""
    barriers = set(_BARRIER.findall(code))

    def attributes(match: re.Match[str]) -> str:
        names = match[2].replace("optnone ", "").replace("noinline ", "")
        if "readnone" in names:
            names = names.replace("convergent ", "")
        if match[1] in barriers:
            names = f"nounwind willreturn {names}"
        return f"attributes {match[1]} = {{ {names} }}"

    return _SUBTRACTION.sub(r"fsub \1 \3, \2", _ATTRIBUTES.sub(attributes, code))
