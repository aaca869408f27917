"""``countperf time``."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any

from countperf.cli.common import (
    add_device,
    add_kernel,
    add_model,
    as_dict,
    natural,
    print_json,
)

if TYPE_CHECKING:
    import numpy as np


def configure(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_kernel(command)
    add_device(command, "by default the working device with the highest copy bandwidth")
    command.add_argument(
        "--weights",
        metavar="SLUG|PATH",
        help="fitted weights that predict: a device's slug or a file; by default those of the"
        " device, if there are any",
    )
    add_model(command)
    command.add_argument(
        "--force", action="store_true", help="use weights that do not match the device"
    )
    command.add_argument(
        "--incomplete",
        action="store_true",
        help="leave properties without a weight out of predictions, and say so",
    )
    command.add_argument(
        "--level",
        type=float,
        choices=(0.9, 0.95),
        default=0.95,
        help="in which share of cases the interval is to hold the time (default: 0.95)",
    )
    command.add_argument(
        "--arguments",
        metavar="FILE:FUNCTION",
        help="a function that takes a random generator and a dictionary of the sizes, and returns"
        " the kernel's inputs by name; by default inputs are made from the kernel's own arguments",
    )
    command.add_argument(
        "--cold", action="store_true", help="flush the caches before each run (default: warm)"
    )
    command.add_argument(
        "--rounds", type=natural, metavar="N", help="rounds of each size, at least (default: 3)"
    )
    command.add_argument(
        "--save", metavar="FILE", help="keep the times as a document, for predict --anchor FILE"
    )
    command.add_argument(
        "--figure", metavar="FILE", help="also draw time over size (.svg, .png, .pdf)"
    )


def run(options: argparse.Namespace) -> None:
    """Time the kernel, and print measured beside predicted times."""
    from countperf.cli.progress import ProgressBar
    from countperf.documents import check_writable
    from countperf.report.drawing import check_figure_path
    from countperf.report.timing import timing_object, timing_text
    from countperf.workflow.timing import time_kernel

    if options.figure is not None:
        check_figure_path(options.figure)
    check_writable(options.save, options.figure)  # before the work, not after it
    with ProgressBar() as progress:
        timing = time_kernel(
            options.kernel,
            as_dict(options.parameters),
            device=options.device,
            rounds=options.rounds,
            make_arguments=None if options.arguments is None else _arguments(options.arguments),
            statistics=as_dict(options.statistics) or None,
            weights=options.weights,
            model=options.model,
            force=options.force,
            incomplete_ok=options.incomplete,
            level=options.level,
            cold=options.cold,
            progress=progress,
        )
    if options.save is not None:  # first, whatever becomes of the output
        timing.write_file(options.save, rescue=True)
    if options.figure is not None:
        timing.plot(options.figure)
    if options.json:
        print_json(timing_object(timing))
    else:
        print(timing_text(timing))


def _arguments(
    specification: str,
) -> Callable[[np.random.Generator, Mapping[str, int]], dict[str, Any]]:
    """Return a function of the user's that makes inputs; what it prints goes to standard error."""
    from countperf.errors import KernelBuildError, KernelSpecificationError
    from countperf.user_code import find_in_user_code, guarded

    def error(message: str) -> KernelSpecificationError:
        return KernelSpecificationError(message, specification=specification)

    if ":" not in specification:
        raise error(f"{specification}: name the function too, as in my.py:make_arguments")
    function: Any = find_in_user_code(
        specification, FunctionType, kind_name="function", error=error
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
