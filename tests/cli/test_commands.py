from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from countperf.cli import main
from countperf.errors import DeviceError
from countperf.fitting.fit import fit
from countperf.harness.devices import find_device
from countperf.machine_code.object_file import find_objdump
from countperf.properties.vector import PropertyVector
from tests.fitting.builders import KERNELS, SIZES, TEST_KERNEL, MadeUpKernel, measure
from tests.shipped import shipped_measurements

KERNEL = """
import loopy as lp
import numpy as np

def scale():
    kernel = lp.make_kernel(
        "{ [i] : 0 <= i < n }", "z[i] = 2*x[i]",
        [lp.GlobalArg("x,z", np.float32, shape="n"), lp.ValueArg("n", np.int32)],
        assumptions="n >= 1", lang_version=(2018, 2))
    return lp.split_iname(kernel, "i", 64, outer_tag="g.0", inner_tag="l.0")

def wrong():
    return 3

def broken():
    raise RuntimeError("no luck")
"""


@pytest.fixture
def kernel_file(tmp_path: Path) -> Path:
    path = tmp_path / "kernels.py"
    path.write_text(KERNEL)
    return path


def _json(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_count_prints_symbols_and_values(
    kernel_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["count", f"{kernel_file}:scale", "n=128", "--json"]) == 0
    printed = _json(capsys)
    assert printed["kernel"] == "scale"
    assert printed["properties"]["flop.mul.f32"] == {
        "symbolic": "[n] -> { n }",
        "exact": True,
        "value": 128,
    }


def test_count_without_sizes_prints_symbols_alone(
    kernel_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["count", f"{kernel_file}:scale", "--json"]) == 0
    assert "value" not in _json(capsys)["properties"]["flop.mul.f32"]


def test_count_prints_the_structure_of_a_kernel(
    kernel_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["count", f"{kernel_file}:scale", "n=128", "--analysis"]
    assert main([*command, "--json"]) == 0
    rows = _json(capsys)["rows"]
    assert [row["value"] for row in rows if row["kind"] == "instruction"] == [128]
    assert "; 16 transactions of 32 bytes" in next(
        r["detail"] for r in rows if r["kind"] == "access"
    )
    assert main(command) == 0
    assert "local 0 i_inner: 1; group 0 i_outer:" in capsys.readouterr().out
    assert main([*command[:2], "--analysis"]) == 0
    assert "transactions" not in capsys.readouterr().out
    path = tmp_path / "vector.json"
    path.write_text(json.dumps(PropertyVector.from_mapping({"groups": 7}).to_document()))
    assert main(["count", str(path), "--analysis"]) == 1
    assert "no structure" in capsys.readouterr().err


def test_a_catalogue_name_is_a_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["count", "n-body", "n=256"]) == 0
    (line,) = [x for x in capsys.readouterr().out.splitlines() if "f32.rsqrt" in x]
    assert line.split()[1] == str(256 * 255)


def test_a_property_vector_document_is_a_kernel(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "vector.json"
    path.write_text(json.dumps(PropertyVector.from_mapping({"groups": 7}).to_document()))
    assert main(["count", str(path), "--json"]) == 0
    assert _json(capsys)["properties"]["groups"]["value"] == 7


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("scal", "no function of the name 'scal' (there: scale, wrong, broken)"),
        ("wrong", "it has to be a loopy.TranslationUnit"),
        ("broken", "RuntimeError: no luck"),
    ],
)
def test_what_is_no_kernel_is_an_error_in_one_line(
    kernel_file: Path, capsys: pytest.CaptureFixture[str], function: str, message: str
) -> None:
    assert main(["count", f"{kernel_file}:{function}"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert len(captured.err.splitlines()) == 1


def test_near_names_are_offered(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["count", "nbody"]) == 1
    assert "n-body" in capsys.readouterr().err


def test_missing_sizes_are_named(kernel_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["count", f"{kernel_file}:scale", "m=3"]) == 1
    assert "has no parameter m; its sizes are: n" in capsys.readouterr().err
    assert main(["predict", f"{kernel_file}:scale", "--weights", "pocl-epyc-zen5"]) == 1
    error = capsys.readouterr().err
    assert "no value for parameter n" in error
    assert "add n=1024" in error


@pytest.mark.parametrize("arguments", [["count"], ["count", "n-body", "n"], ["fly"], []])
def test_wrong_usage_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage" in capsys.readouterr().err


@pytest.mark.parametrize("module", ["countperf", "countperf.cli"])
def test_imports_are_lazy(module: str) -> None:
    heavy = ["islpy", "loopy", "scipy", "pandas", "pyopencl", "numpy", "matplotlib"]
    program = f"import {module}, sys; print([m for m in {heavy!r} if m in sys.modules])"
    printed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert printed.strip() == "[]"


def test_predictions_follow_the_documented_shape(
    kernel_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = "pocl-epyc-zen5"
    assert main(["predict", f"{kernel_file}:scale", "n=65536", "--weights", weights, "--json"]) == 0
    printed = _json(capsys)
    assert set(printed) == {
        "kernel",
        "device",
        "parameters",
        "time_s",
        "interval_s",
        "interval_level",
        "breakdown_s",
        "complete",
        "caches",
    }
    assert printed["device"] == weights
    assert printed["time_s"] == pytest.approx(sum(printed["breakdown_s"].values()))
    shares = list(printed["breakdown_s"].values())
    assert shares == sorted(shares, reverse=True)


def test_a_property_without_a_weight_says_what_to_measure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = shipped_measurements("pocl-epyc-zen5")
    store, weights = tmp_path / "some.jsonl", tmp_path / "weights.json"
    whole.select(lambda m: m.family in ("stride1", "empty")).write_file(store)
    assert main(["fit", str(store), "--output", str(weights)]) == 0
    capsys.readouterr()
    path = tmp_path / "vector.json"
    path.write_text(json.dumps(PropertyVector.from_mapping({"flop.div.f64": 9}).to_document()))
    options = ["--weights", str(weights)]
    assert main(["predict", str(path), *options]) == 1
    error = capsys.readouterr().err
    assert "flop.div.f64" in error
    assert "countperf measure --profile broad" in error
    assert main(["predict", str(path), *options, "--incomplete"]) == 0
    assert "without the cost of flop.div.f64" in capsys.readouterr().out


@pytest.mark.device
def test_a_small_campaign_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if main(["doctor", "--json"]) != 0:
        pytest.skip("no OpenCL device works")
    doctor = _json(capsys)
    label = doctor["default"]
    assert any(device["works"] for device in doctor["devices"])
    assert label in [device["label"] for device in doctor["devices"]]
    store, weights = tmp_path / "campaign.jsonl", tmp_path / "weights.json"
    command = ["measure", "--profile", "quick", "--family", "empty", "--device", label]
    assert main([*command, "--store", str(store), "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["measured"] > 0
    assert "profile quick: " in captured.err
    assert main(["fit", str(store), "--output", str(weights), "--json"]) == 0
    assert _json(capsys)["written"] == str(weights)
    assert main(["predict", "empty/16x16", "n=512", "m=512", "--weights", str(weights)]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first.split()[1] in ("ns", "µs", "ms")
    assert main(["evaluate", str(store), "--weights", str(weights)]) == 1
    assert "measure test kernels" in capsys.readouterr().err


def test_evaluate_also_ranks_variants(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    variants = [
        MadeUpKernel(
            name=f"variant{adds}",
            family="variants-toy",
            purpose="variant",
            counts={"flop.add.f32": f"[n] -> {{ {adds}n }}"},
        )
        for adds in (500, 900)
    ]
    measured = measure((*KERNELS, TEST_KERNEL, *variants))
    store, weights = tmp_path / "campaign.jsonl", tmp_path / "weights.json"
    measured.write_file(store)
    fit(measured).weights.write_file(weights)
    command = ["evaluate", str(store), "--weights", str(weights)]

    assert main([*command, "--json"]) == 0
    ranking = _json(capsys)["ranking"]
    assert [each["parameters"]["n"] for each in ranking["sets"]] == list(SIZES)
    assert ranking["mean"]["kendall_tau"] == 1.0
    assert main([*command, "--purpose", "test"]) == 0
    assert "ranking of variants" not in capsys.readouterr().out
    assert main(command) == 0
    assert "ranking of variants" in capsys.readouterr().out


def test_a_foreign_file_is_refused_by_field(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text('{"format": "something-else", "version": 1}\n')
    assert main(["fit", str(path)]) == 1
    assert "$.format" in capsys.readouterr().err


def test_count_in_the_view_of_the_compiler(
    kernel_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["count", f"{kernel_file}:scale", "--view", "compiled", "--json"]) == 0
    printed = _json(capsys)
    assert printed["view"] == "compiled"
    assert printed["properties"]["flop.mul.f32"]["symbolic"] == "[n] -> { n }"
    assert main(["count", f"{kernel_file}:scale", "--view", "compiled"]) == 0
    assert "compiled view" in capsys.readouterr().out


@pytest.mark.skipif(find_objdump() is None, reason="objdump is not installed")
def test_compiled_prints_what_pocl_made_of_a_kernel(
    kernel_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        find_device("pocl:0")
    except DeviceError as error:
        pytest.skip(str(error))
    assert main(["compiled", f"{kernel_file}:scale", "n=128", "--json"]) == 0
    printed = _json(capsys)
    assert {name.partition(".")[0] for name in printed} == {"code"}
    assert printed["code.store_vector"] >= 1


def test_a_property_vector_has_no_compiled_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "vector.json"
    path.write_text(json.dumps(PropertyVector.from_mapping({"groups": 7}).to_document()))
    assert main(["compiled", str(path)]) == 1
    assert "no code to compile" in capsys.readouterr().err
