"""Tables of times measured elsewhere become measurements; what is missing is marked."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import loopy as lp
import numpy as np
import pandas as pd
import pytest
from loopy.version import LOOPY_USE_LANGUAGE_VERSION_2018_2

from countperf.cli import main
from countperf.errors import DocumentError, TableError
from countperf.measurements import MeasurementSet
from countperf.measurements.recorded import (
    read_kernel_tuner_cache,
    read_t4_results,
    read_times,
)
from countperf.measurements.tables import ELSEWHERE, UNKNOWN, identity_elsewhere
from countperf.models.weights import WeightSet
from countperf.workflow.fitting import fit
from countperf.workflow.tables import measurements_of_table

DEVICE = identity_elsewhere("nvidia-k40c", "Tesla K40c", 15)

MY_KERNELS = """
import loopy as lp
import numpy as np
from loopy.version import LOOPY_USE_LANGUAGE_VERSION_2018_2


def scale(items=64):
    unit = lp.make_kernel(
        "{ [i] : 0 <= i < n }",
        "z[i] = 2*x[i]",
        [
            lp.GlobalArg("x", np.float32, shape="(n,)"),
            lp.GlobalArg("z", np.float32, shape="(n,)", is_input=False),
            lp.ValueArg("n", np.int32),
        ],
        assumptions="n >= 1",
        lang_version=LOOPY_USE_LANGUAGE_VERSION_2018_2,
    )
    return lp.split_iname(unit, "i", items, outer_tag="g.0", inner_tag="l.0")
