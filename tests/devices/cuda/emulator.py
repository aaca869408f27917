"""Runs CUDA C on the host: work items take turns, and writes outside of arrays are seen."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

COMPILER = shutil.which("g++")
_PADDING = 256
_GUARD = 0xFF  # a NaN, in floating point

_HEADER = Path(__file__).with_suffix(".h").read_text(encoding="utf-8")
_KERNEL = re.compile(
    r"(?:__global__\s+void|KERNEL)\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\("
)


class Memory:
    """Host memory with guards at both ends."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.bytes = np.full(size + 2 * _PADDING, _GUARD, np.uint8)

    @property
    def address(self) -> int:
        return self.bytes.ctypes.data + _PADDING

    @property
    def content(self) -> Any:
        return self.bytes[_PADDING : _PADDING + self.size]

    @property
    def is_intact(self) -> bool:
        guards = (self.bytes[:_PADDING], self.bytes[_PADDING + self.size :])
        return all(bool((guard == _GUARD).all()) for guard in guards)


class CompileError(Exception):
    """g++ refuses the code."""


class EmulatedModule:
    """Kernels of one or more sources, compiled for the host."""

    def __init__(self, sources: Mapping[str, str], folder: Path) -> None:
        assert COMPILER is not None
        parts = [_HEADER]
        self._symbols: dict[tuple[str, str], str] = {}
        for number, (name, source) in enumerate(sources.items()):
            text, calls = source, ""
            for kernel in dict.fromkeys(_KERNEL.findall(source)):
                inner = f"k{number}_{kernel}"
                text = re.sub(rf"\b{kernel}\b", inner, text)
                self._symbols[name, kernel] = f"launch_{inner}"
                calls += (
                    f'extern "C" int launch_{inner}(const unsigned *shape, void **arguments)'
                    f" {{ return launch({inner}, shape, arguments); }}\n"
                )
            parts.append(f"namespace n{number} {{\n{text}\n{calls}}}\n#undef bIdx\n#undef tIdx\n")
        path = folder / "kernels.cpp"
        path.write_text("\n".join(parts))
        library = path.with_suffix(".so")
        # no contraction: references are rounded after each operation
        flags = ("-O1", "-w", "-std=c++17", "-fPIC", "-shared", "-ffp-contract=off")
        result = subprocess.run(
            [COMPILER, *flags, str(path), "-o", str(library)],
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode:
            raise CompileError(result.stderr)
        self._library = ctypes.CDLL(str(library))

    def launch(
        self,
        source: str,
        kernel: str,
        grid: Sequence[int],
        group: Sequence[int],
        arguments: Sequence[Any],
    ) -> None:
        shape = [*grid, *[1] * (3 - len(grid)), *group, *[1] * (3 - len(group))]
        values = [np.asarray(argument) for argument in arguments]
        pointers = (ctypes.c_void_p * max(1, len(values)))(*(v.ctypes.data for v in values))
        call = getattr(self._library, self._symbols[source, kernel])
        status = call((ctypes.c_uint * 6)(*map(int, shape)), pointers)
        assert status == 0, f"{source}: not all work items of a group reach a barrier"
