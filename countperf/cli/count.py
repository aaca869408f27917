"""Command ``count``."""

from __future__ import annotations

import argparse

from countperf.api.kernels import counted, depends_on_sizes, kernel_itself, kernel_statistics
from countperf.cli.common import as_dict, one_point, points, show, show_all
from countperf.counting.analysis import analyze_kernel
from countperf.errors import ParameterError
from countperf.report.counts import analysis, counts
from countperf.report.rows import Printed
from countperf.sizes import size_arrays


def run_count(options: argparse.Namespace) -> None:
    """Count and print the symbolic properties, and their values where sizes are given."""
    if options.analysis:
        _analyze(options)
        return
    sizes, at = as_dict(options.parameters), points(options.parameters)
    statistics = as_dict(options.statistics) or None
    tables = [size_arrays(sizes)]
    if depends_on_sizes(options.kernel, statistics):  # so do the formulas
        tables = at
    shown: list[Printed] = []
    for table in tables:
        vector = counted(
            options.kernel,
            statistics=statistics,
            view=options.view,
            sizes=table,
            instruction_counts=options.instruction_counts,
        )
        values = vector.evaluate(table) if sizes or not vector.parameters else None
        shown.append(counts(vector, values, () if tables[1:] else at))
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
    kernel = kernel_itself(options.kernel, "structure to analyze")
    statistics = kernel_statistics(options.kernel, as_dict(options.statistics) or None, sizes)
    kernel_analysis = analyze_kernel(kernel, statistics=statistics)
    parameters = sizes if sizes or not kernel_analysis.sizes.names else None
    show(options, analysis(kernel_analysis, parameters))
