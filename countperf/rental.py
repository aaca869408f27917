"""One call for a device that is rented by the minute: ``python -m countperf.rental``.

Everything that a fit for the device needs, in stages, each in a process of its own, so that a lost
device or a stage that takes too long costs that stage only. Stages are ordered by what is wanted
most, keep what is finished at once, and go on where they were cut off when the same command is
given again. The summary comes last, and after every cut.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from pydantic import NonNegativeFloat

from countperf.documents import (
    Part,
    check_writable,
    parse_json,
    read_file_text,
    validate,
    write_atomically,
)
from countperf.errors import CountperfError, DeviceLostError, DocumentError, FitError, OutputError

if TYPE_CHECKING:
    from countperf.measurements import MeasurementSet, Purpose
    from countperf.tuning.pools import Pool

LOST = 3  # exit status of a stage whose device is lost
_TRIES = 6
_GRACE_S = 8.0
_RESERVE_S = 15.0  # for fit and summary, whatever happens before
_SOME_VARIANTS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Part of a campaign.

    Attributes
    ----------
    name : str
        Of the stage.
    work : callable
        From the campaign's options to nothing; writes into its folder.
    share : float
        Share of the budget that it may take at most.
    """

    name: str
    work: Callable[[Options], None]
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the campaign is asked to do.

    Attributes
    ----------
    device : str or None
        The device's label, or part of its name.
    folder : Path
        Where everything goes.
    budget_s : float
        Time for all of it, s.
    deadline : float
        When the stage in hand has to be done, by `time.time`, s.
    families : tuple of str
        Only these families of kernels are measured; all if empty.
    """

    device: str | None
    folder: Path
    budget_s: float
    deadline: float = float("inf")
    families: tuple[str, ...] = ()

    @property
    def store(self) -> Path:
        """File of the measurements."""
        return self.folder / "measurements.jsonl"

    @property
    def left_s(self) -> float:
        """Time left for the stage in hand, s."""
        return self.deadline - time.time()


# {{{ stages


def find_devices(options: Options) -> None:
    """Try every device, and write down what works."""
    from countperf.harness.doctor import examine

    report = examine()
    library = _nvidia_opencl()
    _write(
        options.folder / "devices.json", {**report.to_object(), "nvidia_opencl_library": library}
    )
    if library and not any(each.platform == "NVIDIA CUDA" for each in report.devices):
        print(
            f"NVIDIA's driver has an OpenCL library, {library}, that no .icd file names: to use it,"
            " write its name into a file nvidia.icd and set OCL_ICD_VENDORS to that folder"
        )
    for device in report.devices:
        print(f"{device.label}: {device.name}: {'works' if device.works else device.reason}")


def _nvidia_opencl() -> str:
    """Return the OpenCL library of NVIDIA's driver, if it loads; else nothing."""
    import ctypes

    name = "libnvidia-opencl.so.1"
    try:
        ctypes.CDLL(name)
    except OSError:
        return ""
    return name


def characterize_device(options: Options) -> None:
    """Run the microbenchmarks."""
    from countperf.workflow import characterize

    found = characterize(
        store=options.folder / "characterization.json",
        parameters=options.folder / "parameters.json",
        device=options.device,
        quick=options.budget_s < 300,
        max_seconds=max(1.0, options.left_s - 15.0),
    )
    print(f"{len(found.findings)} numbers, left out: {', '.join(found.left_out) or 'nothing'}")


def check_kernels(options: Options) -> None:
    """Compare every kernel of the catalogue with its reference; what is checked stays checked."""
    from countperf.harness.devices import find_device
    from countperf.harness.runner import KernelRunner
    from measurement_kernels.catalog import entries

    path = options.folder / "checks.json"
    checks = _read_checks(path)
    device = find_device(options.device)
    runner = KernelRunner.open(device)
    everything = [
        each
        for each in entries(element_type=None, purpose=None)
        if not options.families or each.family in options.families
    ]
    everything.sort(key=lambda each: (each.purpose == "measurement", each.element_type != "f32"))
    waiting = [each for each in everything if each.name not in checks]
    with _processes() as pool:
        codes = [pool.submit(_generate, device.backend, each.name) for each in waiting]
        try:
            for each, code in zip(waiting, codes, strict=True):
                if options.left_s < 3.0:
                    break
                code.exception()  # the code lies in Loopy's cache now, or the check says why not
                checks[each.name] = "not finished: the device was lost"
                try:
                    runner.check(each.case(each.exponents[0] + each.exponent_steps[0]))
                    checks[each.name] = "right"
                except DeviceLostError:
                    _write(path, checks)
                    raise
                except CountperfError as error:
                    checks[each.name] = str(error)
                    print(f"{each.name}: {error}")
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            _write(path, checks)
    right = sum(verdict == "right" for verdict in checks.values())
    print(f"{right} of {len(everything)} kernels are right, {len(everything) - len(checks)} to go")
    if len(checks) < len(everything):
        raise TimeoutError(f"{len(everything) - len(checks)} kernels are still to be checked")


