"""Times measured elsewhere: tables, and files of other tuners."""

from __future__ import annotations

import gzip
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from countperf.api.evaluation import fit, measurements_of_table
from countperf.cli import main
from countperf.errors import DocumentError, TableError
from countperf.measuring import MeasurementSet
from countperf.measuring.tables import ELSEWHERE, UNKNOWN, identity_elsewhere, read_times
from countperf.models.weights import WeightSet
from tests.models.builders import sum_model

GROUPS = sum_model(
    {"launch": ["launches"], "starts": ["groups"]},
    ignored=["flop.*", "iop.*", "gmem.*", "lmem.*", "barrier.*"],
)
DEVICE = identity_elsewhere("nvidia-k40c", "Tesla K40c", 15)

MY_KERNELS = """
import loopy as lp
import numpy as np


def scale(items=64):
    arguments = [
        lp.GlobalArg("x", np.float32, shape="(n,)"),
        lp.GlobalArg("z", np.float32, shape="(n,)", is_input=False),
        lp.ValueArg("n", np.int32),
    ]
    unit = lp.make_kernel("{ [i] : 0 <= i < n }", "z[i] = 2*x[i]", arguments,
                          assumptions="n >= 1", lang_version=(2018, 2))
    return lp.split_iname(unit, "i", items, outer_tag="g.0", inner_tag="l.0")
"""
_MADE: dict[str, Any] = {}
exec(MY_KERNELS, _MADE)
scale: Callable[[int], Any] = _MADE["scale"]
ROWS = [(items, n) for items in (32, 64, 128) for n in (2**k for k in range(10, 20))]


