"""``countperf count``."""

from __future__ import annotations

import argparse

from countperf.cli.common import as_dict, one_point, points, print_json
from countperf.errors import ParameterError
from countperf.report import count_object, count_text
from countperf.report.analysis import MemoryGeometry, analysis_object, analysis_text
from countperf.sizes import size_arrays
from countperf.workflow.analyzing import analyzed
from countperf.workflow.kernels import counted


def run(options: argparse.Namespace) -> None:
    """Count and print the symbolic properties, and their values where sizes are given."""
    if options.analysis:
        _analyze(options)
        return
    sizes = size_arrays(as_dict(options.parameters))
    vector = counted(
        options.kernel,
        statistics=as_dict(options.statistics) or None,
        view=options.view,
        sizes=sizes,
        instruction_counts=options.instruction_counts,
    )
    values = vector.evaluate(sizes) if sizes or not vector.parameters else None
    if options.json:
        print_json(count_object(vector, values))
    else:
        print(count_text(vector, values, points(options.parameters)))


def _analyze(options: argparse.Namespace) -> None:
    """Print the structure of a kernel."""
    if options.instruction_counts:
        raise ParameterError(
            "--instruction-counts has no place in --analysis, which reads each instruction; leave"
            " one of them out",
            parameter="instruction_counts",
        )
    sizes = one_point(options.parameters, "--analysis")
    analysis = analyzed(options.kernel, statistics=as_dict(options.statistics) or None, sizes=sizes)
    parameters = sizes if sizes or not analysis.sizes.names else None
    memory = MemoryGeometry(
        sub_group_size=options.sub_group_size,
        line_bytes=options.line_bytes,
        banks=options.banks,
        bank_width_bytes=options.bank_width_bytes,
    )
    content = analysis_object(analysis, parameters, memory=memory)
    if options.json:
        print_json(content)
    else:
        print(analysis_text(content))
