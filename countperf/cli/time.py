"""Commands on one kernel or device as it is: ``time``, ``compiled``, ``characterize``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any

from countperf.api.catalogue import executed_on_gpu, read_code
from countperf.api.prediction import with_compiled_code
from countperf.api.timing import time_kernel
from countperf.cli.common import as_dict, given, print_json, say, show
from countperf.devices.discovery import find_device, open_session
from countperf.errors import KernelBuildError, KernelSpecificationError, ParameterError
from countperf.figures import check_outputs, draw
from countperf.measuring.characterization import characterize
from countperf.models.definition import CODE, MISS
from countperf.store import check_writable
from countperf.text import Printed, plain
from countperf.user_code import find_in_user_code, guarded

if TYPE_CHECKING:
    import numpy as np


def run_time(options: argparse.Namespace) -> None:
    """Time the kernel, and print measured beside predicted times."""
    check_outputs(options.figure, options.output)
    timing = time_kernel(
        options.kernel,
        as_dict(options.parameters),
        make_arguments=options.make_arguments and _arguments(options.make_arguments),
        statistics=as_dict(options.statistics) or None,
        **given(options, "device", "instruction_counts", "weights", "model", "force", "level"),
        **given(options, "incomplete_ok", "longest_s", "unchecked"),
    )
    if timing.model_choice:
        print(f"countperf: {timing.model_choice}", file=sys.stderr)
    shown = timing.lay_out()
    if options.output is not None:  # first, whatever becomes of the output
        timing.write_file(options.output)
    if options.figure is not None:
        draw(timing, options.figure)
    if options.json:
        print_json(shown.object())
    else:
        print(shown.text(widest=200))


def _arguments(
    specification: str,
) -> Callable[[np.random.Generator, Mapping[str, int]], dict[str, Any]]:
    """Return a function of the user's that makes inputs; what it prints goes to standard error."""
    if ":" not in specification:
        message = f"{specification}: name the function too, as in my.py:make_arguments"
        raise KernelSpecificationError(message)
    function: Any = find_in_user_code(
        specification, FunctionType, kind_name="function", error=KernelSpecificationError
    )

    def make_arguments(rng: np.random.Generator, parameters: Mapping[str, int]) -> dict[str, Any]:
        with guarded(f"{specification} failed", KernelBuildError):
            made = function(rng, dict(parameters))
        if not isinstance(made, Mapping):
            raise KernelBuildError(
                f"{specification} returned a {type(made).__name__}; it has to return a dictionary"
                " of the kernel's inputs by name"
            )
        return dict(made)

    return make_arguments


def run_compiled(options: argparse.Namespace) -> None:
    """Print the instructions that a kernel's code executes, by class."""
    if (options.kernel is None) == (options.store is None):
        raise ParameterError("name a kernel, or a campaign's file with --store", parameter="kernel")
    if options.store is not None:
        shown = _store(options)
    elif options.capability:
        shown = _executed_on_gpu(options)
    else:
        shown = _executed(options)
    show(options, shown)


def _store(options: argparse.Namespace) -> Printed:
    """Read the code of measured kernels, and say of how many cases it is known."""
    store = read_code(options.store, device=options.device, progress=say)
    known = sum(case.code is not None for case in store)
    return Printed(
        head=[f"{known} of {len(store)} cases have their instructions"],
        facts={"cases": len(store), "with_code": known},
    )


def _executed(options: argparse.Namespace) -> Printed:
    """Give what a kernel's code executes."""
    sizes = as_dict(options.parameters)
    vector = with_compiled_code(
        options.kernel, sizes, device=options.device, every_group=options.every_group
    )
    counts = {
        name: number
        for name, number in vector.evaluate(sizes).items()
        if name.startswith((CODE, MISS))
    }
    return Printed(
        head=[
            "of all work groups, each followed"
            if options.every_group
            else "of all work groups: one of each kind is followed; --every-group follows them all"
        ],
        rows=[{"instructions": name, "executed": number} for name, number in counts.items()],
        facts=counts,
    )


def _executed_on_gpu(options: argparse.Namespace) -> Printed:
    """Give what a kernel's machine code for an NVIDIA GPU executes."""
    counts = executed_on_gpu(
        options.kernel,
        as_dict(options.parameters),
        capability=options.capability,
        every_group=options.every_group,
    )
    assumed = (
        f"work groups taken to execute what one of their kind does: {counts.assumed_groups};"
        " --every-group follows them all"
    )
    rows: list[dict[str, Any]] = [
        {"instructions": name, "sub-groups": count, "lanes": counts.lanes.get(name, 0)}
        for name, count in counts.instructions.items()
    ]
    return Printed(
        head=[f"{counts.sub_groups} sub-groups", *([assumed] if counts.assumed_groups else [])],
        rows=rows,
        facts=plain(counts),
    )


def run_characterize(options: argparse.Namespace) -> None:
    """Run the microbenchmarks and print what they found."""
    check_writable(options.store, options.output)
    session = open_session(find_device(options.device))
    characterized = characterize(session)
    characterized.write_file(options.store)
    if options.output is not None:
        characterized.parameters.write_file(options.output)
    show(options, characterized.lay_out())
