"""Tables of Nsight Compute and nvprof, and the fields that they fill."""

from __future__ import annotations

from pathlib import Path

import pytest

from countperf.cli import main
from countperf.errors import TableError
from countperf.hardware.library import load_device
from countperf.mechanistic.from_kernel import profile_kernel
from countperf.mechanistic.predict_all import predict_all
from countperf.mechanistic.profiler_csv import measured_fields, parse_profiler_csv
from measurement_kernels import catalog

_START = '"{}","1","run","h","{}","1","7","(16, 16, 1)","(4, 4, 1)","0","8.0","",'


def _line(launch: int, kernel: str, metric: str, unit: str, value: str) -> str:
    return _START.format(launch, kernel) + f'"{metric}","{unit}","{value}"'


MINE = "matmul_tiled(float *, int)"
NCU = "\n".join(
    [
        "==PROF== Connected to process 4242 (/home/me/run)",
        "the program's own output, with a comma",
        '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream",'
        '"Block Size","Grid Size","Device","CC","Section Name","Metric Name","Metric Unit",'
        '"Metric Value"',
        _line(0, MINE, "dram__bytes.sum", "Kbyte", "65.536"),
        _line(0, MINE, "sm__warps_active.avg.pct_of_peak_sustained_active", "%", "25.00"),
        _line(0, MINE, "smsp__inst_issued.sum", "inst", "128,000"),
        _line(1, MINE, "smsp__inst_issued.sum", "inst", "128,256"),
        _line(1, MINE, "launch__registers_per_thread", "register/thread", "40"),
        _line(2, "other(float *)", "dram__bytes.sum", "byte", "17"),
        "",
    ]
)
_GPU = '"Quadro K620 (0)","matmul_tiled(float*, int)",3,'
NVPROF = "\n".join(
    [
        "==17== NVPROF is profiling process 17, command: ./run",
        "==17== Profiling result:",
        '"Device","Kernel","Invocations","Metric Name","Metric Description","Min","Max","Avg"',
        _GPU + '"dram_read_transactions","x",1500,1600,1548',
        _GPU + '"dram_write_transactions","x",500,500,500',
        _GPU + '"achieved_occupancy","x",0.2,0.3,0.25',
        _GPU + '"inst_executed","x",1000,1000,1000',
        _GPU + '"inst_replay_overhead","x",0.5,0.5,0.5',
        _GPU + '"flop_count_sp","x",100,100,100',
        _GPU + '"dram_utilization","x","Low (2)","Low (2)","Low (2)"',
        "",
    ]
)
RAW = "\n".join(
    [
        '"ID","Kernel Name","Block Size","dram__bytes_read.sum","dram__bytes_write.sum",'
        '"smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",'
        '"smsp__sass_thread_inst_executed_op_fadd_pred_on.sum"',
        '"","","","Mbyte","byte","inst","inst"',
        '"0","matmul_tiled","(16, 16, 1)","1.5","500,000","100","11"',
        "",
    ]
)
K620 = load_device("nvidia-k620")
MATMUL = catalog.entry("matmul-tiled/square/16x16")
SIZES = {"n": 64, "m": 64, "l": 64}


def test_a_long_table_of_nsight_compute() -> None:
    first, second = parse_profiler_csv(NCU)

    assert (first.kernel, first.launches, second.kernel) == (MINE, 2, "other(float *)")
    assert first.values == {
        "dram__bytes.sum": 65536,
        "sm__warps_active.avg.pct_of_peak_sustained_active": 0.25,
        "smsp__inst_issued.sum": 128_128,
        "launch__registers_per_thread": 40,
    }


def test_a_raw_page_of_nsight_compute() -> None:
    fields = measured_fields(parse_profiler_csv(RAW)[0])

    assert fields["total_bytes"].value == 2e6
    assert fields["total_bytes"].metrics == ("dram__bytes_read.sum", "dram__bytes_write.sum")
    assert fields["total_flops"].value == 211


def test_a_table_of_nvprof() -> None:
    fields = measured_fields(parse_profiler_csv(NVPROF)[0])

    assert fields["total_bytes"].value == 2048 * 32
    assert fields["occupancy"].value == 0.25
    assert fields["ins_issued"].value == 1500
    assert fields["total_flops"].value == 100


def test_measured_numbers_take_the_place_of_counts_and_are_marked() -> None:
    profiler = profile_kernel(MATMUL.build(), K620, metrics=parse_profiler_csv(NCU))
    counted = profile_kernel(MATMUL.build(), K620, registers_per_work_item=40).at(SIZES)

    found = profiler.at(SIZES)

    sub_groups = 16 * 8
    assert found.profile.total_bytes == 65536
    assert found.profile.gmem_bytes == 65536 / sub_groups
    assert found.profile.ins_issued == 128_128 / sub_groups
    assert found.profile.registers_per_work_item == 40
    assert found.launch.occupancy == 0.25 * 64
    assert found.profile.alpha == counted.profile.alpha
    measured = ("total_bytes", "gmem_bytes", "dram_ratio", "ins_issued")
    marked = (*measured, "registers_per_work_item", "occupancy")
    assert set(found.profile.measured) == set(marked)
    answers = predict_all(profiler, K620, SIZES)
    assert answers.measured["total_bytes"] == "dram__bytes.sum"
    roof = answers.predictions["roofline-bytes"]
    assert float(roof.time_s) == pytest.approx(max(65536 / 2.9e10, 2 * 64**3 / 8.12544e11))
    assert answers.predictions["volkov"].results["occupancy"] == 16


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1,2\n", "no table of ncu --csv or nvprof --csv"),
        (NCU.replace("matmul_tiled", "gemm"), "0 kernels of the table are called"),
        (NCU.replace('"65.536"', '"65.5.36"'), "is no number"),
        (NVPROF.splitlines()[2] + "\n", "has no metric with a number"),
        (
            NVPROF.splitlines()[2] + "\n" + _GPU + '"ipc","x",1,1,1\n',
            "no metric of .* gives a field",
        ),
    ],
)
def test_wrong_tables_are_refused(text: str, said: str) -> None:
    with pytest.raises(TableError, match=said):
        profile_kernel(MATMUL.build(), K620, metrics=parse_profiler_csv(text)).at(SIZES)


def test_predict_takes_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ncu.csv"
    path.write_text(NCU)
    command = ["predict", "matmul-tiled/square/16x16", "n=64", "m=64", "l=64", "--model"]

    arguments = ["volkov,roofline-bytes", "--on", "nvidia-k620", "--metrics", str(path)]
    assert main([*command, *arguments]) == 0

    assert "measured: occupancy (sm__warps_active" in capsys.readouterr().out
