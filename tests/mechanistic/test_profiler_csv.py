"""Tables of Nsight Compute, and the fields that they fill."""

from __future__ import annotations

from pathlib import Path

import pytest

from countperf.cli import main
from countperf.devices.parameters import load_device
from countperf.errors import TableError
from countperf.mechanistic import profiler_csv
from countperf.mechanistic.from_kernel import profile_kernel
from countperf.mechanistic.predict_all import answers_of
from measurement_kernels import catalog

_START = '"{}","1","run","h","{}","1","7","(16, 16, 1)","(4, 4, 1)","0","5.0","",'


def _line(launch: int, kernel: str, metric: str, unit: str, value: str) -> str:
    return _START.format(launch, kernel) + f'"{metric}","{unit}","{value}"'


DRAM, ISSUED = "dram__bytes.sum", "smsp__inst_issued.sum"
SHARE = "sm__warps_active.avg.pct_of_peak_sustained_active"
REGISTERS = "launch__registers_per_thread"
MINE = "matmul_tiled(float *, int)"
NCU = "\n".join(
    [
        "==PROF== Connected to process 4242 (/home/me/run)",
        "the program's own output, with a comma",
        '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream",'
        '"Block Size","Grid Size","Device","CC","Section Name","Metric Name","Metric Unit",'
        '"Metric Value"',
        _line(0, MINE, DRAM, "Kbyte", "65.536"),
        _line(0, MINE, SHARE, "%", "25.00"),
        _line(0, MINE, ISSUED, "inst", "128,000"),
        _line(1, MINE, ISSUED, "inst", "128,256"),
        _line(1, MINE, REGISTERS, "register/thread", "40"),
        _line(2, "other(float *)", DRAM, "byte", "17"),
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


def test_tables_of_nsight_compute() -> None:
    first, second = profiler_csv.parse_profiler_csv(NCU)
    assert (first.kernel, second.kernel) == (MINE, "other(float *)")
    assert first.values == {DRAM: 65536, SHARE: 25, ISSUED: 128_128, REGISTERS: 40}
    raw = profiler_csv.find_measured_fields(profiler_csv.parse_profiler_csv(RAW)[0])
    assert raw["total_bytes"] == (2e6, "dram__bytes_read.sum, dram__bytes_write.sum")
    assert raw["total_flops"][0] == 211


def test_measured_numbers_take_the_place_of_counts_and_are_marked() -> None:
    profiler = profile_kernel(MATMUL.build(), K620, metrics=profiler_csv.parse_profiler_csv(NCU))
    counted = profile_kernel(MATMUL.build(), K620, registers_per_work_item=40).at(SIZES)
    profiled = profiler.at(SIZES)
    sub_groups = 16 * 8
    assert profiled.profile.total_bytes == 65536
    assert profiled.profile.gmem_bytes == 65536 / sub_groups
    assert profiled.profile.ins_issued == 128_128 / sub_groups
    assert profiled.profile.registers_per_work_item == 40
    assert profiled.launch.occupancy == 0.25 * 64
    assert profiled.profile.alpha == counted.profile.alpha
    measured = ("total_bytes", "gmem_bytes", "dram_ratio", "ins_issued")
    marked = (*measured, "registers_per_work_item", "occupancy")
    assert set(profiled.profile.measured) == set(marked)
    answers = answers_of(profiler, SIZES)
    assert answers.measured["total_bytes"] == DRAM
    roof = answers.predictions["roofline-bytes"]
    assert float(roof.time_s) == pytest.approx(max(65536 / 2.9e10, 2 * 64**3 / 8.12544e11))
    assert answers.predictions["volkov"].results["occupancy"] == 16


_HEADER = NCU.splitlines()[2]
_RULES = ',"Rule Name","Rule Type","Rule Description","Estimated Speedup Type","Estimated Speedup"'


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (  # lines of metrics end before the columns of rules, and rules have no metric
            f"{_HEADER}{_RULES}\n{_line(0, 'k', DRAM, 'byte', '8,388,608')},\n"
            f'{_line(0, "k", "", "", "")},"SOLBottleneck","OPT","A text.","",""\n',
            {DRAM: 8388608},
        ),
        (  # values of instances behind their sum
            f"{_HEADER}\n{_line(0, 'k', DRAM, 'Mbyte', '12.582912 (6.291456; 6.291456)')}\n"
            f"{_line(0, 'k', ISSUED, 'inst', '1,234 (1: 1,000; 2: 234)')}\n"
            f"{_line(0, 'k', 'group:memory', '', '(1; 2; 3)')}\n",
            {DRAM: 12.582912e6, ISSUED: 1234},
        ),
    ],
)
def test_tables_as_profilers_write_them(text: str, values: dict[str, float]) -> None:
    (profiled,) = profiler_csv.parse_profiler_csv(text)
    assert (profiled.kernel, profiled.values) == ("k", values)


