"""Values of size parameters: texts, ranges, and several parameters together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from countperf.cli import main
from countperf.errors import ParameterError
from countperf.sizes import combine_sizes, parse_sizes, size_arrays


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1024", 1024),
        ("256,512,1024", (256, 512, 1024)),
        ("1024:1030:4", (1024, 1026, 1028, 1030)),
        ("0:10:3", (0, 5, 10)),
        ("1:1024:11:log", tuple(2**power for power in range(11))),
        ("100:10000:3:log", (100, 1000, 10000)),
        ("1,2,16:64:4", (1, 2, 16, 32, 48, 64)),
        ("4,4,8", (4, 4, 8)),
    ],
)
def test_texts_name_values(text: str, values: int | tuple[int, ...]) -> None:
    assert parse_sizes("n", text) == values


def test_integers_of_a_range_are_the_nearest() -> None:
    # 256 * 16^(i/7): 256, 380.4, 565.3, 840.1, 1248.3, 1854.9, 2756.4, 4096
    assert parse_sizes("n", "256:4096:8:log") == (256, 380, 565, 840, 1248, 1855, 2756, 4096)
    # steps of 3840 / 7 = 548.57
    assert parse_sizes("n", "256:4096:8") == (256, 805, 1353, 1902, 2450, 2999, 3547, 4096)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x", "no integer and no range"),
        ("1.5", "no integer and no range"),
        ("", "no integer and no range"),
        ("1,", "no integer and no range"),
        ("1:2", "no integer and no range"),
        ("1:2:3:lin", "no integer and no range"),
        ("8:4:2", "a start below the stop"),
        ("1:9:1", "a count of at least 2"),
        ("0:9:3:log", "a start of at least 1"),
        ("1:1000000:1000000", "at most 10000 values"),
        (f"1,{10**30}", "31 digits are more than any size has"),
        ("1:4:9", "only 4 of the 9 values differ"),
        ("1:8:8:log", "only 6 of the 8"),  # 1, 1.35, 1.81, 2.44, 3.28, 4.42, 5.94, 8
    ],
)
def test_other_texts_are_refused(text: str, said: str) -> None:
    with pytest.raises(ParameterError, match=said) as caught:
        parse_sizes("n", text)

    assert caught.value.parameter == "n"


def test_lists_go_together_value_by_value() -> None:
    assert combine_sizes({"n": (1, 2), "m": np.array([3, 4]), "q": 5}) == [
        {"n": 1, "m": 3, "q": 5},
        {"n": 2, "m": 4, "q": 5},
    ]
    assert combine_sizes({"n": np.int64(7)}) == [{"n": 7}]
    assert combine_sizes({}) == [{}]


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"n": (1, 2), "m": (3, 4, 5)}, r"n \(2\) and m \(3\) have different numbers of values"),
        ({"n": ()}, "n has no value"),
        ({"n": (1, 2, 1)}, "the point n=1 is there twice"),
        ({"n": 1.5}, "n is 1.5, which is no integer"),
        ({"n": "many"}, "no integer"),
    ],
)
def test_what_is_no_list_of_points_is_refused(sizes: Any, said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        combine_sizes(sizes)


def test_arrays_are_those_of_the_points() -> None:
    found = size_arrays({"n": (1, 2), "m": 3})

    assert found["m"] == 3
    assert np.array_equal(found["n"], [1, 2])


_WEIGHTS = ["--weights", "pocl-epyc-zen5"]


def test_commands_take_several_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["count", "n-body", "n=256,512"]) == 0
    (line,) = [x for x in capsys.readouterr().out.splitlines() if "f32.rsqrt" in x]
    assert line.split()[1:3] == [str(n * (n - 1)) for n in (256, 512)]

    assert main(["predict", "n-body", "n=256,512", "--model", "linear", *_WEIGHTS]) == 0
    rows = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:4]]
    assert rows == ["n", "256", "512"]


@pytest.mark.parametrize(
    "command",
    [
        ["count", "n-body", "n=256,512", "--analysis"],
        ["predict", "n-body", "n=256,512", "--against-size", "n=5", *_WEIGHTS],
        ["count", "n-body", "n=256", "n=512"],
    ],
)
def test_lists_where_one_value_is_taken_are_refused(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 1
    said = capsys.readouterr().err
    assert "256" in said
    assert "512" in said


@pytest.mark.parametrize("command", ["rank", "tune"])
def test_searches_refuse_lists(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([command, "matmul", "n=256:512:2"])

    assert caught.value.code == 2
    assert "one value of n is taken here" in capsys.readouterr().err