def _read_checks(path: Path) -> dict[str, str]:
    """Return the verdicts on kernels that an earlier call wrote, by name."""
    if not path.exists():
        return {}
    content = parse_json(read_file_text(path), path=path)
    if not isinstance(content, dict):
        raise DocumentError(
            f"{path}: $: an object of verdicts is wanted", path=str(path), field="$"
        )
    for name, verdict in content.items():
        if not isinstance(verdict, str):
            field = f"$[{json.dumps(name)}]"
            raise DocumentError(f"{path}: {field}: a text is wanted", path=str(path), field=field)
    return content


def _processes() -> Pool:
    """Return a pool of fresh processes, which do not share our device, and one processor fewer."""
    from countperf.tuning.pools import process_pool, processors

    return process_pool(max(1, processors() - 1))


def _generate(backend: str, name: str) -> None:
    from countperf.harness.registry import backends
    from measurement_kernels.catalog import entry

    backends()[backend].generate(entry(name).build())


def measure_tests(options: Options) -> None:
    """Measure the kernels that judge the fit."""
    _measure(options, ["test"], shapes=1)


def measure_applications(options: Options) -> None:
    """Measure the kernels of applications."""
    _measure(options, ["application"], shapes=1)


def measure_first(options: Options) -> None:
    """Measure every kernel in one shape of work groups."""
    _measure(options, shapes=1)


def measure_more(options: Options) -> None:
    """Measure every kernel in the other shapes of work groups."""
    _measure(options, shapes=3)


def measure_double(options: Options) -> None:
    """Measure every kernel in double precision."""
    _measure(options, shapes=1, element_types=("f32", "f64"))


def _chosen(options: Options, *purposes: Purpose) -> list[str]:
    """Return the families for some purposes that are asked for."""
    from measurement_kernels.catalog import families

    there = [family for purpose in purposes for family in families(purpose=purpose)]
    return [family for family in there if not options.families or family in options.families]


def _measure(
    options: Options,
    purposes: Sequence[Purpose] = ("measurement", "test"),
    *,
    shapes: int,
    element_types: Sequence[str] = ("f32",),
) -> None:
    from countperf.workflow import measure_catalogue

    if not (families := _chosen(options, *purposes)):
        print("nothing of the kind is asked for")
        return
    found = measure_catalogue(
        store=options.store,
        device=options.device,
        profile="rental",
        families=families,
        element_types=element_types,
        shapes_per_kernel=shapes,
        purposes=purposes,
    )
    _say_measured(found)


def _say_measured(found: MeasurementSet) -> None:
    numbers = Counter(each.purpose for each in found)
    cases = ", ".join(f"{number} of purpose {name}" for name, number in numbers.items())
    print(f"cases: {cases or 'none'}; {len(found.failures)} failed")


def measure_some_variants(options: Options) -> None:
    """Measure the first variants of each set: a smaller set, spread as the whole one."""
    _measure_variants(options, count=_SOME_VARIANTS)


def measure_variants(options: Options) -> None:
    """Measure the other variants of each set."""
    _measure_variants(options, count=None)


def _measure_variants(options: Options, *, count: int | None) -> None:
    from countperf.harness.devices import find_device
    from countperf.workflow import measure_variants as measure
    from measurement_kernels.variants.sets import variant_entries

    if not (families := _chosen(options, "variant")):
        print("nothing of the kind is asked for")
        return
    backend = find_device(options.device).backend
    names = [each.name for family in families for each in variant_entries(family)[:count]]
    with _processes() as pool:  # before anything is timed: the device may be the processor
        for code in [pool.submit(_generate, backend, name) for name in names]:
            code.exception()  # measuring says what is wrong
    found = measure(
        store=options.store, device=options.device, profile="rental", families=families, count=count
    )
    _say_measured(found)


def rank_variants(options: Options) -> None:
    """Evaluate how well the fit ranks the variants that were measured."""
    from countperf.workflow import evaluate_ranking

    fits = sorted((options.folder / "fits").glob("*/linear.json"))
    if not fits:
        raise FitError("there is no fit that could rank the variants")
    for weights in fits:
        ranking = evaluate_ranking(options.store, weights=weights)
        if ranking.sets:
            ranking.write_file(weights.with_name("ranking.json"))
        print(f"{len(ranking.sets)} sets of variants ranked by {weights}")


