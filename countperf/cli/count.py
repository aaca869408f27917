"""Command ``count``."""

from __future__ import annotations

import argparse

from countperf.api.kernels import Kernel
from countperf.cli.common import as_dict, one_point, points, show, show_all
from countperf.counting.analysis import analyze_kernel
from countperf.errors import ParameterError
from countperf.sizes import size_arrays
from countperf.text import Printed


def run_count(options: argparse.Namespace) -> None:
    """Count and print the symbolic properties, and their values where sizes are given."""
    if options.analysis:
        _analyze(options)
        return
    sizes, at = as_dict(options.parameters), points(options.parameters)
    statistics = as_dict(options.statistics) or None
    kernel = Kernel.of(options.kernel, {}, statistics, options.instruction_counts)
    tables = [size_arrays(sizes)]
    if kernel.depends_on_sizes:  # so do the formulas
        tables = at
    shown: list[Printed] = []
    for table in tables:
        vector = kernel.at(table).count(options.view)
        values = vector.evaluate(table) if sizes or not vector.parameters else None
        shown.append(vector.lay_out(values, () if tables[1:] else at))
    show_all(options, shown) if shown[1:] else show(options, shown[0])


def _analyze(options: argparse.Namespace) -> None:
    """Print the structure of a kernel."""
    if options.instruction_counts:
        raise ParameterError(
            "--instruction-counts has no place in --analysis, which reads each instruction; leave"
            " one of them out",
            parameter="instruction_counts",
        )
    sizes = one_point(options.parameters, "--analysis")
    kernel = Kernel.of(options.kernel, sizes, as_dict(options.statistics) or None)
    unit = kernel.unit_with("structure to analyze")
    kernel_analysis = analyze_kernel(unit, statistics=kernel.statistics)
    parameters = sizes if sizes or not kernel_analysis.sizes.names else None
    show(options, kernel_analysis.lay_out(parameters))