@pytest.mark.parametrize(
    ("name", "is_it"),
    [
        ("void matmul_tiled<float, (int)16>(T1 *, int)", True),
        ("void ns<int>::matmul_tiled<pair<int, float>>(T1 *)", True),
        ("(anonymous namespace)::matmul_tiled(float *)", True),
        ("_Z12matmul_tiledPfi", True),
        ("_ZN2ns12matmul_tiledEPfi", True),
        ("_Z17matmul_tiled_initPf", False),
        ("matmul_tiled_init(float *)", False),
        ("void wrapper<matmul_tiled>(float *)", False),
    ],
)
def test_names_of_functions_have_types_and_templates(name: str, *, is_it: bool) -> None:
    metrics = profiler_csv.parse_profiler_csv(NCU.replace(MINE, name))
    profiler = profile_kernel(MATMUL.build(), K620, metrics=metrics)
    if is_it:
        assert profiler.at(SIZES).profile.total_bytes == 65536
        return
    with pytest.raises(TableError, match="the table has no launches of 'matmul_tiled'"):
        profiler.at(SIZES)


def test_launches_of_other_sizes_are_others() -> None:
    other = _line(7, MINE, DRAM, "byte", "999").replace("(4, 4, 1)", "(2, 2, 1)")
    metrics = profiler_csv.parse_profiler_csv(NCU + other)
    profiler = profile_kernel(MATMUL.build(), K620, metrics=metrics, registers_per_work_item=40)
    assert profiler.at(SIZES).profile.total_bytes == 65536
    assert profiler.at({"n": 32, "m": 32, "l": 32}).profile.total_bytes == 999
    with pytest.raises(TableError, match=r"with 64 groups of 256 .* 4 groups of 256"):
        profiler.at({"n": 128, "m": 128, "l": 128})


def _of(metric: str, unit: str, value: str) -> str:
    return f"{_HEADER}\n{_line(0, MINE, metric, unit, value)}\n"


@pytest.mark.parametrize("moved", [0.25, 0.75, 1.5])
def test_a_measured_ratio_takes_the_place_of_the_caches(moved: float) -> None:
    plain = profile_kernel(MATMUL.build(), K620, registers_per_work_item=40)
    traffic = plain.at(SIZES).profile.traffic
    assert traffic is not None
    lines = NCU.splitlines()
    mine = _line(0, MINE, DRAM, "byte", f"{moved * traffic.asked}")
    metrics = profiler_csv.parse_profiler_csv("\n".join([*lines[:3], mine, lines[7], ""]))
    profile = profile_kernel(MATMUL.build(), K620, metrics=metrics).at(SIZES).profile
    assert profile.measured["dram_ratio"] == f"{moved:.3g}: dram__bytes.sum"
    assert profile.traffic is not None
    assert (profile.traffic.ratio, profile.dram_ratio) == pytest.approx((moved, moved))
    assert "measured (dram__bytes.sum)" in profile.traffic.text


_TWICE = f"{_of(DRAM, 'byte', '3')}{_line(1, MINE, DRAM, 'byte', '4')}".replace(
    '"0","5.0","","dram__bytes.sum","byte","4"', '"1","5.0","","dram__bytes.sum","byte","4"'
)


