"""The test kernels execute what the closed forms say.

Closed forms: those by which the printed predictions of Stevens and Klöckner (2016), Table 1, follow
from the weights of their Table 2, for groups of 256 items and tiles of 16 by 16, but with fetches
as executed: once for each group that repeats them, and no more than the tile with its halo.
Compiled without optimization, a square is a multiplication that reads its base twice, and a
subtraction multiplies by -1.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from measurement_kernels.catalog import entry
from tests.oracles import oclgrind

pytestmark = [
    pytest.mark.oclgrind,
    pytest.mark.skipif(oclgrind.PROGRAM is None, reason="oclgrind-kernel is not installed"),
]


def _finite_differences(n: int) -> dict[str, int]:
    cells = n * n
    return {
        "add": 6 * cells,
        "mul": cells + cells,  # 4·u, and the square
        "rsqrt": 0,
        "local": 6 * cells + cells,
        "loads": 18 * 18 * cells // 256,
        "stores": cells,
        "barriers": cells,
    }


def _matmul_skinny(n: int, m: int, l: int) -> dict[str, int]:  # noqa: E741 - its name
    products = n * m * l
    return {
        "add": products,
        "mul": products,
        "rsqrt": 0,
        "local": 2 * products,
        "loads": n * m * (l // 16) + m * l * (n // 16),
        "stores": n * l,
        "barriers": 2 * (m // 16) * n * l,
    }


def _n_body(n: int) -> dict[str, int]:
    pairs = n * n
    return {
        "add": 7 * pairs,
        "mul": 3 * pairs + 3 * pairs,  # squares, -1·x
        "rsqrt": pairs - n,
        "local": 3 * pairs,
        "loads": 3 * pairs + 3 * n * (n // 256),
        "stores": n,
        "barriers": 2 * (n // 256) * n,
    }


def _convolution(n: int, images: int) -> dict[str, int]:
    products = images * 3 * 147 * n * n
    groups = (n // 16) ** 2
    return {
        "add": products,
        "mul": products,
        "rsqrt": 0,
        "local": 2 * products,
        "loads": images * 3 * 3 * 22 * 22 * groups + 441 * groups,
        "stores": images * 3 * n * n,
        "barriers": 18 * images * n * n,
    }


@pytest.mark.parametrize(
    ("name", "sizes", "wanted"),
    [
        ("finite-differences", {"n": 48}, _finite_differences(48)),
        ("matmul-skinny", {"n": 16, "m": 128, "l": 32}, _matmul_skinny(16, 128, 32)),
        ("n-body", {"n": 512}, _n_body(512)),
        ("convolution", {"n": 16, "images": 4}, _convolution(16, 4)),
    ],
)
def test_executed_instructions(
    name: str, sizes: dict[str, int], wanted: dict[str, int], tmp_path: Path
) -> None:
    executed = oclgrind.run(entry(name).build(), sizes, tmp_path)
    assert {
        "add": executed.of("fadd", "fsub"),
        "mul": executed.of("fmul", "fneg"),
        "rsqrt": executed.calls("rsqrt"),
        "local": executed.of("load local"),
        "loads": executed.of("load global"),
        "stores": executed.of("store global"),
        "barriers": executed.calls("barrier"),
    } == wanted