def _seconds(n: int) -> float:
    return 5e-6 + 3e-9 * -(-n // 64)


def test_rows_become_measurements_that_say_what_is_not_known() -> None:
    sizes = [64, 100, 6400]
    table = pd.DataFrame({"kernel": "scale", "n": sizes, "seconds": [*map(_seconds, sizes)]})
    measured = MeasurementSet.from_table(table, {"scale": scale(64)}, device=DEVICE)
    environment = measured.header.environment
    known = measured.device, environment.processor, environment.cores
    assert known == (DEVICE, UNKNOWN, 0)
    times = {entry.case: entry.time_s for entry in measured}
    assert times == {f"scale/n={n}": _seconds(n) for n in sizes}
    second = measured.measurements[1]
    assert (second.remarks, second.group_shape, second.noise) == ((ELSEWHERE,), (64, 1), 0)
    vector = second.property_vector()
    assert vector is not None
    counts = vector.evaluate({"n": 100})
    assert (counts["groups"], counts["gmem.load.32.stride1"]) == (2, 100)
    again = MeasurementSet.read_lines(measured.to_text().splitlines())
    assert again.measurements == measured.measurements


def test_functions_build_a_kernel_for_each_choice_and_fits_follow() -> None:
    table = pd.DataFrame(ROWS, columns=["items", "n"])
    table["microseconds"] = [1e6 * (4e-6 + 2e-9 * (n // items)) for items, n in ROWS]
    table["kernel"] = "scale"
    measured = MeasurementSet.from_table(table, {"scale": scale}, device=DEVICE)
    weights = fit(measured, model=GROUPS).weights
    assert {entry.variant for entry in measured} == {"items=32", "items=64", "items=128"}
    assert weights.by_feature["groups"].value_s == pytest.approx(2e-9)


GOOD = {"kernel": ["scale", "scale"], "n": [64, 128], "seconds": [1e-5, 2e-5]}


@pytest.mark.parametrize(
    ("table", "message", "row", "column"),
    [
        ({"seconds": [1e-5, 0.0]}, r"row 2, column 'seconds': .*0.0.* is no time", 2, "seconds"),
        ({"seconds": [1e-5, None]}, r"row 2, column 'seconds': .* drop rows", 2, "seconds"),
        ({"n": [64, None]}, r"row 2, column 'n': nothing stands there", 2, "n"),
        ({"n": [64, 2.5]}, r"row 2, column 'n': 2.5 is no size", 2, "n"),
        ({"n": [64, -1]}, r"row 2, column 'n': -1 is no size", 2, "n"),
        ({"n": [64, 64]}, r"row 2, .*case scale/n=64 stands in row 1 already", 2, "kernel"),
        ({"kernel": ["scale", "axpy"]}, r"row 2, .*no kernel is called 'axpy'", 2, "kernel"),
        ({"purpose": ["test", "fun"]}, r"row 2, column 'purpose': 'fun' is none", 2, "purpose"),
        ({"registers": [9, 9]}, r"column 'registers' is no size .*ignore=", None, "registers"),
        ({"milliseconds": [1, 1]}, r"2 columns of times", None, "seconds"),
        ({"kernel": None}, "no column 'kernel'", None, "kernel"),
        ({"n": None}, "row 1, column 'n': the table has no such", 1, "n"),
    ],
)
def test_errors_name_row_and_column(
    table: dict[str, Any], message: str, row: int | None, column: str
) -> None:
    columns = {name: cells for name, cells in {**GOOD, **table}.items() if cells is not None}
    with pytest.raises(TableError, match=message) as raised:
        MeasurementSet.from_table(pd.DataFrame(columns), {"scale": scale(64)}, device=DEVICE)
    assert (raised.value.row, raised.value.column) == (row, column)


def test_columns_may_be_ignored() -> None:
    table, ignore = pd.DataFrame(GOOD).assign(registers=9), ["registers"]
    kernels = {"scale": scale(64)}
    assert len(MeasurementSet.from_table(table, kernels, device=DEVICE, ignore=ignore)) == 2


@pytest.mark.parametrize(
    "text",
    [
        "kernel,n,seconds\nscale,65536,0.0001\nscale,131072,2e-4\n",
        "\ufeff# from a spreadsheet\nkernel,n,microseconds\nscale,65536,100\nscale,131072,200\n",
        'kernel, n, milliseconds\n"scale", 65536, .1\n\nscale, 131072.0, 0.2\n',
    ],
)
@pytest.mark.parametrize("name", ["times.csv", "TIMES.CSV", "times.txt"])
def test_tables_are_read_by_what_they_are(tmp_path: Path, text: str, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(text.encode())
    measured = MeasurementSet.from_table(read_times(path), {"scale": scale(64)}, device=DEVICE)
    assert {entry.case: entry.time_s for entry in measured} == pytest.approx(
        {"scale/n=65536": 1e-4, "scale/n=131072": 2e-4}
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty; read are"),
        ("kernel,n,n,seconds\nscale,1,1,1\n", "column 'n.1' is no size"),
        ("kernel,n,seconds\nscale,1,1,9\n", "no table: Length of header or names does not match"),
        ('kernel,n,seconds\n"scale,1,1\n', "no table: .*EOF inside string.*; read are"),
        ("kernel n seconds\nscale 1 1\n", r"no column 'kernel'.*\(columns: kernel n seconds\)"),
        ("kernel;n;seconds\nscale;1;1\n", r"no column 'kernel'.*; commas separate those"),
        ("\x1f\ufffd", "no column 'kernel'"),
        ("kernel,n,seconds\nscale,1e308,1\n", "row 1, column 'n': .* beyond 2147483647"),
        ("kernel,n,seconds\nscale,2147483648,1\n", "row 1, column 'n': .* beyond 2147483647"),
        ('kernel,n,seconds\nscale,"65,536",1\n', "row 1, column 'n': '65,536' is no size"),
        ("kernel,n,items,seconds\nbuilt,1,0,1\n", "row 1, column 'kernel': .*'items': 0.*drop"),
        ("kernel,n,seconds\nnothing,1,1\n", "returns no kernel, but NoneType"),
    ],
)
def test_tables_that_are_none_are_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text)
    kernels = {"scale": scale(64), "built": scale, "nothing": lambda: None}
    with pytest.raises((TableError, DocumentError), match=said):
        MeasurementSet.from_table(read_times(path), kernels, device=DEVICE)


@pytest.mark.parametrize("folder", [b"tables", b"\xff tables"])
def test_the_command_fits_a_table(
    folder: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path /= os.fsdecode(folder)  # names of files need not be UTF-8
    try:
        tmp_path.mkdir()
    except OSError:
        pytest.skip("this file system takes names in UTF-8 alone")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    (tmp_path / "my.py").write_text(MY_KERNELS)
    lines = [f"scale,{items},{n},{4e-6 + 2e-9 * (n // items)}" for items, n in ROWS]
    table = tmp_path / os.fsdecode(folder + b".csv")
    table.write_text("\n".join(["kernel,items,n,seconds", *lines]))
    output = tmp_path / "weights.json"
    command = ["fit", str(table), "--kernels", str(tmp_path / "my.py"), "--output", str(output)]
    GROUPS.write_file(tmp_path / "groups.json")
    command += ["--model", str(tmp_path / "groups.json")]
    assert main(command) != 0  # it does not say what was measured
    assert main([*command, "--device", "nvidia-titan-x"]) == 0
    weights = WeightSet.read_file(output)
    assert weights.device.slug == "nvidia-titan-x"
    assert weights.by_feature["groups"].value_s == pytest.approx(2e-9)


def test_a_table_without_a_column_of_kernels_takes_one_by_name(tmp_path: Path) -> None:
    (tmp_path / "my.py").write_text(MY_KERNELS)
    path = tmp_path / "times.csv"
    path.write_text("items,n,milliseconds\n32,64,0.5\n64,64,0.25\n")
    measured = measurements_of_table(
        path, kernels=f"{tmp_path / 'my.py'}:scale", device="nvidia-titan-x"
    )
    times = {entry.variant: entry.time_s for entry in measured}
    assert times == {"items=32": 0.5e-3, "items=64": 0.25e-3}


def kernel_tuner_cache() -> dict[str, Any]:
    """A cache of 32 configurations, one of which failed."""
    others = {"compile_time": 100.0, "benchmark_time": 50.0}
    cache: dict[str, dict[str, Any]] = {
        f"{x},{y}": {"x": x, "y": y, "time": 2.0 * (1 + abs(x - 4) + abs(y - 3)), **others}
        for x in (1, 2, 4, 8)
        for y in range(8)
    }
    cache["1,0"]["time"] = "CompilationFailedConfig"
    header = {"device_name": "gpu", "kernel_name": "toy", "tune_params_keys": ["x", "y"]}
    return {**header, "cache": cache}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "toy.json"
    path.write_text(json.dumps(kernel_tuner_cache()).replace("}, ", "},\n"))
    return path


@pytest.mark.parametrize("end", [",", ",\n", ',\n"8,7": {"x": 8, "y"', ',\n"8,7": {"x": 8, "y": ['])
def test_kernel_tuner_cache_is_read_also_if_a_killed_run_left_it_open(path: Path, end: str) -> None:
    table = read_times(path)
    assert list(table.columns) == ["x", "y", "milliseconds"]
    assert len(table) == 31  # one of 32 failed
    assert table.iloc[0].tolist() == [1, 1, 2 * (1 + 3 + 2)]
    assert min(table["milliseconds"].tolist()) == 2
    text = path.read_text()
    path.write_text(text[: text.index(',\n"8,7"')] + end)
    assert read_times(path).to_numpy().tolist() == table.to_numpy().tolist()[:-1]


@pytest.mark.parametrize(
    "failure",
    [
        {"time": "InvalidConfig"},
        {"__error__": "RuntimeFailedConfig"},
        {"time": 1.0, "__error__": "RuntimeFailedConfig"},
        {"time": 1e20},
        {"time": None},
        {"time": math.inf},
        {"GFLOP/s": "CompilationFailedConfig"},
    ],
)
def test_failures_of_kernel_tuner(tmp_path: Path, failure: dict[str, Any]) -> None:
    content = {"tune_params_keys": ["x"], "objective": ["GFLOP/s"], "cache": {}}
    content["cache"] = {"1": {"x": 1, **failure}, "2": {"x": 2, "time": 3.0, "GFLOP/s": 1.0}}
    path = tmp_path / "cache.json.gz"
    path.write_bytes(gzip.compress(json.dumps(content).encode()))
    assert read_times(path).to_dict("list") == {"x": [2], "milliseconds": [3.0]}


def _cache(entry: Any, **more: Any) -> dict[str, Any]:
    return {"cache": {"1": entry}, "tune_params_keys": ["x"], **more}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([], "no cache of Kernel Tuner; read are: a table"),
        ({"times": []}, "no cache of Kernel Tuner; read are: a table"),
        ({"cache": {}}, r"\$.tune_params_keys: Field required"),
        (_cache({}, tune_params_keys=[1]), r"\$.tune_params_keys\[0\]: .* a valid string"),
        (_cache(3), r'\$.cache\["1"\]: Input should be an object'),
        (_cache({}, cache={}), "no configuration that ran"),
        (_cache({"time": 1.0}), r"\$.cache\['1'\] has no field 'x'"),
        (_cache({"x": 1, "time": -1}), "time is no time: -1"),
        (_cache({"x": 1, "time": 0}), "time is no time: 0"),
        (_cache({"x": 1, "time": [1]}), r"time is no time: \[1\]"),
        (_cache({"x": 1, "time": True}), "time is no time: True"),
        (_cache({"x": 1, "s": 2}, objective="s"), "no field 'time': tune with the objective"),
    ],
)
def test_damage_is_named(content: Any, said: str, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text(json.dumps(content))
    with pytest.raises(DocumentError, match=said):
        read_times(tmp_path / "bad.json")