"""


def scale(items: int) -> Any:
    """Build ``z = 2 x`` for groups of some items."""
    unit = lp.make_kernel(
        "{ [i] : 0 <= i < n }",
        "z[i] = 2*x[i]",
        [
            lp.GlobalArg("x", np.float32, shape="(n,)"),
            lp.GlobalArg("z", np.float32, shape="(n,)", is_input=False),
            lp.ValueArg("n", np.int32),
        ],
        assumptions="n >= 1",
        lang_version=LOOPY_USE_LANGUAGE_VERSION_2018_2,
    )
    return lp.split_iname(unit, "i", items, outer_tag="g.0", inner_tag="l.0")


def _seconds(n: int) -> float:
    return 5e-6 + 3e-9 * -(-n // 64)


def test_rows_become_measurements_that_say_what_is_not_known() -> None:
    sizes = [64, 100, 6400]
    table = pd.DataFrame({"kernel": "scale", "n": sizes, "seconds": [*map(_seconds, sizes)]})

    found = MeasurementSet.from_table(
        table, {"scale": scale(64)}, device=DEVICE, transactions=["transactions.32x128"]
    )

    assert found.device == DEVICE
    assert found.header.environment.processor == UNKNOWN
    assert found.header.environment.cores == 0
    assert [(each.case, each.time_s) for each in found] == [
        ("scale/n=64", _seconds(64)),
        ("scale/n=100", _seconds(100)),
        ("scale/n=6400", _seconds(6400)),
    ]
    second = found.measurements[1]
    assert second.remarks == (ELSEWHERE,)
    assert (second.group_shape, second.noise) == ((64, 1), 0)
    vector = second.property_vector()
    assert vector is not None
    counts = vector.evaluate({"n": 100})
    # 100 elements are 400 bytes: 4 lines, the last one shared with nothing; two groups
    assert (counts["groups"], counts["transactions.32x128.load"]) == (2, 4)
    again = MeasurementSet.read_text(found.to_text())
    assert again.measurements == found.measurements


def test_functions_build_a_kernel_for_each_choice_and_fits_follow() -> None:
    rows = [(items, n) for items in (32, 64, 128) for n in (2**k for k in range(10, 20))]
    table = pd.DataFrame(rows, columns=["items", "n"])
    table["microseconds"] = [1e6 * (4e-6 + 2e-9 * (n // items)) for items, n in rows]
    table["kernel"] = "scale"

    found = MeasurementSet.from_table(table, {"scale": scale}, device=DEVICE)
    weights = fit(found, expression="launch + w_group*groups").weights

    assert {each.variant for each in found} == {"items=32", "items=64", "items=128"}
    assert {p.name: p.value for p in weights.parameters} == pytest.approx({"w_group": 2e-9})


@pytest.mark.parametrize(
    ("change", "message", "row", "column"),
    [
        ({"seconds": [1e-5, 0.0]}, r"row 2, column 'seconds': .*0.0.* is no time", 2, "seconds"),
        ({"seconds": [1e-5, None]}, r"row 2, column 'seconds': .* drop rows", 2, "seconds"),
        ({"n": [64, None]}, r"row 2, column 'n': nothing stands there", 2, "n"),
        ({"n": [64, 2.5]}, r"row 2, column 'n': 2.5 is no size", 2, "n"),
        ({"n": [64, -1]}, r"row 2, column 'n': -1 is no size", 2, "n"),
        ({"n": [64, 64]}, r"row 2: case scale/n=64 stands in row 1 already", 2, "kernel"),
        ({"kernel": ["scale", "axpy"]}, r"row 2, .*no kernel is called 'axpy'", 2, "kernel"),
        ({"purpose": ["test", "fun"]}, r"row 2, column 'purpose': 'fun' is none", 2, "purpose"),
        ({"registers": [9, 9]}, r"column 'registers' is no size .*ignore=", None, "registers"),
        ({"milliseconds": [1, 1]}, r"2 columns of times", None, "seconds"),
    ],
)
def test_errors_name_row_and_column(
    change: dict[str, list[Any]], message: str, row: int | None, column: str
) -> None:
    good = {"kernel": ["scale", "scale"], "n": [64, 128], "seconds": [1e-5, 2e-5]}
    kernels = {"scale": scale(64)}
    assert len(MeasurementSet.from_table(pd.DataFrame(good), kernels, device=DEVICE)) == 2
    with pytest.raises(TableError, match=message) as raised:
        MeasurementSet.from_table(pd.DataFrame({**good, **change}), kernels, device=DEVICE)
    assert (raised.value.row, raised.value.column) == (row, column)


def test_missing_columns_are_named() -> None:
    kernels = {"scale": scale(64)}
    with pytest.raises(TableError, match="no column 'kernel'"):
        MeasurementSet.from_table(pd.DataFrame({"seconds": [1.0]}), kernels, device=DEVICE)
    table = pd.DataFrame({"kernel": ["scale"], "seconds": [1.0]})
    with pytest.raises(TableError, match="row 1: the table has no column 'n'"):
        MeasurementSet.from_table(table, kernels, device=DEVICE)
    ignored = table.assign(n=64, registers=9)
    found = MeasurementSet.from_table(ignored, kernels, device=DEVICE, ignore=["registers"])
    assert len(found) == 1


def _cache(path: Path, *, is_open: bool = False) -> Path:
    entries = {
        "32": {"items": 32, "time": 0.25, "times": [0.25, 0.26]},
        "64": {"items": 64, "time": 0.125, "times": [0.125]},
        "4096": {"items": 4096, "time": "CompilationFailedConfig"},
    }
    text = json.dumps({"kernel_name": "scale", "tune_params_keys": ["items"], "cache": entries})
    path.write_bytes(gzip.compress(f"{text[:-2]},\n".encode() if is_open else text.encode()))
    return path


@pytest.mark.parametrize("is_open", [False, True])
def test_caches_of_kernel_tuner_are_tables(tmp_path: Path, *, is_open: bool) -> None:
    path = _cache(tmp_path / "cache.json.gz", is_open=is_open)
    table = read_kernel_tuner_cache(path)
    assert table["items"].tolist() == [32, 64, 4096]
    assert table["seconds"].tolist()[:2] == [0.25e-3, 0.125e-3]
    assert table["failure"].tolist() == ["", "", "CompilationFailedConfig"]
    assert table["runs"].tolist() == [2, 1, 0]
    assert read_times(path).columns.tolist() == ["items", "seconds"]


def test_t4_results_are_tables(tmp_path: Path) -> None:
    results = [
        {"configuration": {"items": 32}, "times": {"runtimes": [3, 5]}, "invalidity": "correct"},
        {
            "configuration": {"items": 64},
            "times": {"runtimes": [7]},
            "invalidity": "correct",
            "measurements": [{"name": "time", "value": 2, "unit": "ms"}],
        },
        {"configuration": {"items": 4096}, "times": {"runtimes": []}, "invalidity": "compile"},
    ]
    path = tmp_path / "t4.json"
    path.write_text(json.dumps({"metadata": {"timeunit": "microseconds"}, "results": results}))
    table = read_t4_results(path)
    assert table["seconds"].tolist()[:2] == pytest.approx([4e-6, 2e-3])
    assert table["failure"].tolist() == ["", "", "compile"]
    assert read_times(path)["items"].tolist() == [32, 64]


@pytest.mark.parametrize(
    ("content", "field"),
    [
        ({"cache": {}}, "$.tune_params_keys"),
        ({"tune_params_keys": ["a"], "cache": {"1": {"time": 1.0}}}, '$.cache["1"].a'),
        ({"tune_params_keys": [], "cache": {"1": {"time": -1.0}}}, '$.cache["1"].time'),
        ({"results": [{"invalidity": "correct"}]}, "$.results[0].configuration"),
        ({"results": [{"configuration": {}, "invalidity": "correct"}]}, "$.results[0]"),
        ({"times": []}, "$"),
    ],
)
def test_damaged_files_are_refused_with_the_field(
    tmp_path: Path, content: dict[str, Any], field: str
) -> None:
    path = tmp_path / "file.json"
    path.write_text(json.dumps(content))
    with pytest.raises(DocumentError) as raised:
        read_times(path)
    assert raised.value.field == field


def test_the_command_fits_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    (tmp_path / "my.py").write_text(MY_KERNELS)
    lines = [f"scale,{items},{n},{4e-6 + 2e-9 * (n // items)}" for items, n in _rows()]
    table = tmp_path / "table.csv"
    table.write_text("\n".join(["kernel,items,n,seconds", *lines]))
    output = tmp_path / "weights.json"
    command = ["fit", str(table), "--kernels", str(tmp_path / "my.py"), "--output", str(output)]
    command += ["--expression", "launch + w_group*groups"]

    assert main(command) != 0  # it does not say what was measured
    assert main([*command, "--device", "nvidia-titan-x"]) == 0

    weights = WeightSet.read_file(output)
    assert weights.device.slug == "nvidia-titan-x"
    assert {p.name: p.value for p in weights.parameters} == pytest.approx({"w_group": 2e-9})


def _rows() -> list[tuple[int, int]]:
    return [(items, n) for items in (32, 64, 128) for n in (2**k for k in range(10, 20))]


def test_a_cache_without_a_column_of_kernels_takes_one_by_name(tmp_path: Path) -> None:
    (tmp_path / "my.py").write_text(MY_KERNELS.replace('"{ [i] : 0 <= i < n }"', '"{[i]: 0<=i<n}"'))
    path = tmp_path / "times.csv"
    path.write_text("items,n,milliseconds\n32,64,0.5\n64,64,0.25\n")
    found = measurements_of_table(
        path, kernels=f"{tmp_path / 'my.py'}:scale", device="nvidia-titan-x"
    )
    assert [(each.variant, each.time_s) for each in found] == [
        ("items=32", 0.5e-3),
        ("items=64", 0.25e-3),
    ]
