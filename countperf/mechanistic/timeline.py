"""Drawing of a simulated pipeline, as SVG: what each subsystem and each sub-group does when.

No plotting library is needed; any browser shows the result.
"""

from __future__ import annotations

import math
from xml.etree import ElementTree

from countperf.errors import ParameterError
from countperf.mechanistic.checks import check_positive
from countperf.mechanistic.simulation import Issue, Simulation

_NAMESPACE = "http://www.w3.org/2000/svg"
_COLORS = (  # Okabe & Ito (2008), told apart by color-blind readers as well
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#d55e00",
    "#56b4e9",
    "#f0e442",
    "#000000",
)
_ROW = 16.0
_BAR = 12.0
_LEFT = 170.0
_TOP = 8.0
_TICKS = 10


def draw_timeline(
    simulation: Simulation, *, width: float = 1000.0, until: float | None = None
) -> str:
    """Draw a simulation: a row per subsystem and one per sub-group, time from left to right.

    Parameters
    ----------
    simulation : Simulation
        What to draw, simulated with ``record=True``.
    width : float, optional
        Width of the time axis, pixels.
    until : float, optional
        Draw only instructions that start before this cycle; by default all.

    Returns
    -------
    str
        An SVG document. Every instruction is a bar, twice: in the row of its subsystem (class
        ``subsystem``), whose label states the share of all cycles for which it is occupied, and in
        the row of its sub-group (class ``sub-group``), in the color of the subsystem. Bars begin at
        ``x`` and are ``width`` wide in cycles: the group around them scales them to pixels.

    Raises
    ------
    ParameterError
        The simulation did not record its starts, or a number is not positive.

    Examples
    --------
    >>> from countperf.hardware.parameters import InstructionClass
    >>> from countperf.mechanistic.profile import InstructionGraph
    >>> from countperf.mechanistic.simulation import Workload, simulate
    >>> fma = InstructionClass(name="fma", subsystem="alu", cpi=1, latency=4, kind="compute")
    >>> chain = InstructionGraph.chain(["fma"] * 3)
    >>> workload = Workload(programs=(chain,), classes={"fma": fma}, concurrent_groups=4)
    >>> drawing = draw_timeline(simulate(workload, record=True))
    >>> drawing.count('class="sub-group"')
    12
    """
    check_positive(width, "width")
    if not simulation.issues:
        message = "the simulation did not record its starts; simulate with record=True"
        raise ParameterError(message, parameter="simulation")
    drawn = simulation.issues
    if until is not None:
        check_positive(until, "until")
        drawn = tuple(issue for issue in drawn if issue.time < until)
    end = max(issue.time + issue.cpi for issue in drawn)
    if until is None:
        end = max(end, simulation.cycles)
    colors = {name: _COLORS[index % len(_COLORS)] for index, name in enumerate(simulation.fill)}
    sub_groups = sorted({(issue.group, issue.sub_group) for issue in drawn})
    labels = [f"{name}: {100 * fill:.1f} %" for name, fill in simulation.fill.items()]
    labels += [f"group {group}, sub-group {number}" for group, number in sub_groups]
    bottom = _TOP + _ROW * len(labels)
    root = ElementTree.Element(
        "svg",
        {
            "xmlns": _NAMESPACE,
            "width": _number(_LEFT + width + _ROW),
            "height": _number(bottom + 2 * _ROW),
            "font-family": "sans-serif",
            "font-size": "11",
        },
    )
    for row, label in enumerate(labels):
        _text(root, label, 4, _TOP + _ROW * row + _BAR - 2)
    _draw_axis(root, end, width / end, bottom)
    bars = ElementTree.SubElement(
        root, "g", {"transform": f"translate({_number(_LEFT)} 0) scale({width / end!r} 1)"}
    )
    row_of_subsystem = {name: row for row, name in enumerate(colors)}
    row_of_sub_group = {key: len(colors) + row for row, key in enumerate(sub_groups)}
    for issue in drawn:
        _draw_bar(bars, "subsystem", issue, row_of_subsystem[issue.subsystem], colors)
        _draw_bar(bars, "sub-group", issue, row_of_sub_group[issue.group, issue.sub_group], colors)
    return ElementTree.tostring(root, encoding="unicode")


def _draw_bar(
    parent: ElementTree.Element, kind: str, issue: Issue, row: int, colors: dict[str, str]
) -> None:
    bar = ElementTree.SubElement(
        parent,
        "rect",
        {
            "class": kind,
            "x": _number(issue.time),
            "y": _number(_TOP + _ROW * row),
            "width": _number(issue.cpi),
            "height": _number(_BAR),
            "fill": colors[issue.subsystem],
        },
    )
    title = ElementTree.SubElement(bar, "title")
    title.text = (
        f"{issue.name} ({issue.node}) of group {issue.group}, sub-group {issue.sub_group}: starts"
        f" at cycle {_number(issue.time)}"
    )


def _draw_axis(parent: ElementTree.Element, end: float, scale: float, bottom: float) -> None:
    step = 10 ** math.floor(math.log10(end / _TICKS))
    step *= next(factor for factor in (1, 2, 5, 10) if end / (factor * step) <= _TICKS)
    for index in range(math.floor(end / step * (1 + 1e-12)) + 1):
        x = _LEFT + index * step * scale
        line = {"x1": x, "x2": x, "y1": _TOP, "y2": bottom}
        attributes = {name: _number(value) for name, value in line.items()}
        ElementTree.SubElement(parent, "line", {**attributes, "stroke": "#cccccc"})
        _text(parent, f"{index * step:.10g}", x + 2, bottom + _BAR)
    _text(parent, "cycles", 4, bottom + _BAR)


def _text(parent: ElementTree.Element, content: str, x: float, y: float) -> None:
    element = ElementTree.SubElement(parent, "text", {"x": _number(x), "y": _number(y)})
    element.text = content


def _number(value: float) -> str:
    return repr(float(value)).removesuffix(".0")
