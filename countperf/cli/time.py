"""Commands that run kernels: ``time``, ``compiled``, ``characterize``, ``tune``, ``rank``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

import numpy as np

from countperf.api.catalogue import read_code
from countperf.api.kernels import Kernel
from countperf.api.prediction import with_compiled_code
from countperf.api.searching import rank, tune
from countperf.api.timing import time_kernel
from countperf.cli.common import as_dict, pick_options, say, say_choice, show
from countperf.devices.discovery import find_device, open_session
from countperf.errors import KernelBuildError, KernelSpecificationError, ParameterError
from countperf.figures import check_outputs, draw
from countperf.measuring.characterization import characterize
from countperf.mechanistic.compiled_profile import GpuKernel
from countperf.models.definition import CODE, MISS
from countperf.store import check_writable, write_atomically
from countperf.text import Printed, plain
from countperf.tuning.ranker import lay_out_point
from countperf.tuning.result import SearchInterrupt, TuningResult
from countperf.user_code import find_in_user_code, guard_user_code


def run_time(options: argparse.Namespace) -> None:
    """Time the kernel, and print measured beside predicted times."""
    check_outputs(options.figure, options.output)
    timing = time_kernel(
        options.kernel,
        as_dict(options.parameters),
        make_arguments=options.make_arguments and _arguments(options.make_arguments),
        statistics=as_dict(options.statistics) or None,
        **pick_options(options, "device", "instruction_counts", "weights", "model", "force"),
        **pick_options(options, "level", "incomplete_ok", "longest_s", "unchecked"),
    )
    say_choice(timing.model_choice)
    if options.output is not None:  # first, whatever becomes of the output
        timing.write_file(options.output)
    if options.figure is not None:
        draw(timing, options.figure)
    show(options, timing.lay_out(), widest=200)


def _arguments(
    specification: str,
) -> Callable[[np.random.Generator, Mapping[str, int]], dict[str, Any]]:
    """Return a function of the user's that makes inputs; what it prints goes to standard error."""
    if ":" not in specification:
        message = f"{specification}: name the function too, as in my.py:make_arguments"
        raise KernelSpecificationError(message)
    error: Any = {"kind_name": "function", "error": KernelSpecificationError}
    function: Any = find_in_user_code(specification, FunctionType, **error)

    def make_arguments(rng: np.random.Generator, parameters: Mapping[str, int]) -> dict[str, Any]:
        with guard_user_code(f"{specification} failed", KernelBuildError):
            made = function(rng, dict(parameters))
        if not isinstance(made, Mapping):
            said = f"{specification} returned a {type(made).__name__}"
            raise KernelBuildError(f"{said}; return a dictionary of the kernel's inputs by name")
        return dict(made)

    return make_arguments


def run_compiled(options: argparse.Namespace) -> None:
    """Print the instructions that a kernel's code executes, by class."""
    if (options.kernel is None) == (options.store is None):
        raise ParameterError("name a kernel, or a campaign's file with --store", parameter="kernel")
    if options.store is not None:
        store = read_code(options.store, device=options.device, progress=say)
        facts = {"cases": len(store), "with_code": sum(case.code is not None for case in store)}
        said = f"{facts['with_code']} of {facts['cases']} cases have their instructions"
        shown = Printed(head=[said], facts=facts)
    else:
        shown = _count_on_gpu(options) if options.capability else _count_here(options)
    show(options, shown)


def _count_here(options: argparse.Namespace) -> Printed:
    """Give what a kernel's code executes."""
    sizes = as_dict(options.parameters)
    vector = with_compiled_code(
        options.kernel, sizes, device=options.device, every_group=options.every_group
    )
    values = vector.evaluate(sizes)
    counts = {name: n for name, n in values.items() if name.startswith((CODE, MISS))}
    which = ", each followed"
    if not options.every_group:
        which = ": one of each kind is followed; --every-group follows them all"
    return Printed(
        head=[f"of all work groups{which}"],
        rows=[{"instructions": name, "executed": number} for name, number in counts.items()],
        facts=counts,
    )


def _count_on_gpu(options: argparse.Namespace) -> Printed:
    """Give what a kernel's machine code for an NVIDIA GPU executes."""
    sizes = as_dict(options.parameters)
    unit = Kernel.of(options.kernel).unit_with("code to compile")
    counts = GpuKernel(unit, options.capability).counts(sizes, every_group=options.every_group)
    head, assumed = [f"{counts.sub_groups} sub-groups"], counts.assumed_groups
    if assumed:
        said = "work groups taken to execute what one of their kind does"
        head.append(f"{said}: {assumed}; --every-group follows them all")
    return Printed(
        head=head,
        rows=[
            {"instructions": name, "sub-groups": count, "lanes": counts.lanes.get(name, 0)}
            for name, count in counts.instructions.items()
        ],
        facts=plain(counts),
    )


def run_characterize(options: argparse.Namespace) -> None:
    """Run the microbenchmarks and print what they found."""
    check_writable(options.store, options.output)
    characterized = characterize(open_session(find_device(options.device)))
    characterized.write_file(options.store)
    if options.output is not None:
        characterized.parameters.write_file(options.output)
    show(options, characterized.lay_out())


def run_tune(options: argparse.Namespace) -> None:
    """Search and print the winner, and how sure it is."""
    check_outputs(options.figure, options.store)
    no_limit = options.budget is None and options.measurements is None
    try:
        result = tune(
            options.space,
            as_dict(options.parameters),
            seconds=60.0 if no_limit else options.budget,
            statistics=as_dict(options.statistics) or None,
            progress=say,
            **pick_options(options, "measurements", "device", "weights", "model", "force", "store"),
            **pick_options(options, "longest_s"),
        )
    except SearchInterrupt as error:
        if error.result is not None:
            _show(options, error.result)
        raise
    _show(options, result)


def _show(options: argparse.Namespace, result: TuningResult) -> None:
    say_choice(result.model_choice)
    show(options, result.lay_out())
    if options.figure is not None:
        draw(result, options.figure)


def run_rank(options: argparse.Namespace) -> None:
    """Predict all points and print the best."""
    check_writable(options.output)  # before the work, not after it
    lines: list[str] = []
    ranking = rank(
        options.space,
        as_dict(options.parameters),
        statistics=as_dict(options.statistics) or None,
        **pick_options(options, "device", "weights", "model", "force", "points"),
        **pick_options(options, "incomplete_ok", "longest_s"),
        on_point=None
        if options.output is None
        else lambda point: lines.append(json.dumps(plain(lay_out_point(point))) + "\n"),
    )
    kept = "--output FILE writes down"
    if options.output is not None:
        write_atomically(options.output, "".join(lines))
        kept = f"{options.output} has"
    ranking.check_predicted()
    say_choice(ranking.model_choice)
    show(options, ranking.lay_out(kept=kept))
