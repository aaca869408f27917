"""Builds kernels in a process of its own, and keeps the object files that come of it.

PoCL compiles for the shape of the group, and at the first launch; it reads the name of its cache
once in a process; and a kernel that fails may end the process. So this module is run as a program,
with a fresh cache and arrays full of zeros, and launches the first group alone, or as few groups as
PoCL makes the same code for. Intel's runtime hands out the object within the program's binary.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyopencl as cl
from loopy.diagnostic import LoopyError

from countperf.errors import CountperfError, DeviceError
from countperf.harness.binding import bind_arguments
from countperf.harness.devices import discover
from countperf.harness.opencl import Session, build_kernel

if TYPE_CHECKING:
    import pyopencl as cl

POCL = "Portable Computing Language"
INTEL = "Intel(R) OpenCL"
"""Platforms whose code can be read."""

UNITS = "units.pickle"
"""Label of the device, and a list of pairs of translation unit and parameters."""
OUTCOMES = "outcomes.jsonl"
"""For each unit a line: the objects that were compiled for it, or what went wrong."""
CACHE = "cache"
_ELF = b"\x7fELF"
_WIDE_GRID = 65536
"""Work items along an axis: PoCL makes other code for grids that are narrower along every axis."""


class _Apart(Session):
    """A session in which no two units share what was compiled."""

    folder: Path
    number = 0
    program: cl.Program

    def build(
        self, source: str, options: Sequence[str] = (), *, cache_folder: Path | None = None
    ) -> cl.Program:
        """Build with an option that no other unit has."""
        apart = (*options, f"-DCOUNTPERF_UNIT={self.number}")
        program = super().build(
            source, apart, cache_folder=cache_folder or self.folder / "binaries"
        )
        self.program = program
        return program


def main(folder: Path) -> None:
    """Build and launch all units that are described in a folder."""
    label, units = pickle.loads((folder / UNITS).read_bytes())
    device = next(each for each in discover().devices if each.label == label)
    session = _Apart.open(device)
    session.folder = folder
    seen: set[Path] = set()
    with (folder / OUTCOMES).open("w", encoding="utf-8") as outcomes:
        for number, (unit, parameters) in enumerate(units):
            session.number = number
            problem = ""
            try:
                if device.identity.platform == POCL:
                    _launch(session, unit, parameters)
                else:
                    build_kernel(session, unit)
                    path = folder / CACHE / f"{number}.o"
                    path.write_bytes(_object_of(session.program))
            except (CountperfError, LoopyError, cl.Error) as error:
                problem = str(error)
            compiled = {*(folder / CACHE).rglob("*.so"), *(folder / CACHE).glob("*.o")} - seen
            seen |= compiled
            objects = sorted(str(path) for path in compiled)
            outcomes.write(json.dumps({"objects": objects, "problem": problem}) + "\n")
            outcomes.flush()


def _object_of(program: cl.Program) -> bytes:
    """Return the object within a binary of Intel's runtime: an ELF file in a section of another."""
    binaries = cast("list[bytes]", program.get_info(cl.program_info.BINARIES))
    binary = binaries[0]
    start = binary.find(_ELF, len(_ELF))
    if start < 0:
        raise DeviceError("the runtime's binary holds no machine code: Intel's of 2026 does")
    return binary[start:]


def fewest_groups(groups: tuple[int, ...], group_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the groups of the smallest launch for which PoCL makes the same code.

    One group, but along an axis so long that PoCL takes the grid for a wide one, as many as make it
    wide (PoCL 3.1, ``pocl_cmd_max_grid_dim_width``).
    """
    shape = [*group_shape, *[1] * (len(groups) - len(group_shape))]
    extents = [n * items for n, items in zip(groups, shape, strict=False)]
    longest = max(range(len(extents)), key=extents.__getitem__)
    fewest = [min(n, 1) for n in groups]
    if extents[longest] >= _WIDE_GRID - 1:
        fewest[longest] = min(groups[longest], -(-_WIDE_GRID // shape[longest]))
    return tuple(fewest)


def _launch(session: Session, unit: Any, parameters: Mapping[str, int]) -> None:
    kernel = build_kernel(session, unit, choose_groups=fewest_groups)
    given = dict.fromkeys(set(kernel.scalars) - kernel.optional, 1) | dict(parameters)
    bound = bind_arguments(session, kernel, given)
    kernel.launch(bound.arguments)
    session.finish()


if __name__ == "__main__":
    place = Path(sys.argv[1])
    os.environ["POCL_CACHE_DIR"] = str(place / CACHE)
    main(place)
