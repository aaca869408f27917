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
from countperf.tuning.recorded_space import RecordedSpace
from countperf.tuning.replay import replay


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
    found.write_text(json.dumps(kernel_tuner_cache()))
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


def test_t4_results_are_read_by_their_unit(tmp_path: Path) -> None:
    rows = [
        {
            "configuration": {"x": 1, "mode": "a"},
            "times": {"compilation_time": 7.0, "runtimes": [2.0, 4.0]},
            "invalidity": "correct",
            "correctness": 1,
        },
        {
            "configuration": {"x": 2, "mode": "b"},
            "times": {"runtimes": []},
            "invalidity": "compile",
            "correctness": 0,
        },
    ]
    content = {"schema_version": "1.0.0", "metadata": {"timeunit": "microseconds"}, "results": rows}
    (tmp_path / "t4.json").write_text(json.dumps(content))

    space = RecordedSpace.read_file(tmp_path / "t4.json")

    assert space.times_s[0] == pytest.approx(3e-6)
    assert math.isnan(space.times_s[1])
    assert space.costs_s[0] == pytest.approx(13e-6)


def test_ktt_output_is_read(tmp_path: Path) -> None:
    content = {
        "Metadata": {"Device": "RTX", "TimeUnit": "Microseconds"},
        "Results": [
            {
                "KernelName": "k",
                "Configuration": [{"Name": "BLOCK", "Value": 32}],
                "Status": status,
                "TotalDuration": 5.0,
                "TotalOverhead": 95.0,
            }
            for status in ("Ok", "ValidationFailed")
        ],
    }
    (tmp_path / "ktt.json").write_text(json.dumps(content))

    space = RecordedSpace.read_file(tmp_path / "ktt.json")

    assert (space.name, space.device) == ("k", "RTX")
    assert space.times_s[0] == pytest.approx(5e-6)
    assert math.isnan(space.times_s[1])
    assert space.costs_s[0] == pytest.approx(1e-4)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d.pop("cache"), "none of the formats"),
        (lambda d: d["cache"]["2,1"].update(time=-1.0), r"\$.cache\['2,1'\].time is negative"),
        (lambda d: d["cache"]["2,1"].pop("x"), r"\$.cache\['2,1'\].x is no number"),
        (lambda d: d.update(cache={"a": 3}), r"\$.cache\['a'\] is no object"),
        (lambda d: d.update(tune_params_keys="x"), "is no list of names"),
        (lambda d: d.update(cache={}), "no configuration that ran"),
    ],
)
def test_damage_is_named(change: Any, said: str, tmp_path: Path) -> None:
    content = kernel_tuner_cache()
    change(content)
    (tmp_path / "bad.json").write_text(json.dumps(content))

    with pytest.raises(DocumentError, match=said):
        RecordedSpace.read_file(tmp_path / "bad.json")


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
