"""Read the times that Amaris et al. published.

The folder has ``amaris/timings.csv.gz``, a row per case. See `SOURCE`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

SOURCE = "github.com/marcosamaris/gpuperfpredict, commit 7c8ece00, CC-BY 4.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU of the data."""

    slug: str  # its name in this project
    name: str  # its name for people
    capability: str  # compute capability


GPUS = {
    "GTX-680": Gpu(slug="nvidia-gtx-680", name="GeForce GTX 680", capability="3.0"),
    "GTX-750": Gpu(slug="nvidia-gtx-750", name="GeForce GTX 750", capability="5.0"),
    "GTX-970": Gpu(slug="nvidia-gtx-970", name="GeForce GTX 970", capability="5.2"),
    "GTX-980": Gpu(slug="nvidia-gtx-980", name="GeForce GTX 980", capability="5.2"),
    "Quadro": Gpu(slug="nvidia-quadro-k5200", name="Quadro K5200", capability="3.5"),
    "Tesla-K20": Gpu(slug="nvidia-k20c", name="Tesla K20c", capability="3.5"),
    "Tesla-K40": Gpu(slug="nvidia-k40c", name="Tesla K40c", capability="3.5"),
    "Titan": Gpu(slug="nvidia-titan", name="GeForce GTX Titan", capability="3.5"),
    "TitanBlack": Gpu(slug="nvidia-titan-black", name="GeForce GTX Titan Black", capability="3.5"),
    "TitanX": Gpu(slug="nvidia-titan-x", name="GeForce GTX Titan X", capability="5.2"),
}
"""By their names in the files."""

KERNELS = {
    "matMul_gpu": "published-matmul/global",
    "matMul_gpu_uncoalesced": "published-matmul/global-swapped",
    "matMul_gpu_sharedmem": "published-matmul/tiled",
    "matMul_gpu_sharedmem_uncoalesced": "published-matmul/tiled-swapped",
    "matrix_sum_coalesced": "published-matrix-sum/rows",
    "matrix_sum_normal": "published-matrix-sum/columns",
    "vectorAdd": "published-vector-add",
    "dotProd": "published-dot-product",
}
"""Kernels of the catalogue by their names in the files; ``subSeqMax`` is not among them."""


def sizes_of(kernel: str, size: int, items: int, groups: int) -> dict[str, int]:
    """Return a kernel's size parameters.

    Parameters
    ----------
    kernel : str
        Its name in the files.
    size : int
        Rows of matrices, or elements of vectors.
    items, groups : int
        Work items of a group, and work groups, along the first axis.

    Examples
    --------
    >>> sizes_of("dotProd", 4096, 64, 32)
    {'rows': 2, 'groups': 32}
    """
    if kernel == "dotProd":
        return {"rows": size // (items * groups), "groups": groups}
    return {"n": size}


def timings(folder: Path) -> pd.DataFrame:
    """Read the times, a row per case."""
    found = pd.read_csv(folder / "amaris" / "timings.csv.gz")
    found = found[found["kernel"].isin(list(KERNELS))].reset_index(drop=True)
    sizes = [
        sizes_of(kernel, size, items, groups)
        for kernel, size, items, groups in zip(
            found["kernel"], found["size"], found["block_x"], found["grid_x"], strict=True
        )
    ]
    names = [
        f"{KERNELS[kernel]}/{x}x{y}/f32"
        for kernel, x, y in zip(found["kernel"], found["block_x"], found["block_y"], strict=True)
    ]
    table = pd.DataFrame(
        {
            "gpu": found["gpu"],
            "kernel": names,
            "size": found["size"],
            "runs": found["n"],
            "seconds": found["median_s"],
        }
    )
    return table.join(pd.DataFrame(sizes, dtype="Int64"))
