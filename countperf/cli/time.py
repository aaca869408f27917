"""``countperf time``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any

from countperf.cli.common import as_dict, in_options, print_json
from countperf.documents import check_writable
from countperf.errors import KernelBuildError, KernelSpecificationError
from countperf.report.curves import check_figure_path
from countperf.report.timing import timing as timing_printed
from countperf.user_code import find_in_user_code, guarded
from countperf.workflow.timing import time_kernel

if TYPE_CHECKING:
    import numpy as np


def run(options: argparse.Namespace) -> None:
    """Time the kernel, and print measured beside predicted times."""
    if options.figure is not None:
        check_figure_path(options.figure)
    check_writable(options.save, options.figure)  # before the work, not after it
    timing = time_kernel(
        options.kernel,
        as_dict(options.parameters),
        device=options.device,
        make_arguments=None if options.arguments is None else _arguments(options.arguments),
        statistics=as_dict(options.statistics) or None,
        instruction_counts=options.instruction_counts,
        weights=options.weights,
        model=options.model,
        force=options.force,
        incomplete_ok=options.incomplete,
        level=options.level,
        longest_s=options.longest,
    )
    if timing.model_choice:
        print(f"countperf: {timing.model_choice}", file=sys.stderr)
    shown = timing_printed(timing)
    if options.save is not None:  # first, whatever becomes of the output
        timing.write_file(options.save)
    if options.figure is not None:
        timing.plot(options.figure)
    if options.json:
        print_json(shown.object())
    else:
        print(in_options(shown.text(widest=200), options))


def _arguments(
    specification: str,
) -> Callable[[np.random.Generator, Mapping[str, int]], dict[str, Any]]:
    """Return a function of the user's that makes inputs; what it prints goes to standard error."""

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
