"""Memory hierarchies: documents, the system's report, and what follows from a cache's numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from countperf.counting.execution.reuse import ReuseLimits
from countperf.counting.structure.issue import ExecutionPolicy
from countperf.counting.structure.memory_hierarchy import (
    ASSUMED,
    DEFAULT_CACHES,
    UNKNOWN,
    Cache,
    MemoryHierarchy,
    available_hierarchies,
    load_hierarchy,
    read_system,
)
from countperf.devices.identity import DeviceIdentity, choose_caches, memory_hierarchy_of
from countperf.errors import DeviceParameterError, DocumentError
from countperf.models.fitting.fit_model import memory_verdict
from countperf.models.shipped import make_structural_model
from tests.models.builders import make_device

KIB, MIB = 1 << 10, 1 << 20


def _identity(processor: str) -> DeviceIdentity:
    return make_device(processor=processor, vendor="some", name="some")


@pytest.mark.parametrize("name", available_hierarchies())
def test_every_number_of_a_document_has_a_source(name: str) -> None:
    found = load_hierarchy(name)
    assert found.name == name
    assert found.translation_source
    assert all(cache.source for cache in found.caches)


@pytest.mark.parametrize(
    ("processor", "first", "second", "reach"),
    [
        ("AuthenticAMD family 25 model 1", 32 * KIB, 512 * KIB, 2048 * 4 * KIB),
        ("AuthenticAMD family 25 model 17", 32 * KIB, MIB, 3072 * 4 * KIB),
        ("AuthenticAMD family 26 model 2", 48 * KIB, MIB, 4096 * 4 * KIB),
        ("GenuineIntel family 6 model 167", 48 * KIB, 2 * MIB, 8 * MIB),
    ],
)
def test_shipped_devices_have_the_caches_of_their_processor(
    processor: str, first: int, second: int, reach: int
) -> None:
    found = memory_hierarchy_of(_identity(f"Some ({processor})"))
    assert [cache.size_bytes for cache in found.caches[:2]] == [first, second]
    assert found.translation_reach_bytes == reach


def test_a_device_that_is_not_known_has_the_hierarchy_that_is_assumed() -> None:
    other = _identity("Other (GenuineIntel family 6 model 999)")
    found = memory_hierarchy_of(other)
    assert found.name == UNKNOWN
    assert found.caches == load_hierarchy(ASSUMED).caches
    verdict = memory_verdict(found, found.counted)
    assert not verdict.passed
    assert ASSUMED in verdict.message
    assert memory_verdict(load_hierarchy("amd-zen3"), load_hierarchy("amd-zen3").counted).passed


def _report(folder: Path, index: int, kind: str, size: str, ways: int) -> None:
    path = folder / f"index{index}"
    path.mkdir()
    said = {"type": kind, "size": size, "ways_of_associativity": ways, "coherency_line_size": 64}
    for name, value in said.items():
        (path / name).write_text(f"{value}\n")


def test_caches_are_read_from_what_linux_reports(tmp_path: Path) -> None:
    reported = ["Data 48K 12", "Instruction 32K 8", "Unified 2048K 16", "Unified 105M 15"]
    for index, (kind, size, ways) in enumerate(row.split() for row in reported):
        _report(tmp_path, index, kind, size, int(ways))
    found = read_system(tmp_path)
    assert found is not None
    assert [cache.size_bytes for cache in found.caches] == [48 * KIB, 2 * MIB, 105 * MIB]
    assert [cache.ways for cache in found.caches] == [12, 16, 15]
    assert found.caches[0].source == str(tmp_path / "index0")


def test_a_system_that_reports_none_or_nonsense_has_none(tmp_path: Path) -> None:
    assert read_system(tmp_path) is None
    _report(tmp_path, 0, "Data", "48K", 0)
    _report(tmp_path, 2, "Unified", "2048K", 16)
    assert read_system(tmp_path) is None


def test_a_missing_hierarchy_names_those_there_are() -> None:
    with pytest.raises(DeviceParameterError, match="amd-zen4"):
        load_hierarchy("zen9")


def test_caches_that_shrink_or_have_no_whole_number_of_sets_are_refused() -> None:
    cache = {"size_bytes": 32 * KIB, "ways": 8, "source": "a test"}
    content = load_hierarchy("amd-zen4").model_dump(mode="json") | {"caches": [cache, cache]}
    with pytest.raises(DocumentError, match="do not grow from nearest"):
        MemoryHierarchy.from_object(content)
    with pytest.raises(ValueError, match="whole number of sets"):
        Cache(size_bytes=1000, ways=3, source="a test")


# documents that state no caches have these: other numbers need other rules
def test_the_usual_caches_are_those_of_documents_that_state_none() -> None:
    usual = DEFAULT_CACHES

    # 48 KiB, 12 ways, lines of 64 bytes
    assert (usual.first.lines, usual.first.sets, usual.first.set_stride_bytes) == (768, 64, 4096)
    assert usual.second.lines == 16384
    assert (usual.first.ways, usual.second.sets) == (12, 1024)
    assert (usual.code.sets, usual.code.ways, usual.code.set_stride_bytes) == (64, 8, 4096)
    zen5 = load_hierarchy("amd-zen5")
    assert usual.counts_alike(zen5.counted)


def test_kernels_are_counted_for_the_hierarchy_of_their_device() -> None:
    zen3 = _identity("AMD EPYC (AuthenticAMD family 25 model 1)")
    assert choose_caches(zen3) == load_hierarchy("amd-zen3").counted
    assert choose_caches(zen3).text == "32 KiB of 8 ways and 512 KiB of 8 ways"
    assert choose_caches(_identity("Other (GenuineIntel family 6 model 999)")) == DEFAULT_CACHES


def test_limits_of_reuse_follow_from_sizes_and_ways() -> None:
    found = ReuseLimits.of(load_hierarchy("amd-zen3").counted)  # 64 sets of 8; 1024 sets of 8
    assert list(found.levels.values())[:2] == [512, 8192]
    assert [list(each.values())[:4] for each in found.sharing.values()] == [
        [8, 16, 32, 1024],
        [16, 32, 64, 2048],
    ]
    assert list(found.sharing) == [4096, 2048]


def test_a_fit_of_counts_for_other_caches_says_so() -> None:
    verdict = memory_verdict(load_hierarchy("amd-zen4"), DEFAULT_CACHES)
    assert not verdict.passed
    assert "48 KiB of 12 ways" in verdict.message
    assert "recount" in verdict.remedy


def test_structural_models_take_sizes_from_the_hierarchy() -> None:
    memory = load_hierarchy("amd-zen3")
    model = make_structural_model(ExecutionPolicy(units=2), memory=memory)
    assert f"{512 * KIB}/" in model.derived["beyond_l2"]
    assert f"{32 * MIB}/" in model.derived["beyond_llc"]
    assert f"{8 * MIB}/" in model.derived["out_of_reach"]
    assert model.memory == memory
