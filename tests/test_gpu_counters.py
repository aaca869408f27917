"""The comparison with published hardware counters, on tables of the same form written here."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import pytest

from amaris_data import counters, timings
from compare_gpu_counters import compared, far_cases, summary

NAMES = ("Input Size", "Device", "Context", "Stream", "Kernel")
EVENTS = ("warps_launched", "gld_inst_32bit", "gst_inst_32bit", "gld_request", "gst_request")
TRANSACTIONS = ("uncached_global_load_transaction", "global_store_transaction")
LOCAL = ("shared_load", "shared_store", "shared_load_replay", "shared_store_replay")
METRICS = ("Floating Point Operations(Single Precision FMA)", "Global Load Transactions")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two cases on a Kepler GPU: a product of 8 by 8 matrices in one group, and a vector sum."""
    folder = tmp_path / "amaris"
    folder.mkdir()
    for capability in ("3.0", "3.5", "5.0", "5.2"):
        names = (*NAMES, "sm_cta_launched", *EVENTS, *TRANSACTIONS, *LOCAL)
        (folder / f"eventsNames-{capability}.csv").write_text(",".join(names))
        (folder / f"metricsNames-{capability}.csv").write_text(",".join((*NAMES, *METRICS)))
    # 64 items are 2 sub-groups. Each loads 8 elements of a row and 8 of a column: 2 x 16 loads. A
    # sub-group has 4 rows of 32 bytes: of a it touches 1 line of 128 bytes, of b 1; it stores 1
    product = [1, 2, 1024, 64, 32, 2, 32, 2, 0, 0, 0, 0]
    sum_of_vectors = [1, 2, 128, 64, 4, 2, 4, 3, 0, 0, 0, 0]  # one line too many is stored
    lines = [
        ("block_8/matMul_gpu-events", 8, "matMul", product),
        ("block_8/matMul_gpu-metrics", 8, "matMul", [512, "<OVERFLOW>"]),
        ("block_8/vectorAdd-events", 64, "vectorAdd", sum_of_vectors),
        ("block_8/vectorAdd-metrics", 64, "vectorAdd", [0, 4]),
        ("block_8/subSeqMax-metrics", 64, "subSeqMax", [0, 4]),
    ]
    with gzip.open(folder / "nvprof_counters.csv.gz", "wt") as file:
        for name, size, kernel, numbers in lines:
            fields = (f"Tesla-K40/{name}.csv", size, "K40", 1, 7, kernel, *numbers)
            file.write(",".join(map(str, fields)) + "\n")
    with gzip.open(folder / "timings.csv.gz", "wt") as file:
        file.write(
            "gpu,device,kernel,signature,size,grid_x,grid_y,grid_z,block_x,block_y,block_z,"
            "registers,n,median_s,min_s,max_s\n"
            'Tesla-K40,K40,dotProd,"d(int)",4096,32,1,1,64,1,1,9,3,1e-5,1e-5,1e-5\n'
            'Tesla-K40,K40,subSeqMax,"s(int)",4096,32,1,1,64,1,1,9,3,1e-5,1e-5,1e-5\n'
        )
    return tmp_path


def test_both_profiles_of_a_case_are_one_row(data: Path) -> None:
    found = counters(data)
    assert found[["kernel", "size", "gld_request"]].to_numpy().tolist() == [
        ["matMul_gpu", 8, 32],
        ["vectorAdd", 64, 4],
    ]
    assert found["Global Load Transactions"].isna().tolist() == [True, False]


def test_times_name_kernels_and_their_sizes(data: Path) -> None:
    (row,) = timings(data).to_dict("records")
    assert (row["kernel"], row["rows"], row["groups"]) == ("published-dot-product/64x1/f32", 2, 32)
    assert row["seconds"] == 1e-5


def test_what_differs_is_named(data: Path) -> None:
    cases = compared(data)
    known = cases[cases["measured"].notna()]
    same = known["counted"] == known["measured"]
    assert Counter(known.loc[same, "kernel"].tolist()) == {
        "published-matmul/global": 12,
        "published-vector-add": 11,
    }
    (far,) = far_cases(cases).to_dict("records")
    assert (far["kernel"], far["counter"]) == ("published-vector-add", "lines of 128 B stored")
    assert (far["counted"], far["measured"]) == (2, 3)
    table = summary(cases).set_index(["counter", "kernel"])
    row = table.loc[("lines of 128 B stored", "published-vector-add")]
    assert (row["cases"], row["equal"], row["within_1_percent"]) == (1, 0, 0)
