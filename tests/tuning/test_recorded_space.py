"""Spaces read from files of other tuners, and searches replayed on them."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from countperf.cli import main
from countperf.errors import DocumentError, ParameterError
from countperf.measurements.recorded import read_times
from countperf.tuning.recorded_space import RecordedSpace, replay


def kernel_tuner_cache() -> dict[str, Any]:
    """A cache of 32 configurations, one of which failed."""
    cache: dict[str, dict[str, Any]] = {
        f"{x},{y}": {
            "x": x,
            "y": y,
            "time": 2.0 * (1 + abs(x - 4) + abs(y - 3)),
            "compile_time": 100.0,
            "benchmark_time": 50.0,
        }
        for x in (1, 2, 4, 8)
        for y in range(8)
    }
    cache["1,0"]["time"] = "CompilationFailedConfig"
    return {
        "device_name": "gpu",
        "kernel_name": "toy",
        "tune_params_keys": ["x", "y"],
        "cache": cache,
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "toy.json"
    found.write_text(json.dumps(kernel_tuner_cache()).replace("}, ", "},\n"))
    return found


def test_kernel_tuner_cache_is_read_in_seconds(path: Path) -> None:
    space = RecordedSpace.read_file(path)

    assert (space.name, space.device, len(space.configurations)) == ("toy", "gpu", 32)
    assert space.parameters == {"x": (1, 2, 4, 8), "y": tuple(range(8))}
    assert math.isnan(space.times_s[0])
    assert space.times_s[1] == pytest.approx(2e-3 * (1 + 3 + 2))
    assert space.costs_s[1] == pytest.approx(0.15)
    assert space.best_s == pytest.approx(2e-3)


def test_compressed_file_is_the_same(path: Path, tmp_path: Path) -> None:
    compressed = tmp_path / "toy.json.gz"
    compressed.write_bytes(gzip.compress(path.read_bytes()))

    np.testing.assert_array_equal(
        RecordedSpace.read_file(compressed).times_s, RecordedSpace.read_file(path).times_s
    )


def t4_row(block: Any, value: Any, unit: Any, **fields: Any) -> dict[str, Any]:
    """Return a result with a measurement ``time``."""
    measured = {"name": "time", "value": value, "unit": unit}
    row = {"configuration": {"block": block}, "invalidity": "correct", "measurements": [measured]}
    return {**row, **fields}


def ktt_row(block: int, duration: Any, status: str = "Ok") -> dict[str, Any]:
    """Return a result of KTT."""
    pairs = [{"Name": "block", "Value": block, "ValueType": "UnsignedInt"}]
    taken = {"TotalDuration": duration, "TotalOverhead": 95.0}
    return {"KernelName": "k", "Configuration": pairs, "Status": status, **taken}


MICRO = {"timeunit": "microseconds", "device": "gpu"}
KTT = {"Device": "RTX", "TimeUnit": "Microseconds"}
RUNS = {"measurements": [], "times": {"compilation_time": 7.0, "runtimes": [2.0, 4.0]}}
FAILED = {"times": {"runtimes": []}, "invalidity": "compile", "correctness": 0}
OTHER = {"measurements": [{"name": "Total", "value": 9, "unit": "Microseconds"}]}


@pytest.mark.parametrize(
    ("content", "times_s", "costs_s"),
    [  # the file's unit, unless the measurement has its own; the mean of runs without one
        ({"metadata": MICRO, "results": [t4_row(1, 60.0, "")]}, [60e-6], [math.nan]),
        ({"metadata": MICRO, "results": [t4_row(1, "60.0", None)]}, [60e-6], [math.nan]),
        ({"metadata": MICRO, "results": [t4_row(1, 2.0, "ms")]}, [2e-3], [math.nan]),
        ({"metadata": {"timeunit": "miliseconds"}, "results": [t4_row(1, 2, "")]}, [2e-3], None),
        ({"metadata": MICRO, "results": [t4_row(1, 0, "", **RUNS)]}, [3e-6], [13e-6]),
        ({"results": [t4_row(1, 0, "", objectives=["Total"], **OTHER)]}, [9e-6], [math.nan]),
        (
            {"metadata": MICRO, "results": [t4_row(1, 2, ""), t4_row(2, 1, "", **FAILED)]},
            [2e-6, math.nan],
            None,
        ),
        (
            {"metadata": MICRO, "results": [t4_row(1, 2, ""), t4_row(2, math.nan, "")]},
            [2e-6, math.nan],
            None,
        ),
        (
            {"Metadata": KTT, "Results": [ktt_row(8, 5.0), ktt_row(16, 0.0, "ValidationFailed")]},
            [5e-6, math.nan],
            [1e-4, 95e-6],
        ),
        (  # repetitions, one of which failed
            {
                "Metadata": KTT,
                "Results": [
                    ktt_row(8, 5.0),
                    ktt_row(16, 4.0),
                    ktt_row(8, 7.0),
                    ktt_row(8, 0.0, "DeviceLimitsExceeded"),
                ],
            },
            [6e-6, 4e-6],
            [297e-6, 99e-6],
        ),
    ],
)
def test_times_of_t4_and_ktt_have_their_units(
    tmp_path: Path, content: Any, times_s: list[float], costs_s: list[float] | None
) -> None:
    (tmp_path / "file.json").write_text(json.dumps(content))

    space = RecordedSpace.read_file(tmp_path / "file.json")

    assert space.times_s.tolist() == pytest.approx(times_s, nan_ok=True)
    if costs_s is not None:
        assert space.costs_s.tolist() == pytest.approx(costs_s, nan_ok=True)


@pytest.mark.parametrize("end", [",", ",\n", ',\n"8,7": {"x": 8, "y"', ',\n"8,7": {"x": 8, "y": ['])
def test_cache_that_a_killed_run_left_open_is_read(path: Path, end: str) -> None:
    whole = RecordedSpace.read_file(path)
    text = path.read_text()
    path.write_text(text[: text.index(',\n"8,7"')] + end)

    space = RecordedSpace.read_file(path)

    assert space.configurations == whole.configurations[:-1]
    assert space.best_s == whole.best_s


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
    (tmp_path / "cache.json").write_text(json.dumps(content))

    times = RecordedSpace.read_file(tmp_path / "cache.json").times_s

    assert times.tolist() == pytest.approx([math.nan, 3e-3], nan_ok=True)


T4 = {"metadata": MICRO, "results": [t4_row(1, 2, "")]}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([], "is no object; read are: a table"),
        ({"times": []}, "none of the formats that are read"),
        ({"cache": {}}, r"\$.tune_params_keys is no list"),
        ({"cache": {"a": {}}, "tune_params_keys": [1]}, "is no list of names"),
        ({"cache": {"a": 3}, "tune_params_keys": ["x"]}, r"\$.cache.a is no object"),
        ({"cache": {}, "tune_params_keys": ["x"]}, "no configuration that ran"),
        (
            {"cache": {"1": {"time": 1.0}}, "tune_params_keys": ["x"]},
            r'\$.cache\["1"\].x is missing',
        ),
        ({"cache": {"1": {"x": 1, "time": -1}}, "tune_params_keys": ["x"]}, r"time is negative"),
        ({"cache": {"1": {"x": 1, "time": 0}}, "tune_params_keys": ["x"]}, r"time is no time: 0"),
        ({"cache": {"1": {"x": 1, "time": [1]}}, "tune_params_keys": ["x"]}, r"time is no number"),
        ({"cache": {"1": {"x": [1], "time": 1}}, "tune_params_keys": ["x"]}, r"x is no number"),
        ({"cache": {"1": {"x": 1e308, "time": 1}}, "tune_params_keys": ["x"]}, r"x is no number"),
        (
            {"cache": {"1": {"x": 1, "score": 2}}, "tune_params_keys": ["x"], "objective": "score"},
            "the file's objective is score, which is no run time",
        ),
        ({"results": 3}, r"\$.results is no list"),
        ({"results": []}, r"\$.results is an empty list"),
        ({"results": [3]}, r"\$.results\[0\] is no object"),
        ({"results": [{"invalidity": "correct"}]}, r"configuration is no object"),
        ({"results": [{"configuration": {"x": 1}}]}, "a correct result without a time"),
        ({"results": [t4_row(1, 2, "")]}, "a time without a unit: add timeunit to"),
        ({"results": [t4_row(1, 2, "GFLOP/s")]}, "is no unit of time: 'GFLOP/s'"),
        ({"results": [t4_row(1, [2], "ms")]}, "measurements is no number"),
        ({"results": [t4_row(1, 2, "ms", times={"runtimes": 3})]}, "runtimes is no list"),
        ({"results": [t4_row(1, 2, "ms", times=3)]}, "times is no object"),
        ({"results": [t4_row(1, 2, "ms", measurements=3)]}, "measurements is no list"),
        ({"results": [t4_row(1, 2, "ms", objectives=3)]}, "is no list"),
        ({"results": [t4_row(1, 2, "ms")], "metadata": {"timeunit": "h"}}, "no unit of time: 'h'"),
        ({"Metadata": 3, "Results": [ktt_row(1, 2)]}, r"\$.Metadata is no object"),
        ({"Metadata": {}, "Results": [ktt_row(1, 2)]}, "TimeUnit is no unit of time: None"),
        ({"Metadata": KTT, "Results": [3]}, r"\$.Results\[0\] is no object"),
        ({"Metadata": KTT, "Results": [{"Configuration": 3}]}, "Configuration is no list"),
        ({"Metadata": KTT, "Results": [ktt_row(1, [2])]}, "is no number"),
        (
            {"results": [t4_row(1, 2, "ms"), {**t4_row(1, 2, "ms"), "configuration": {"y": 1}}]},
            r"\$.results\[1\] has the parameters y; the first has block",
        ),
    ],
)
def test_damage_is_named(content: Any, said: str, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text(json.dumps(content))
    for read in (RecordedSpace.read_file, read_times):
        with pytest.raises(DocumentError, match=said):
            read(tmp_path / "bad.json")


def test_values_that_are_texts_are_numbers(tmp_path: Path, capsys: Any) -> None:
    texts, numbers = tmp_path / "texts.json", tmp_path / "numbers.json"
    rows = [t4_row(str(block), 2, "ms") for block in (32, 64)]
    texts.write_text(json.dumps({"results": rows}))
    numbers.write_text(json.dumps({"results": [t4_row(block, 2, "ms") for block in (64, 32)]}))

    command = ["tune", "--replay", str(texts), "--measurements", "1", "--json"]
    assert main([*command, "--where", "block=64", "--prior", str(numbers)]) == 0
    assert json.loads(capsys.readouterr().out)["best"]["configuration"] == {"block": 64}
    assert main([*command, "--where", "block=64", "--where", "block=32"]) == 1
    assert "block is given twice" in capsys.readouterr().err
    numbers.write_text(json.dumps({"results": [t4_row(7, 2, "ms")]}))
    assert main([*command, "--prior", str(numbers)]) == 1
    assert "is common with those asked for" in capsys.readouterr().err


def test_half_of_a_compressed_file_is_refused(path: Path, tmp_path: Path) -> None:
    whole = gzip.compress(path.read_bytes())
    (tmp_path / "half.json.gz").write_bytes(whole[: len(whole) // 2])

    with pytest.raises(DocumentError, match="damaged gzip file"):
        RecordedSpace.read_file(tmp_path / "half.json.gz")


def test_where_keeps_some(path: Path) -> None:
    space = RecordedSpace.read_file(path).where(x=8)

    assert len(space.configurations) == 8
    assert space.best_s == pytest.approx(2e-3 * 5)
    with pytest.raises(DocumentError, match="no configuration of 'toy' with"):
        space.where(x=3)


def test_replay_finds_the_optimum(path: Path) -> None:
    result = replay(RecordedSpace.read_file(path), measurements=20)

    assert result.over_optimum == pytest.approx(1.0)
    assert result.best.configuration == {"x": 4, "y": 3}
    assert list(result.best_so_far_s) == sorted(result.best_so_far_s, reverse=True)
    assert len(result.to_frame()) == 20
    assert result.trials[-1].spent_s == pytest.approx(20 * 0.15)


def test_replay_spends_no_more_than_the_budget(path: Path) -> None:
    assert len(replay(RecordedSpace.read_file(path), seconds=1.6).trials) == 10
    with pytest.raises(ParameterError, match="is not positive"):
        replay(RecordedSpace.read_file(path), seconds=-1.0)


def test_times_of_another_device_rank_beforehand(path: Path) -> None:
    space = RecordedSpace.read_file(path)

    result = replay(space, measurements=1, predicted_s=space.times_of(space.configurations))

    assert result.over_optimum == pytest.approx(1.0)


@pytest.mark.extra("plot")
def test_command_replays(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figure = tmp_path / "search.svg"

    assert main(["tune", "--replay", str(path), "--figure", str(figure)]) == 0
    assert "1 times the optimum of 2.00 ms" in capsys.readouterr().out
    assert figure.stat().st_size > 1000

    command = ["tune", "--replay", str(path), "--where", "x=8", "--prior", str(path), "--json"]
    assert main([*command, "--measurements", "3"]) == 0
    assert json.loads(capsys.readouterr().out)["best"]["configuration"] == {"x": 8, "y": 3}


def test_command_says_what_does_not_go_together(path: Path, capsys: Any) -> None:
    assert main(["tune", "matmul", "--replay", str(path)]) == 1
    assert "takes the place of the space" in capsys.readouterr().err
    assert main(["tune"]) == 1
    assert "name a space, such as matmul" in capsys.readouterr().err
