"""Read the times and hardware counters that Amaris et al. published.

The folder has ``amaris/timings.csv.gz``, a row per case, and ``amaris/nvprof_counters.csv.gz``, a
row per case and profile whose first field is ``GPU/block_B/KERNEL-{events,metrics}.csv`` and whose
other fields are named by ``eventsNames-C.csv`` and ``metricsNames-C.csv`` of the compute
capability C. Source: github.com/marcosamaris/gpuperfpredict, commit 7c8ece00, CC-BY 4.0.
"""

from __future__ import annotations

import csv
import gzip
from collections import Counter
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


def counters(folder: Path) -> pd.DataFrame:
    """Read the hardware counters, a row per case and run of the profiler."""
    names = {
        (capability, kind): next(
            csv.reader(
                (folder / "amaris" / f"{kind}Names-{capability}.csv").read_text().splitlines()
            )
        )
        for capability in {gpu.capability for gpu in GPUS.values()}
        for kind in ("events", "metrics")
    }
    cases: dict[tuple[object, ...], dict[str, object]] = {}
    seen: Counter[tuple[object, ...]] = Counter()
    with gzip.open(folder / "amaris" / "nvprof_counters.csv.gz", "rt") as file:
        for row in csv.reader(file):
            gpu, block, name = row[0].split("/")
            kernel, kind = name.removesuffix(".csv").rsplit("-", 1)
            if kernel not in KERNELS:
                continue
            fields = dict(zip(names[GPUS[gpu].capability, kind], row[1:], strict=True))
            key = (gpu, block, kernel, fields["Kernel"], fields["Input Size"])
            seen[key, kind] += 1  # repeats stand in the same order in both profiles
            case = cases.setdefault((*key, seen[key, kind]), {})
            case |= {field: _number(value) for field, value in fields.items()}
            case |= {"gpu": gpu, "kernel": kernel, "block": int(block.removeprefix("block_"))}
            case |= {"size": int(fields["Input Size"])}
    return pd.DataFrame(list(cases.values()))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
