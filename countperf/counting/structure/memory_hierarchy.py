"""The memory hierarchy of a device: sizes, ways and lines of its caches, and address translation.

Hierarchies are documents in ``hierarchies`` beside this module, one per processor, each number with
its source; `read_system` makes one of what the operating system says. Derived features of models
have those of the device; reuse classes of counts and misses of compiled code have the
`CountedCaches` that a kernel is counted for, and weights predict no vector of others.
"""

from __future__ import annotations

import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from countperf.documents import Document, Part
from countperf.errors import DeviceParameterError, DocumentError
from countperf.store import read_file_text

_FOLDER = Path(__file__).parent / "hierarchies"
_SYSTEM = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_HOLDING_DATA = ("Data", "Unified")

ASSUMED = "amd-zen4"
"""Hierarchy of models that do not say theirs, and of devices of which none is known."""

UNKNOWN = "unknown"
"""Name of the hierarchy of a device of which none is known: with the numbers of `ASSUMED`."""

LINE_BYTES = 64  # size of the lines that counts are of, byte


class CacheSize(Part):
    """Size of a cache by which counts are sorted."""

    size_bytes: int = Field(gt=0)  # how much it holds, byte
    ways: int = Field(gt=0)  # lines of each set

    @property
    def lines(self) -> int:
        """Number of lines of 64 bytes."""
        return self.size_bytes // LINE_BYTES

    @property
    def sets(self) -> int:
        """Number of sets of such lines."""
        return self.lines // self.ways

    @property
    def set_stride_bytes(self) -> int:
        """Distance of addresses that share a set where sets follow from low bits, byte."""
        return self.size_bytes // self.ways

    @property
    def text(self) -> str:
        """The numbers in words."""
        return f"{self.size_bytes // 1024} KiB of {self.ways} ways"


class CountedCaches(Part):
    """Caches by which accesses that come back to a line are sorted when a kernel is counted."""

    # the nearest cache, and the one behind it
    first: CacheSize
    second: CacheSize
    code: CacheSize  # the nearest one, by which misses and spills of compiled code are found

    @property
    def text(self) -> str:
        """The numbers in words, without those for compiled code."""
        return f"{self.first.text} and {self.second.text}"

    def counts_alike(self, other: CountedCaches) -> bool:
        """Tell whether kernels have the same counts for other caches, but those of their code."""
        return (self.first, self.second) == (other.first, other.second)


class Cache(CacheSize):
    """One cache that holds data."""

    line_bytes: int = Field(default=LINE_BYTES, gt=0)  # size of a line, byte
    source: str = Field(min_length=1)  # where the numbers are from

    @model_validator(mode="after")
    def _has_whole_sets(self) -> Self:
        if self.size_bytes % (self.ways * self.line_bytes):
            raise ValueError(
                f"{self.size_bytes} bytes are no whole number of sets of {self.ways} lines of"
                f" {self.line_bytes} bytes"
            )
        return self


class MemoryHierarchy(Document):
    """Caches from the nearest to the farthest, and how far address translation reaches."""

    format: Literal["countperf-memory-hierarchy"] = "countperf-memory-hierarchy"
    version: Literal[1] = 1
    # of the document; ``system`` for one that was read from the operating system
    name: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    # those that hold data, the nearest first, each larger than the one before
    caches: tuple[Cache, ...] = Field(min_length=2)
    # what the entries of the second-level translation buffer map with pages of 4 KiB, byte
    translation_reach_bytes: int = Field(gt=0)
    translation_source: str = Field(min_length=1)  # where that is from

    @model_validator(mode="after")
    def _caches_grow(self) -> Self:
        sizes = [cache.size_bytes for cache in self.caches]
        if sizes != sorted(set(sizes)):
            raise ValueError(f"caches of {sizes} bytes do not grow from nearest to farthest")
        return self

    @property
    def counted(self) -> CountedCaches:
        """The caches by which kernels are counted for a device of this hierarchy."""
        near = [CacheSize(size_bytes=one.size_bytes, ways=one.ways) for one in self.caches[:2]]
        return CountedCaches(first=near[0], second=near[1], code=near[0])


def available_hierarchies() -> tuple[str, ...]:
    """Return the names of the documents that come along, sorted."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


@lru_cache
def load_hierarchy(name: str) -> MemoryHierarchy:
    """Read a memory hierarchy that comes along."""
    path = _FOLDER / f"{name}.toml"
    if name not in available_hierarchies():
        there = ", ".join(available_hierarchies())
        message = f"there is no memory hierarchy {name!r}; take one of {there}"
        raise DeviceParameterError(message, field="memory hierarchy")
    return MemoryHierarchy.from_object(tomllib.loads(read_file_text(path)), path=path)


DEFAULT_CACHES = load_hierarchy("amd-zen5").counted.model_copy(
    update={"code": load_hierarchy("amd-zen4").counted.first}
)
"""Caches by which kernels are counted where no device is named, and of documents that state none:
those of AMD Zen 5, and for compiled code that of AMD Zen 4."""


def read_system(folder: Path = _SYSTEM) -> MemoryHierarchy | None:
    """Return what Linux reports of its first processor, with the reach of `ASSUMED`, or None."""
    caches: list[Cache] = []
    try:
        for index in sorted(folder.glob("index*")):
            if (index / "type").read_text().strip() in _HOLDING_DATA:
                size, ways, line = (
                    (index / name).read_text().strip()
                    for name in ("size", "ways_of_associativity", "coherency_line_size")
                )
                unit = _UNITS.get(size[-1:])
                size_bytes = int(size[:-1]) * unit if unit else int(size)
                sizes = {"size_bytes": size_bytes, "ways": int(ways), "line_bytes": int(line)}
                caches.append(Cache(**sizes, source=str(index)))
        assumed = load_hierarchy(ASSUMED)
        return MemoryHierarchy(
            name="system",
            caches=tuple(sorted(caches, key=lambda cache: cache.size_bytes)),
            translation_reach_bytes=assumed.translation_reach_bytes,
            translation_source=f"not reported by Linux; that of {assumed.name} is assumed",
        )
    except (OSError, ValueError, DocumentError):
        return None  # virtual machines may report none, or numbers that make no cache