def fit_and_evaluate(options: Options) -> None:
    """Fit the model, evaluate it on the test kernels, and lay out the device's folder."""
    from countperf.workflow import publish

    print(publish(options.store, options.folder / "fits"))


_QUICK = (fit_and_evaluate, rank_variants)  # what the reserve is for


def plan() -> tuple[Stage, ...]:
    """Return the stages in order; those that improve on an earlier result come later."""
    return (
        Stage(name="devices", work=find_devices, share=0.1),
        Stage(name="check", work=check_kernels, share=0.2),
        Stage(name="characterize", work=characterize_device, share=0.25),
        Stage(name="measure tests", work=measure_tests, share=0.2),
        Stage(name="measure", work=measure_first, share=0.4),
        Stage(name="fit", work=fit_and_evaluate, share=0.2),
        Stage(name="measure applications", work=measure_applications, share=0.15),
        Stage(name="measure some variants", work=measure_some_variants, share=0.2),
        Stage(name="rank", work=rank_variants, share=0.1),
        Stage(name="measure more", work=measure_more, share=0.5),
        Stage(name="fit again", work=fit_and_evaluate, share=0.2),
        Stage(name="measure variants", work=measure_variants, share=1.0),
        Stage(name="rank again", work=rank_variants, share=0.1),
        Stage(name="check the rest", work=check_kernels, share=1.0),
        Stage(name="measure double precision", work=measure_double, share=1.0),
    )


# }}}

# {{{ running them


class _Attempt(Part):
    stage: str
    outcome: str
    seconds: NonNegativeFloat = 0.0
    said: str = ""


class _Progress(Part):
    finished: tuple[str, ...]
    log: tuple[_Attempt, ...]


@dataclass(slots=True, kw_only=True)
class Progress:
    """What is finished, kept in ``campaign.json``.

    Attributes
    ----------
    finished : list of str
        Names of stages that are done for good.
    log : list of dict
        Every attempt: stage, outcome, seconds, and the last line that it printed.
    """

    finished: list[str] = field(default_factory=list[str])
    log: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    @classmethod
    def read(cls, folder: Path) -> Progress:
        """Read the file, if there is one."""
        path = folder / "campaign.json"
        if not path.exists():
            return cls()
        found = validate(_Progress, parse_json(read_file_text(path), path=path), path=path)
        log = [each.model_dump(exclude_unset=True) for each in found.log]
        return cls(finished=list(found.finished), log=log)

    def write(self, folder: Path) -> None:
        """Write the file."""
        _write(folder / "campaign.json", asdict(self))


Execute = Callable[[Stage, Options, float], "tuple[str, str]"]


def run_campaign(
    options: Options, stages: Sequence[Stage], execute: Execute, now: Callable[[], float]
) -> Progress:
    """Run what is not finished yet, until the budget is spent.

    Parameters
    ----------
    options : Options
        What is asked.
    stages : sequence of Stage
        In order.
    execute : callable
        Runs a stage for at most so many seconds; returns its outcome (``done``, ``cut off``,
        ``lost`` or ``failed``) and the last line that it printed.
    now : callable
        A clock, s.

    Returns
    -------
    Progress
        Also in the folder, after every stage.
    """
    progress = Progress.read(options.folder)
    began = now()
    is_news = False  # what comes of measurements is made again when there are more of them
    for stage in stages:
        if stage.name in progress.finished and not (is_news and stage.work in _QUICK):
            continue
        is_news = is_news or stage.work not in _QUICK
        for _ in range(_TRIES):
            reserve = 0.0 if stage.work in _QUICK else _RESERVE_S
            left = options.budget_s - (now() - began) - reserve
            allowed = min(left, stage.share * options.budget_s)
            if allowed <= 1.0:
                progress.log.append({"stage": stage.name, "outcome": "no time was left"})
                break
            started = now()
            outcome, said = execute(stage, options, allowed)
            seconds = round(now() - started, 1)
            progress.log.append(
                {"stage": stage.name, "outcome": outcome, "seconds": seconds, "said": said}
            )
            if outcome == "done" and stage.name not in progress.finished:
                progress.finished.append(stage.name)
            progress.write(options.folder)
            if outcome != "lost":  # else the next process goes on behind what lost the device
                break
    progress.write(options.folder)
    return progress


