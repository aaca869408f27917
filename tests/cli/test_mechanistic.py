"""Mechanistic models on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from countperf.devices.nvcc import find_program
from countperf.mechanistic.predict_all import model_names
from tests.cli.conftest import Run

KERNEL = "matmul-tiled/square/16x16"
MATMUL = f"{KERNEL} n=64 m=64 l=64"
ON = "--on nvidia-k620 --registers 32"
GTX = "--on nvidia-gtx-970 --registers 40"


def test_predict_prints_a_table_of_the_models(run: Run) -> None:
    lines = run(f"predict {MATMUL} --model volkov,roofline,tmm {ON}").out.splitlines()
    titles = next(i for i, line in enumerate(lines) if line.split()[0] == "model")
    assert lines[titles].split() == ["model", "time", "bound", "ignores"]
    assert [line.split()[0] for line in lines[titles + 1 :][:2]] == ["volkov", "roofline"]
    assert lines[titles + 1].split()[2] == "µs"


@pytest.mark.parametrize("model", ["--model all", ""])
def test_all_models_answer_for_a_described_device(model: str, run: Run) -> None:
    models = run(f"predict {MATMUL} {model} {ON} --json").json["models"]
    assert list(models) == list(model_names())
    assert models["volkov"]["time_s"] > 0
    assert models["mwp-cwp"]["lacks"] == "device.issue_cycles"


def test_several_sizes_are_several_tables(run: Run) -> None:
    printed = run(f"predict {KERNEL} n=64,128 m=64 l=64 --model roofline {ON} --json").json
    times = [tables["models"]["roofline"]["time_s"] for tables in printed["sizes"]]
    assert times[1] == pytest.approx(2 * times[0])


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (f"--model volkov,linear {ON}", "no mechanistic model is called 'linear'"),
        (f"--model linear {ON}", "no mechanistic model is called 'linear'"),
        (f"--model volkov {ON} --explain", "--explain is for fitted weights"),
        ("--model volkov", "--on SLUG"),
        ("--model volkov --on nvidia-voodoo", "no description of a device"),
        ("--analysis sass", "--analysis is for mechanistic models"),
        ("--on nvidia-a100,nvidia-h100 --explain", "--explain is for one device"),
        ("--on voodoo,banshee", "no device answers: no fit and no description"),
    ],
)
def test_what_cannot_be_asked_is_an_error_in_one_line(more: str, said: str, run: Run) -> None:
    assert said in run(f"predict {MATMUL} {more}", status=1).err


def test_explained_steps_are_formulas_and_a_crossover(run: Run) -> None:
    asked = "predict published-apsp/16x16 --model tmm --explain --on nvidia-gtx-480 --registers 20"
    lines = run(f"{asked} --against-kernel published-apsp/32x32").out.splitlines()
    assert lines[2].split() == ["T_1,", "operations", "2*n^3", "2", "n^3"]
    assert lines[-1] == "fewer steps: published-apsp/32x32 from n = 64 on"
    printed = run(f"{asked} --json").json
    assert (printed["size"], printed["multiple"]) == ("n", 32)
    assert printed["bounds"] == [{"from": 64, "bound": "memory"}]
    assert "--anchor has no place" in run(f"{asked} --anchor n=64:1", status=1).err


def test_several_devices_are_one_table_that_fits_a_terminal(run: Run) -> None:
    devices = "amd-radeon-pro-w6600,nvidia-h100,pocl-epyc-zen5,nvidia-titan-x,voodoo"
    command = f"predict {KERNEL} n=64,128 m=64 l=64 --registers 32 --on {devices}"
    lines = run(command).out.splitlines()
    answers = run(f"{command} --json").json["answers"]
    other = run(f"{command} --json --level 0.9").json["answers"]
    intervals = [one["interval_s"] for one in answers if one["interval_s"]]
    assert intervals != [one["interval_s"] for one in other if one["interval_s"]]
    assert lines[0] == "matmul_tiled, m = 64, l = 64"
    assert lines[1].startswith("nvidia-h100 is the fastest at n = 128, m = 64, l = 64: amd-")
    first = next(i for i, line in enumerate(lines) if line.split()[0] == "n")
    assert lines[first].split() == ["n", "device", "model", "time", "bound", "missing"]
    assert lines[first + 1].split()[:3] == ["64", "nvidia-h100", "roofline"]
    assert max(map(len, lines)) <= 100
    assert "is called 'voodoo'" in lines[-1]
    notes = " ".join(lines[first + 15 :])
    assert "pocl-epyc-zen5, structural: leaves out vector loads from global memory at" in notes
    assert [row["device"] for row in answers] == [
        next(word for word in line.split() if word in devices.split(","))
        for line in lines[first + 1 :][:14]
    ]


def test_occupancy_says_what_limits_it(run: Run) -> None:
    lines = run(f"occupancy {MATMUL} {GTX}").out.splitlines()
    (now,) = [line.split() for line in lines if "matmul_tiled  " in line]
    assert now[1:] == ["256", "40", "2048", "6", "48", "75", "%", "registers"]
    (program,) = run(f"occupancy {MATMUL} {GTX} --json").json["programs"]
    assert (program["limited_by"], program["groups"]) == ("registers", 6)


def test_a_sweep_by_many_models_fits_a_terminal(run: Run) -> None:
    models = "roofline,volkov,transit,mwp-cwp-restated,mwp-cwp-corrected,wfg-corrected"
    lines = run(f"sweep {MATMUL} --model {models} {ON}").out.splitlines()
    assert max(map(len, lines)) <= 100
    titles = [line.split()[2:] for line in lines if line.strip().startswith("occupancy")]
    assert [name for names in titles for name in names] == models.split(",")
    assert len(titles) == 2


@pytest.mark.extra("plot")
def test_curves_and_the_roofline_are_drawn(tmp_path: Path, run: Run) -> None:
    curves, roof = tmp_path / "curves.svg", tmp_path / "roof.svg"
    run(f"predict {MATMUL} --model volkov {ON} --figure {roof}")
    both = "--on nvidia-h100,nvidia-k620 --registers 32"
    said = run(f"predict {MATMUL} --model volkov {both} --figure {tmp_path / 'both.svg'}").err
    assert said.splitlines() == [
        "countperf: no roof of L1: nvidia-h100 states no l1_bandwidth_byte_per_s",
        "countperf: no roof of L1, L2: nvidia-k620 states no l1_bandwidth_byte_per_s,"
        " l2_bandwidth_byte_per_s",
    ]
    drawn = (tmp_path / "both.svg").read_bytes()
    assert drawn.count(b"-ceiling") == 5
    said = run(f"predict {MATMUL} --on pocl-epyc-zen3 --figure {tmp_path / 'empty.svg'}").err
    assert "no roof of L1, L2, memory" in said
    assert "countperf characterize --store runs/pocl-epyc-zen3.json" in said
    printed = run(f"sweep {MATMUL} --model volkov,roofline {ON} --figure {curves}").out
    lines = printed.splitlines()
    assert lines[2].split() == ["occupancy", "sub-groups", "volkov", "roofline"]
    assert [line.split()[:2] for line in lines[3:6]] == [["1", "8"], ["2", "16"], ["3", "24"]]
    assert min(figure.stat().st_size for figure in (curves, roof)) > 1000


needs_tools = pytest.mark.skipif(
    find_program("nvcc") is None or find_program("nvdisasm") is None,
    reason="no nvcc or nvdisasm (extra 'nvcc')",
)


@needs_tools
def test_predict_takes_instructions_from_machine_code(run: Run) -> None:
    options = "--model merpsys --on nvidia-t4 --registers 32 --analysis sass --json"
    for command in ("predict", "sweep"):
        note = run(f"{command} {MATMUL} {options}").json["note"]
        assert note.startswith("instructions: machine code for compute capability 7.5")


@needs_tools
def test_an_application_takes_them_too_and_a_processor_has_none(tmp_path: Path, run: Run) -> None:
    (tmp_path / "steps.txt").write_text(f"kernel {MATMUL}\n")
    asked = f"application {tmp_path / 'steps.txt'} --on nvidia-t4 --registers 32 --json --analysis"
    counted, read = (run(f"{asked} {by}").json["time_s"] for by in ("counts", "sass"))
    alone = f"predict {MATMUL} --model merpsys --on nvidia-t4 --registers 32 --json --analysis sass"
    assert read == run(alone).json["models"]["merpsys"]["time_s"] != counted
    compared = "compare pocl-epyc-zen5 --model volkov --analysis sass"
    assert "leave --analysis out" in run(compared, status=1).err
