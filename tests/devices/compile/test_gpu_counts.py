"""Instructions that kernels execute on NVIDIA GPUs, against enumerated loop nests."""

from __future__ import annotations

from typing import Any

import loopy as lp
import pytest

from countperf.cli import main
from countperf.devices.nvcc import find_program
from countperf.errors import CountingError
from countperf.mechanistic import compiled_profile as ptx
from countperf.mechanistic.compiled_profile import GpuKernel
from measurement_kernels.catalog import entry
from tests.kernels import made

pytestmark = pytest.mark.skipif(
    find_program("nvcc") is None or find_program("nvdisasm") is None,
    reason="no nvcc or nvdisasm (the extra 'nvcc')",
)
capabilities = pytest.mark.parametrize("capability", ["7.5", "9.0", "12.0"])


@capabilities
def test_tiled_product(capability: str) -> None:
    # groups of 28 by 28 items are 24.5 sub-groups, so 25; n has three tiles in each direction
    n, tiles, groups = 84, 3, 9
    kernel = GpuKernel(entry("published-matmul/tiled/28x28/f32").build(), capability)
    counts = kernel.counts({"n": n})
    assert counts.sub_groups == groups * 25
    assert counts.lanes["flop.fma.f32.1"] == n**3
    assert counts.instructions["flop.fma.f32.1"] == groups * 25 * n
    assert counts.lanes["load.global.32"] == groups * 28 * 28 * tiles * 2
    assert counts.instructions["barrier"] == groups * 25 * tiles * 2
    assert counts.lanes["store.global.32"] == n**2


def _triangle() -> Any:
    domain, body = "{[i, j]: 0 <= i < n and 0 <= j <= i}", "out[i] = sum(j, a[j]*b[i])"
    return made(domain, body, "a,b,out f32 n; n i32", assumptions="", split="i:64")


@capabilities
@pytest.mark.parametrize("every_group", [True, False])
def test_partial_groups_and_triangular_loops(capability: str, every_group: bool) -> None:
    counts = GpuKernel(_triangle(), capability).counts({"n": 1000}, every_group=every_group)
    assert counts.assumed_groups == 0
    sums = counts.lanes["flop.fma.f32.1"] + counts.lanes.get("flop.mul.f32.1", 0)
    assert sums == 1000 * 1001 // 2
    assert counts.lanes["store.global.32"] == 1000


@capabilities
def test_a_triangle_that_is_smaller_than_what_is_unrolled(capability: str) -> None:
    domain = "{[i, j, k]: 0 <= i < n and 0 <= j < m and 0 <= k <= j}"
    arguments = "a,b f32 m; out f32 n; n,m i32"
    unit = made(domain, "out[i] = sum((j, k), a[j]*b[k])", arguments, assumptions="", split="i:64")
    kernel = GpuKernel(unit, capability)
    for m in (1, 5, 17):
        counts = kernel.counts({"n": 64, "m": m})
        assert counts.lanes["flop.fma.f32.1"] == 64 * m * (m + 1) // 2


@capabilities
def test_tiles_that_a_group_loads_in_two_steps(capability: str) -> None:
    # 12 by 16 items load tiles of 12 by 16 and of 16 by 16 elements; in 4 by 3 groups, 3 times
    kernel = GpuKernel(entry("matmul-tiled/square/16x12/f32").build(), capability)
    counts = kernel.counts({"n": 48, "m": 48, "l": 48})
    assert counts.lanes["load.global.32"] == 12 * 3 * (12 * 16 + 16 * 16)
    assert counts.lanes["flop.fma.f32.1"] == 48**3


def _additions(bounds: str, body: str, kind: str, capability: str, n: int) -> int:
    domain, arguments = f"{{[i, j]: 0 <= i < 64 and {bounds}}}", f"a f32 n+64; out f32 64; n {kind}"
    unit = lp.tag_inames(made(domain, body, arguments, assumptions=""), "i:l.0")
    return GpuKernel(unit, capability).counts({"n": n}).lanes["flop.add.f32.1"]


@capabilities
@pytest.mark.parametrize("n", [7, 8, 100, 12_345])
def test_trip_counts_that_are_quotients_of_sizes(capability: str, n: int) -> None:
    given = "0 <= 7*j < n", "out[i] = sum(j, a[7*j + i])", "i32", capability
    assert _additions(*given, n) == 64 * -(-n // 7)


@pytest.mark.parametrize("n", [1, 8, 100])
def test_sizes_of_64_bits_on_blackwell(n: int) -> None:
    given = "0 <= j < n - i", "out[i] = sum(j, a[j + i])", "i64", "12.0"
    assert _additions(*given, n) == sum(max(0, n - i) for i in range(64))


def _by_data() -> Any:
    domains = ["i<n", "[count] -> {[j]: 0 <= j < count}"]
    body = "for i\n<> count = rows[i]\nout[i] = sum(j, a[j])\nend"
    arguments = "rows i32 n; a f32 1000; out f32 n; n i32"
    return made(domains, body, arguments, assumptions="", split="i:32")


def test_what_is_not_followed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ptx, "_MOST_GROUPS", 8)
    with pytest.raises(CountingError, match="depends on data"):
        GpuKernel(_by_data()).counts({"n": 64})
    with pytest.raises(CountingError, match="every_group=True"):
        GpuKernel(_triangle(), "8.0").counts({"n": 64 * 17})
    with pytest.raises(CountingError, match=r"compute capability 3.5 .* 5, 6, 7, 8, 9, 10, 12"):
        GpuKernel(_triangle(), "3.5")


def test_the_command_prints_instructions(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["compiled", "published-vector-add/64x1/f32", "n=128", "--capability", "8.0"]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("4 sub-groups")
    assert "what one of their kind does: 1;" in printed
    assert ["load.global.32", "8", "256"] in [line.split() for line in printed.splitlines()]
    assert main([*arguments, "--json"]) == 0
    assert '"store.global.32": 128' in capsys.readouterr().out
    more = [argument.replace("128", "1280") for argument in arguments]
    assert main(more) == 0
    assert "what one of their kind does: 19;" in capsys.readouterr().out
    assert main([*more, "--every-group"]) == 0
    assert "taken to execute" not in capsys.readouterr().out
