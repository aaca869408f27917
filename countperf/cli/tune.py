"""``countperf tune``."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from countperf.cli.common import as_dict, print_json
from countperf.cli.mechanistic import asked_cost
from countperf.cli.rank import add_space

if TYPE_CHECKING:
    from countperf.tuning.devices import DeviceResults
    from countperf.tuning.result import TuningResult


def configure(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_space(command, is_optional=True)
    command.add_argument(
        "--device",
        action="append",
        default=[],
        metavar="DEVICE",
        help="pocl:0, cuda:0, or part of a name; several times to tune on several side by side; by "
        "default the working device with the highest copy bandwidth",
    )
    command.add_argument(
        "--budget",
        type=float,
        metavar="SECONDS",
        help="time to spend, predictions included (default: 60, unless --measurements is given)",
    )
    command.add_argument(
        "--measurements", type=int, metavar="N", help="variants to build and run at most"
    )
    command.add_argument(
        "--store",
        metavar="FILE",
        help="the search's file (.jsonl); the same command goes on where it stopped",
    )
    command.add_argument(
        "--confidence", type=float, default=0.95, help="when to stop (default: 0.95)"
    )
    command.add_argument(
        "--tolerance",
        type=float,
        default=0.02,
        metavar="FRACTION",
        help="gains below this are not looked for (default: 0.02)",
    )
    command.add_argument(
        "--kernel-tuner-cache", metavar="FILE", help="write what ran as a Kernel Tuner cache"
    )
    command.add_argument(
        "--figure",
        metavar="FILE",
        help="draw measured against predicted times, and the best so far (.svg, .png, .pdf)",
    )
    command.add_argument(
        "--replay",
        metavar="FILE",
        help="instead of a space: search the times that a file of Kernel Tuner, T4 or KTT holds"
        " (.json, .json.gz), without a device; --budget then limits the recorded costs",
    )
    command.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="with --replay: only configurations with this value; several times for several",
    )
    command.add_argument(
        "--prior",
        metavar="FILE",
        help="with --replay: a file with times of the same configurations on another device, which"
        " rank them beforehand",
    )
    command.add_argument("--t4", metavar="FILE", help="write what ran in the T4 results format")
    command.add_argument(
        "--complete",
        action="store_true",
        help="leave out variants that have properties without a weight",
    )


def run(options: argparse.Namespace) -> None:
    """Search and print the winner, and how sure it is."""
    from countperf.documents import check_writable
    from countperf.errors import ParameterError
    from countperf.report.drawing import check_figure_path
    from countperf.tuning.devices import DevicesInterrupt
    from countperf.tuning.result import SearchInterrupt
    from countperf.workflow.tuning import tune, tune_devices

    if options.figure is not None:
        check_figure_path(options.figure)
    if options.replay is not None:
        _replay(options)
        return
    if options.space is None or options.where or options.prior:
        raise ParameterError(
            "name a space, such as matmul, or --replay FILE (which --where and --prior need)",
            parameter="space",
        )
    wanted = (options.kernel_tuner_cache, options.figure, options.t4)
    check_writable(options.store, *wanted)  # before any time is spent
    seconds = options.budget
    if seconds is None and options.measurements is None:
        seconds = 60.0
    if options.model is not None and options.weights is None and len(options.device) > 1:
        raise ParameterError(
            "--model without --weights names the weights of one device; give --weights, or one"
            " --device",
            parameter="model",
        )
    device = options.device[0] if options.device else None
    given: dict[str, Any] = {
        "seconds": seconds,
        "measurements": options.measurements,
        "weights": asked_cost(options, device),
        "force": options.force,
        "incomplete_ok": not options.complete,
        "store": options.store,
        "confidence": options.confidence,
        "tolerance": options.tolerance,
        "workers": options.workers,
        "longest_s": options.longest,
        "progress": lambda text: print(text, file=sys.stderr, flush=True),
    }
    sizes = as_dict(options.parameters)
    if len(options.device) > 1:
        try:
            several = tune_devices(options.space, sizes, devices=options.device, **given)
        except DevicesInterrupt as error:
            _show_devices(options, error.results)
            raise
        _show_devices(options, several)
        return
    try:
        result = tune(options.space, sizes, device=device, **given)
    except SearchInterrupt as error:
        if error.result is not None:
            _show(options, error.result)
        raise
    _show(options, result)


def _replay(options: argparse.Namespace) -> None:
    """Search recorded times."""
    from countperf.documents import check_writable
    from countperf.errors import ParameterError
    from countperf.report.replay import replay_head
    from countperf.tuning.recorded_space import RecordedSpace, read_value
    from countperf.tuning.replay import replay, replay_object

    if options.space is not None or options.store is not None or options.device:
        raise ParameterError(
            "--replay FILE takes the place of the space, its sizes, --device and --store; leave"
            " them out",
            parameter="space",
        )
    check_writable(options.figure)
    given = dict(read_value(text) for text in options.where)
    recorded = RecordedSpace.read_file(options.replay)
    recorded = recorded.where(**given) if given else recorded
    predicted_s = None
    if options.prior is not None:
        predicted_s = RecordedSpace.read_file(options.prior).times_of(recorded.configurations)
    result = replay(
        recorded,
        measurements=options.measurements,
        seconds=options.budget,
        predicted_s=predicted_s,
    )
    if options.json:
        print_json(replay_object(result))
    else:
        print("\n".join(replay_head(result)))
    if options.figure is not None:
        result.plot(options.figure)


def _show(options: argparse.Namespace, result: TuningResult) -> None:
    from countperf.report.tuning import tuning_object, tuning_text

    if options.json:
        print_json(tuning_object(result))
    else:
        print(tuning_text(result))
    _export(options, result)


def _show_devices(options: argparse.Namespace, several: DeviceResults) -> None:
    from countperf.report.tuning import device_results_object, device_results_text

    for label, result in several.found.items():
        _export(options, result, label)
    if options.json:
        print_json(device_results_object(several))
    else:
        print(device_results_text(several))


def _export(options: argparse.Namespace, result: TuningResult, label: str = "") -> None:
    """Write the files that were asked for; those of several devices beside each other."""
    from countperf.documents import write_rescued
    from countperf.tuning.devices import device_store
    from countperf.tuning.export import kernel_tuner_cache, t4_results
    from countperf.workflow.spaces import load_space

    def path(named: str) -> str:
        return str(device_store(named, label)) if label else named

    if options.kernel_tuner_cache is not None:
        content = kernel_tuner_cache(result, load_space(options.space))
        write_rescued(path(options.kernel_tuner_cache), json.dumps(content))
    if options.figure is not None:
        result.plot(path(options.figure))
    if options.t4 is not None:
        write_rescued(path(options.t4), json.dumps(t4_results(result)))
