"""Campaign on a rented GPU in one call: ``scripts/gpu_campaign``.

Each stage runs in a process of its own, keeps what is finished at once, and goes on where it was
cut off when the same command is given again. The summary comes last, and after every cut.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Thread
from typing import Any

from countperf.errors import CountperfError, DeviceLostError, OutputError
from countperf.store import check_writable
from rental.stages import LOST, QUICK, Options, Stage, plan
from rental.summary import Progress, summary

TRIES = 6
GRACE_S = 8.0
RESERVE_S = 15.0  # for fit and summary, whatever happens before

Execute = Callable[[Stage, Options, float], "tuple[str, str]"]


def run_campaign(
    options: Options, stages: Sequence[Stage], execute: Execute, now: Callable[[], float]
) -> Progress:
    """Run what is not finished yet, until the budget is spent."""
    progress = Progress.read(options.folder)
    began = now()
    is_news = False  # what comes of measurements is made again when there are more of them
    for stage in stages:
        if stage.name in progress.finished and not (is_news and stage.work in QUICK):
            continue
        is_news = is_news or stage.work not in QUICK
        for _ in range(TRIES):
            reserve = 0.0 if stage.work in QUICK else RESERVE_S
            left = options.budget_s - (now() - began) - reserve
            allowed = min(left, stage.share * options.budget_s)
            if allowed <= 1.0:
                progress.log.append({"stage": stage.name, "outcome": "no time was left"})
                break
            started = now()
            outcome, said = execute(stage, options, allowed)
            seconds = round(now() - started, 1)
            done = {"stage": stage.name, "outcome": outcome, "seconds": seconds, "said": said}
            progress.log.append(done)
            if outcome == "done" and stage.name not in progress.finished:
                progress.finished.append(stage.name)
            progress.write(options.folder)
            if outcome != "lost":  # else the next process goes on behind what lost the device
                break
    progress.write(options.folder)
    return progress


def execute_stage(stage: Stage, options: Options, allowed_s: float) -> tuple[str, str]:
    """Run a stage in a process of its own; its output also goes into a file."""
    command = [sys.executable, "-P", "-m", "rental.campaign", "--stage", stage.name]
    command += ["--folder", str(options.folder), "--budget", str(options.budget_s)]
    command += ["--deadline", str(time.time() + allowed_s)]
    command += ["--device", options.device] if options.device else []
    for family in options.families:
        command += ["--family", family]
    log = options.folder / f"{stage.name.replace(' ', '-')}.log"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with log.open("ab") as file:
        output: Any = {"stdout": file, "stderr": subprocess.STDOUT}
        process = subprocess.Popen(command, start_new_session=True, env=environment, **output)
        try:
            outcome = {0: "done", LOST: "lost"}.get(process.wait(allowed_s), "failed")
        except subprocess.TimeoutExpired:
            _end(process)
            outcome = "cut off"
        except BaseException:
            _end(process)
            raise
    return outcome, _last_line(log)


def _end(process: subprocess.Popen[Any]) -> None:
    """End a stage and what it started: kindly, then not."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(GRACE_S)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
        return


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaign, or one stage of it."""
    parser = argparse.ArgumentParser(prog="gpu_campaign", description=__doc__)
    parser.add_argument("--device", help="cuda:0, pocl:0, or part of a name")
    parser.add_argument("--folder", type=Path, default=Path("runs/rental"))
    parser.add_argument("--budget", type=float, default=460.0, metavar="S")
    parser.add_argument("--family", action="append", default=[], help="only this one (repeatable)")
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    parser.add_argument("--deadline", type=float, default=float("inf"), help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    options = Options(
        device=given.device,
        folder=given.folder,
        budget_s=given.budget,
        deadline=given.deadline,
        families=tuple(given.family),
    )
    try:
        check_writable(options.store)
    except OutputError as error:
        print(f"gpu_campaign: {error}", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever cuts us off gets a summary
    if given.stage is not None:
        return _run_stage(given.stage, options)
    try:
        progress = run_campaign(options, plan(), execute_stage, time.monotonic)
    except KeyboardInterrupt:
        progress = Progress.read(options.folder)
    print(summary(options, progress))
    return 0 if "fit" in progress.finished or "fit again" in progress.finished else 1


def _run_stage(name: str, options: Options) -> int:
    stage = next(each for each in plan() if each.name == name)
    Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    try:
        stage.work(options)
    except DeviceLostError as error:
        print(error)
        return LOST
    except (CountperfError, TimeoutError) as error:
        print(f"{type(error).__name__}: {error}")
        return 1
    except KeyboardInterrupt:
        print("cut off; what is finished is kept")
        return 1
    return 0


def _end_with(parent: int) -> None:
    """Stop this process once its parent is gone: the next campaign shall find its files free."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os.kill(os.getpid(), signal.SIGTERM)  # SIGINT is ignored by what a shell began with &


if __name__ == "__main__":
    sys.exit(main())
