"""The one-call campaign: what is run within the budget, what is kept, and how it goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from countperf.devices.discovery import find_device
from countperf.errors import DeviceLostError, FitError, MeasurementError
from rehearse_gpu_campaign import campaign_kernels
from rental import campaign as gpu_campaign
from rental import stages as gpu_stages
from rental.campaign import execute_stage, main, run_campaign
from rental.stages import LOST, Options, Stage
from rental.summary import Progress, summary
from tests.models.fitting.builders import KERNELS, TEST_KERNEL, MadeUpKernel, measure
from tests.patience import LONGEST_S


@pytest.fixture
def options(tmp_path: Path) -> Options:
    return Options(device=None, folder=tmp_path, budget_s=100.0)


def _nothing(options: Options) -> None:
    del options


def _play(
    options: Options, stages: Sequence[Stage], *outcomes: tuple[str, str, float]
) -> tuple[Progress, list[tuple[str, float]]]:
    """Run stages whose outcomes and seconds are given; return what ran, and the time allowed."""
    script = list(outcomes)
    ran: list[tuple[str, float]] = []
    clock = [0.0]

    def execute(stage: Stage, options: Options, allowed_s: float) -> tuple[str, str]:
        del options
        name, outcome, seconds = script.pop(0)
        assert name == stage.name
        ran.append((name, allowed_s))
        clock[0] += min(seconds, allowed_s)
        return outcome, f"{name} said"

    return run_campaign(options, tuple(stages), execute, lambda: clock[0]), ran


def _stage(name: str, share: float, work: Callable[[Options], None] = _nothing) -> Stage:
    return Stage(name=name, work=work, share=share)


STAGES = (_stage("first", 0.5), _stage("second", 0.5), _stage("third", 1.0))
FIT = _stage("fit", 1.0, gpu_stages.fit_and_evaluate)
RANK = _stage("rank", 1.0, gpu_stages.rank_variants)


def test_shares_and_budget_bound_every_stage_but_the_fit(options: Options) -> None:
    outcomes = ("first", "cut off", 99.0), ("second", "done", 30.0), ("third", "done", 1.0)
    progress, ran = _play(options, STAGES, *outcomes)
    assert ran == [("first", 50.0), ("second", 35.0), ("third", 5.0)]
    assert progress.finished == ["second", "third"]
    assert Progress.read(options.folder) == progress
    (options.folder / "campaign.json").unlink()
    outcomes = ("first", "cut off", 50.0), ("second", "cut off", 35.0), ("fit", "done", 9.0)
    _, ran = _play(options, (*STAGES[:2], FIT), *outcomes)
    assert ran[-1] == ("fit", 15.0)  # what others have to leave


def test_what_is_finished_is_not_run_again(options: Options) -> None:
    outcomes = ("first", "done", 1.0), ("second", "failed", 1.0), ("third", "done", 1.0)
    _play(options, STAGES, *outcomes)
    progress, ran = _play(options, STAGES, ("second", "done", 1.0))
    assert [name for name, _ in ran] == ["second"]
    assert set(progress.finished) == {"first", "second", "third"}


def test_what_comes_of_measurements_is_made_again_when_there_are_more(options: Options) -> None:
    stages = (_stage("more", 0.5), FIT, _stage("last", 0.5), RANK)
    names = ("more", "fit", "last", "rank")
    first = [(name, "cut off" if name == "last" else "done", 1.0) for name in names]
    _play(options, stages, *first)
    _, again = _play(options, stages, ("last", "done", 1.0), ("rank", "done", 1.0))
    progress, third = _play(options, stages)
    assert [name for name, _ in again] == ["last", "rank"]
    assert third == []
    assert set(progress.finished) == set(names)


def test_a_lost_device_gets_a_new_process_until_it_is_given_up(options: Options) -> None:
    lost = [("first", "lost", 1.0)] * 2
    rest = [(stage.name, "done", 1.0) for stage in STAGES]
    progress, _ = _play(options, STAGES, *lost, *rest)
    assert [entry["outcome"] for entry in progress.log][:3] == ["lost", "lost", "done"]
    stays = replace(options, folder=options.folder / "other")
    stays.folder.mkdir()
    progress, ran = _play(stays, STAGES[:1], *[("first", "lost", 1.0)] * 9)
    assert (len(ran), progress.finished) == (6, [])


@pytest.mark.parametrize(
    ("body", "outcome", "said"),
    [
        ("print('fine')", "done", "fine"),
        ("print('no'); sys.exit(1)", "failed", "no"),
        (f"print('gone'); sys.exit({LOST})", "lost", "gone"),
        ("print('half', flush=True); time.sleep(1000)", "cut off", "half"),
        (
            "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "print('deaf', flush=True); time.sleep(1000)",
            *("cut off", "deaf"),
        ),
    ],
)
def test_a_stage_is_a_process_that_ends_in_time(
    options: Options,
    body: str,
    outcome: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gpu_campaign, "GRACE_S", 0.5)
    script, program = tmp_path / "stage.py", tmp_path / "python"  # stands for what runs a stage
    script.write_text(f"import sys, time\n{body}\n")
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    began = time.monotonic()
    result = execute_stage(STAGES[0], options, 2.0)
    assert result[0] == outcome
    assert result[1].endswith(said) or outcome == "cut off"
    assert time.monotonic() - began < LONGEST_S


@pytest.fixture(autouse=True)
def _keep_the_signal_handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


ENDS = {None: 0, MeasurementError("no"): 1, DeviceLostError("lost"): LOST, KeyboardInterrupt(): 1}


@pytest.mark.parametrize(("error", "status"), [*ENDS.items()])
def test_how_a_stage_ends(
    error: BaseException | None, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(options: Options) -> None:
        assert options.folder == tmp_path
        if error is not None:
            raise error

    monkeypatch.setattr(gpu_campaign, "plan", lambda: (_stage("only", 1.0, work),))
    assert main(["--stage", "only", "--folder", str(tmp_path)]) == status


_ORPHAN = """
import subprocess, sys
code = (
    "import time; from rental import campaign as gpu_campaign, stages as gpu_stages\\n"
    "def work(options):\\n"
    "    try: (options.folder / 'began').touch(); time.sleep(1000)\\n"
    "    finally: (options.folder / 'ended').touch()\\n"
    "gpu_campaign.plan = lambda: (gpu_stages.Stage(name='only', work=work, share=1.0),)\\n"
    "gpu_campaign.main(['--stage', 'only', '--folder', sys.argv[1]])"
)
subprocess.Popen([sys.executable, "-c", "import sys; " + code, sys.argv[1]], start_new_session=True)
import pathlib, time
while not (pathlib.Path(sys.argv[1]) / "began").exists(): time.sleep(0.05)
"""


def test_a_stage_does_not_outlive_the_campaign(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", _ORPHAN, str(tmp_path)]
    subprocess.run(command, check=True, timeout=LONGEST_S, env=environment)
    deadline = time.monotonic() + LONGEST_S
    while not (tmp_path / "ended").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert (tmp_path / "ended").exists()


def test_the_summary_of_what_is_there(options: Options) -> None:
    checks = {"a": "right", "b": "wrong numbers: out[0] is 1"}
    (options.folder / "checks.json").write_text(json.dumps(checks))
    log = [{"stage": "check", "outcome": "cut off", "seconds": 3.0, "said": "more to go"}]
    text = summary(options, Progress(log=log))
    assert "check: cut off in 3.0 s: more to go" in text
    assert "kernels: 1 right, 1 not" in text
    assert "  b: wrong numbers" in text


def test_variants_are_ranked_by_the_fit_that_there_is(
    options: Options, capsys: pytest.CaptureFixture[str]
) -> None:
    variants = [
        MadeUpKernel(
            name=f"variant{loads}",
            family="variants-toy",
            purpose="variant",
            counts={"gmem.load.32.stride1": f"[n] -> {{ {loads}n }}"},
            sizes=(2**18,),
        )
        for loads in (5, 3, 4)
    ]
    measure((*KERNELS, TEST_KERNEL)).write_file(options.store)
    with pytest.raises(FitError, match="no fit"):
        gpu_stages.rank_variants(options)
    gpu_stages.fit_and_evaluate(options)
    gpu_stages.rank_variants(options)
    assert "ranking of variants" not in summary(options, Progress())
    measure((*KERNELS, TEST_KERNEL, *variants)).write_file(options.store)
    gpu_stages.rank_variants(options)
    assert capsys.readouterr().out.splitlines()[-1].startswith("1 sets of variants")
    text = summary(options, Progress())
    assert "ranking of variants: linear model on pocl-testchip" in text
    assert "  variants-toy  n = 262144         3        0" in text


@pytest.mark.device
def test_devices_and_checks_on_a_real_device(
    options: Options, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    device = find_device()
    chosen = replace(options, device=device.label, deadline=time.time() + 60, families=("empty",))
    gpu_stages.check_kernels(chosen)
    gpu_stages.check_kernels(chosen)  # nothing is left to do
    checks = json.loads((options.folder / "checks.json").read_text())
    assert checks
    assert set(checks.values()) == {"right"}
    assert f"{len(checks)} of {len(checks)} kernels are right" in capsys.readouterr().out


def test_every_kernel_of_the_campaign_is_compiled_in_the_rehearsal() -> None:
    kernels = campaign_kernels()
    names = {kernel.name for kernel in kernels}
    assert len(names) == len(kernels)
    assert "matmul-tiled/square/16x16/f64" in names
    assert any(name.startswith("variants-matmul") for name in names)
    purposes = {kernel.purpose for kernel in kernels}
    assert purposes == {"measurement", "test", "application", "variant"}