def execute_stage(stage: Stage, options: Options, allowed_s: float) -> tuple[str, str]:
    """Run a stage in a process of its own; its output also goes into a file."""
    command = [sys.executable, "-m", "countperf.rental", "--stage", stage.name]
    command += ["--folder", str(options.folder), "--budget", str(options.budget_s)]
    command += ["--deadline", str(time.time() + allowed_s)]
    command += ["--device", options.device] if options.device else []
    for family in options.families:
        command += ["--family", family]
    log = options.folder / f"{stage.name.replace(' ', '-')}.log"
    with log.open("ab") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status = process.wait(allowed_s)
        except subprocess.TimeoutExpired:
            _end(process)
            return "cut off", _last_line(log)
        except BaseException:
            _end(process)
            raise
    if status == 0:
        return "done", _last_line(log)
    return ("lost" if status == LOST else "failed"), _last_line(log)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a stage and what it started: kindly, then not."""
    for number in (signal.SIGINT, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(_GRACE_S)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
        return


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def _write(path: Path, content: Any) -> None:
    write_atomically(path, json.dumps(content, indent=1))


# }}}

# {{{ summary


def summary(options: Options, progress: Progress) -> str:
    """Write what came out, from what is in the folder."""
    lines = [f"== {options.folder}"]
    for entry in progress.log:
        seconds = f" in {entry['seconds']} s" if "seconds" in entry else ""
        lines.append(f"{entry['stage']}: {entry['outcome']}{seconds}: {entry.get('said', '')}")
    lines += _checks_summary(options.folder)
    lines += _device_summary(options.folder)
    for evaluation in sorted((options.folder / "fits").glob("*/evaluation.json")):
        from countperf.metrics import Evaluation
        from countperf.report import evaluation_text

        parts = Evaluation.read_file(evaluation).by_purpose()
        lines += ["", *(evaluation_text(part) for name, part in parts.items() if name != "variant")]
        lines += _ranking_summary(evaluation.with_name("ranking.json"))
        lines += _rates_summary(evaluation.with_name("linear.json"), options.folder)
    return "\n".join(lines)


def _ranking_summary(path: Path) -> list[str]:
    if not path.exists():
        return []
    from countperf.fitting.ranking import RankingEvaluation
    from countperf.report import ranking_evaluation_text

    return ["", ranking_evaluation_text(RankingEvaluation.read_file(path))]


def _rates_summary(weights: Path, folder: Path) -> list[str]:
    parameters = folder / "parameters.json"
    if not (weights.exists() and parameters.exists()):
        return []
    from countperf.hardware.library import load_device
    from countperf.models.weights import WeightSet
    from countperf.report.rates import implied_rates, implied_rates_text

    rates = implied_rates(WeightSet.read_file(weights).weights, load_device(parameters))
    return ["", implied_rates_text(rates)]


def _checks_summary(folder: Path) -> list[str]:
    checks = _read_checks(folder / "checks.json")
    wrong = {name: verdict for name, verdict in checks.items() if verdict != "right"}
    lines = [f"kernels: {len(checks) - len(wrong)} right, {len(wrong)} not"] if checks else []
    return lines + [f"  {name}: {verdict}" for name, verdict in list(wrong.items())[:20]]


_SHOWN = (
    *("clock", "copy bandwidth", "copy bandwidth stride 1", "launch overhead", "issue limit"),
    *("fma.f32 cpi", "fma.f32 latency", "fma.f64 cpi", "rsqrt.f32 cpi", "memory latency"),
    *("local bandwidth", "local banks", "h2d bandwidth", "d2h bandwidth"),
)


def _device_summary(folder: Path) -> list[str]:
    path = folder / "characterization.json"
    if not path.exists():
        return []
    from countperf.hardware.library import available_devices, load_device
    from countperf.harness.characterization.document import Characterization

    found = Characterization.read_file(path)
    lines = ["", f"{found.device.name}, measured:"]
    for name in _SHOWN:
        if (number := found.find(name)) is not None:
            doubt = "" if number.is_plausible else f" ({number.remark})"
            lines.append(f"  {name}: {number.value:.4g} {number.unit}{doubt}")
    lines += [f"  {name}: {reason}" for name, reason in found.left_out.items()]
    if found.device.slug in available_devices():
        vendor = load_device(found.device.slug)
        for quantity in ("clock_hz", "bandwidth_byte_per_s", "peak_flops", "issue_limit"):
            measured, stated = getattr(found.parameters, quantity), getattr(vendor, quantity)
            if measured and stated:
                share = measured / stated
                lines.append(
                    f"  {quantity}: {measured:.4g}, {share:.0%} of the vendor's {stated:.4g}"
                )
    return lines


# }}}


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
    os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    sys.exit(main())
