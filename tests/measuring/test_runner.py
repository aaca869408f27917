"""Kernels on a real device: built, checked, timed; and what goes wrong with others."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import loopy as lp
import numpy as np
import pytest

import countperf
from countperf.devices.device import Device
from countperf.errors import KernelBuildError, MeasurementError, WrongResultError
from countperf.measuring import KernelCase
from countperf.measuring.runner import QUICK, KernelRunner, compare
from tests.devices.fakes import make_case
from tests.devices.loopy_cases import ROW_SUMS, TWO_LAUNCHES, double, make_loopy_case
from tests.kernels import made

DOUBLE = make_loopy_case()


@pytest.fixture(scope="module")
def runners() -> dict[str, KernelRunner]:
    return {}


@pytest.fixture
def runner(device: Device, runners: dict[str, KernelRunner]) -> KernelRunner:
    return runners.setdefault(device.label, KernelRunner.open(device))


@pytest.mark.device
@pytest.mark.parametrize("case", [DOUBLE, ROW_SUMS, TWO_LAUNCHES], ids=lambda case: case.kernel)
def test_right_numbers_are_accepted_and_runs_timed(runner: KernelRunner, case: KernelCase) -> None:
    runner.check(case)
    with runner.load_case(case) as run:
        timings = [run() for _ in range(3)]
    assert all(0 < timing.time_s < timing.host_s < 10 for timing in timings)


def _note_calls(patch: pytest.MonkeyPatch, owner: Any, name: str) -> list[Any]:
    """Return a list to which the arguments of a method's calls are added."""
    noted, method = list[Any](), getattr(owner, name)
    patch.setattr(owner, name, lambda argument: noted.append(argument) or method(argument))
    return noted


