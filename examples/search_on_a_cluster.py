"""Search on several devices with a cluster of Dask that builds and counts variants.

``python examples/search_on_a_cluster.py [DEVICE ...]``. The processes of the cluster build, count
and predict variants; for each device a process of its own times them, one at a time. Here the
cluster is on this machine (`LocalCluster`). Its address may be that of any other one: processes
that time do not count, so that they may be on a node with a device and the cluster elsewhere.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, Literal

import loopy as lp
import numpy as np
from dask.distributed import Client, LocalCluster

import countperf

base = lp.make_kernel(
    "{ [i, j] : 0 <= i, j < n }",
    "z[i, j] = 2 * x[i, j] + y[j, i]",
    [lp.GlobalArg("x, y, z", np.float32, shape="n, n"), lp.ValueArg("n", np.int32)],
    assumptions="n >= 1",
    lang_version=(2018, 2),
)


def variant(rows: Literal[1, 4, 16], columns: Literal[8, 16, 64]) -> Any:
    """Build a variant; the signature says which there are."""
    unit = lp.split_iname(base, "i", rows, outer_tag="g.1", inner_tag="l.1")
    return lp.split_iname(unit, "j", columns, outer_tag="g.0", inner_tag="l.0")


SPACE = countperf.SearchSpace.from_function(
    variant, constraints=["rows * columns <= 256"], sizes={"n": 1024}
)


def search(address: str, device: str) -> str:
    """Search on a device, in a process that is a client of the cluster."""
    with Client(address) as client:
        result = countperf.tune(
            f"{__file__}:SPACE",
            measurements=4,
            device=device,
            weights="pocl-epyc-zen5",
            force=True,  # weights of another processor put variants in order roughly
            executor=client.get_executor(),
        )
    choice = SPACE.label(result.winner.choice)
    return f"{device}, process {os.getpid()}: {choice}, {result.winner.time_s * 1e3:.3f} ms"


def main(devices: Sequence[str]) -> None:
    """Start the cluster and a process for each device."""
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        ProcessPoolExecutor(len(devices), mp_context=get_context("spawn")) as processes,
    ):
        addresses = [cluster.scheduler_address] * len(devices)
        for line in processes.map(search, addresses, devices):
            print(line)
        with Client(cluster) as client:
            done = client.run(lambda dask_worker: dask_worker.state.executed_count)
    print(f"tasks of the processes of the cluster: {', '.join(map(str, done.values()))}")


if __name__ == "__main__":
    main(sys.argv[1:] or ["pocl:0"])