@pytest.mark.parametrize("unit", ["smsp", "sm"])
def test_operations_by_both_names(unit: str) -> None:
    start = f"{unit}__sass_thread_inst_executed_op_"
    text = "\n".join(
        [
            _HEADER,
            _line(0, MINE, f"{start}ffma_pred_on.sum", "inst", "7,340,032"),
            _line(0, MINE, f"{start}dadd_pred_on.sum", "inst", "5"),
            _line(0, MINE, f"{start}hmul_pred_on.sum", "Kinst", "1"),
            _line(0, MINE, "sm__sass_thread_inst_executed_op_dadd_pred_on.sum", "inst", "5"),
        ]
    )
    (metrics,) = profiler_csv.parse_profiler_csv(text)
    assert profiler_csv.find_measured_fields(metrics)["total_flops"][0] == 2 * 7_340_032 + 5 + 1000


def test_a_table_of_two_devices_serves_each_of_them() -> None:
    other = _line(1, MINE, DRAM, "byte", "4").replace('"0","5.0"', '"1","9.0"')
    metrics = profiler_csv.parse_profiler_csv(_of(DRAM, "byte", "3") + other)
    profiler = profile_kernel(MATMUL.build(), K620, metrics=metrics, registers_per_work_item=40)
    assert profiler.at(SIZES).profile.total_bytes == 3


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be"])
def test_encodings(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "ncu.csv"
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    path.write_bytes((mark + NCU.replace("\n", "\r\n")).encode(encoding))
    assert profiler_csv.read_profiler_csv(path) == profiler_csv.parse_profiler_csv(NCU)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1,2\n", "no table of ncu --csv: "),
        (_HEADER.replace(",", ";"), "no line begins with the column 'ID' and a comma"),
        (NCU.replace("matmul_tiled", "gemm"), "has no launches of 'matmul_tiled'"),
        (NCU.replace('"65.536"', '"65.5.36"'), "is no number"),
        (NCU.replace('"128,000"', '"128.5"'), "no number of inst from 0: export .* LC_ALL=C"),
        (NCU.replace('"65.536"', '"65.536'), "is damaged: .*; export the table again"),
        (_of(DRAM, "furlong", "3"), "has the unit 'furlong'; byte is wanted"),
        (_of(DRAM, "", "3"), "has the unit ''; byte is wanted"),
        (_of(ISSUED, "Mbyte", "3"), "has the unit 'Mbyte'; inst is wanted"),
        (_of(SHARE, "", "25.00"), "has the unit ''; % is wanted"),
        (_of(DRAM, "byte", "-3"), "is no number of byte from 0"),
        (_of(DRAM, "Mbyte", "12,58"), "is no number of Mbyte from 0: .* without decimal commas"),
        (_of(ISSUED, "inst", "425.984"), "no number of inst from 0: export .* LC_ALL=C"),
        (_of(DRAM, "byte", "(3; 4)"), r"'\(3; 4\)' is no number"),
        (_HEADER + "\n", "the table has no line of a kernel"),
        (NCU + RAW, "has several tables; put each into a file of its own"),
        (_of(DRAM, "byte", "3").replace('"3"', '"3","",""'), "is damaged: .* loss of data"),
        (_of("ipc", "", "1"), "no metric of .* gives a field"),
        (NCU.replace('"5.0"', '"8.0"'), r"nvidia-k620, of compute capability 5\.0; .* 8\.0; pr"),
        (
            _TWICE,
            "2 launches .*matmul_tiled.* on device 0 of compute capability 5.0, .* on device 1 of",
        ),
        (RAW.replace('"Mbyte"', '"3"'), "has the unit '3'"),
        (NCU.replace("Metric Value", "Other"), "no metric of .* gives a field"),
    ],
)
def test_wrong_tables_are_refused(text: str, said: str) -> None:
    with pytest.raises(TableError, match=said):
        profile_kernel(MATMUL.build(), K620, metrics=profiler_csv.parse_profiler_csv(text)).at(
            SIZES
        )


def test_predict_takes_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ncu.csv"
    path.write_text(NCU)
    command = ["predict", "matmul-tiled/square/16x16", "n=64", "m=64", "l=64", "--model"]
    arguments = ["volkov,roofline-bytes", "--on", "nvidia-k620", "--metrics", str(path)]
    assert main([*command, *arguments]) == 0
    assert "measured: occupancy (sm__warps_active" in capsys.readouterr().out