@pytest.mark.device
def test_arrays_of_another_round_lie_behind_memory_of_another_size(
    runner: KernelRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = _note_calls(monkeypatch, runner.session, "allocate")
    for _ in range(2):
        with runner.load_case(DOUBLE) as run:
            run()
    assert sizes[0] != sizes[len(sizes) // 2]


@pytest.mark.device
def test_cases_that_share_inputs_draw_them_once_and_alike(
    runner: KernelRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Any] = []

    def draw(random: np.random.Generator, parameters: Mapping[str, int]) -> dict[str, Any]:
        drawn.append(random.random(parameters["n"], dtype=np.float32))
        return {"a": drawn[-1]}

    first = make_loopy_case("one", make_arguments=draw, inputs="shared")
    second = replace(first, name="other/n=1024", kernel="other")
    larger = replace(second, name="other/n=2048", parameters={"n": 2048})
    uploaded = _note_calls(monkeypatch, runner.session, "upload")
    for case in (first, second, larger, first):
        with runner.load_case(case) as run:
            run()
    assert [each.size for each in drawn] == [1024, 2048, 1024]
    assert uploaded[0] is uploaded[1]
    np.testing.assert_array_equal(drawn[0], drawn[2])


@pytest.mark.device
def test_a_kernel_is_built_and_checked_once(runner: KernelRunner) -> None:
    built: list[str] = []

    def build() -> Any:
        built.append("once")
        return double()

    case = make_loopy_case("counted", build)
    for _ in range(2):
        runner.check(case)
        runner.check(replace(case, name="other", parameters={"n": 2048}))
    assert built == ["once"]


def _raise(*_: object) -> Any:
    raise RuntimeError("a mistake of the author")


def _inputs(name: str, dtype: Any) -> dict[str, Any]:
    return {"make_arguments": lambda *_: {name: np.zeros(64, dtype)}}


def _referring(**factors: int) -> dict[str, Any]:
    return {"reference": lambda given, _: {name: k * given["a"] for name, k in factors.items()}}


_LARGE = {"build": lambda: double(2**20), "check_parameters": {"n": 2**20}}
_NOTHING = {"check_parameters": {}, "make_arguments": lambda *_: {}}


@pytest.mark.device
@pytest.mark.parametrize(
    ("name", "changes", "kind", "said"),
    [
        ("raises", {"build": _raise}, KernelBuildError, "does not build: RuntimeError: a mistake"),
        ("large", _LARGE, KernelBuildError, "work items"),
        ("no inputs", {"make_arguments": _raise}, KernelBuildError, "gets no inputs"),
        ("no n", _NOTHING, KernelBuildError, "no value for argument n"),
        ("more", _inputs("b", np.float32), KernelBuildError, "has no argument 'b'"),
        ("f64", _inputs("a", np.float64), KernelBuildError, "wants float32 of shape (64,)"),
        ("no reference", {"reference": _raise}, WrongResultError, "cannot be compared"),
        ("other", _referring(b=0), WrongResultError, "the reference gives 'b'"),
        ("wrong", _referring(out=3), WrongResultError, "wrong numbers: out["),
    ],
)
def test_what_goes_wrong_before_timing(
    runner: KernelRunner, name: str, changes: Any, kind: type[MeasurementError], said: str
) -> None:
    case = make_loopy_case(name, **changes)
    with pytest.raises(kind) as caught:
        runner.check(case)
    assert said in str(caught.value)
    assert str(caught.value).startswith(case.name)
    assert caught.value.case == case.name


@pytest.mark.device
def test_what_the_compiler_or_the_device_refuses_is_a_build_error(runner: KernelRunner) -> None:
    with pytest.raises(KernelBuildError, match="does not build on"):
        runner.session.load("KERNEL broken(GLOBAL float *out) { out[0] = nothing; }")
    size = runner.limits.local_memory_bytes // 4 + 1024

    def build() -> Any:
        space = lp.AddressSpace.LOCAL
        unit = made(
            "{[i,j]: 0<=i<16 and 0<=j<n}",
            f"""
            for j
                tmp[i] = a[j]            {{id=fill}}
                ... lbarrier             {{id=wait, dep=fill}}
                out[j] = tmp[{size} - 1 - i + j % 2]  {{dep=wait}}
            end
            """,
            "a,out f32 n; n i32",
            lp.TemporaryVariable("tmp", np.float32, shape=(size + 1,), address_space=space),
            silenced_warnings=["write_race(*)"],
        )
        return lp.tag_inames(unit, {"i": "l.0"})

    with pytest.raises(KernelBuildError):
        runner.check(make_loopy_case("greedy", build))


@pytest.mark.device
def test_a_campaign_on_a_real_device(device: Device, tmp_path: Path) -> None:
    wrong = make_loopy_case("wrong", reference=lambda arguments, _: {"out": arguments["a"]})
    found = countperf.measure(
        [DOUBLE, ROW_SUMS, wrong],
        device=device,
        store=tmp_path / "store.jsonl",
        protocol=QUICK.with_values(name="test", extra_rounds=0),
    )
    assert [entry.case for entry in found] == [DOUBLE.name, ROW_SUMS.name]
    assert [entry.stage for entry in found.failures] == ["check"]
    assert all(len(entry.samples_s) == QUICK.rounds for entry in found)
    assert found.device == device.identity


@pytest.mark.parametrize(
    ("got", "want", "said"),
    [
        ([1.0, 2.0], [1.0, 2.1], r"out\[1\] is 2.0, the reference says 2.1"),
        ([1.0, np.nan], [1.0, 2.0], r"out\[1\] is nan"),
        ([1.0, np.inf], [1.0, 2.0], r"out\[1\] is inf"),
        ([1.0], [1.0, 2.0], r"shape \(1,\), the reference \(2,\)"),
        ([1000.0005], [1000.0], ""),  # relative to the largest
        ([1e-7, 1.0], [0.0, 1.0], ""),  # not to each element
        ([5], [5], ""),
        ([], [], ""),
    ],
)
def test_numbers_are_right_within_the_tolerance(
    got: list[float], want: list[float], said: str
) -> None:
    with pytest.raises(WrongResultError, match=said) if said else nullcontext():
        compare(make_case(), "out", np.array(got), np.array(want))
