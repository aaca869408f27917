"""The drawing of a simulation: every instruction at its time, in its rows."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from countperf.errors import ParameterError
from countperf.mechanistic.profile import InstructionGraph
from countperf.mechanistic.simulation import simulate
from countperf.mechanistic.workload import Simulation, Workload
from countperf.report.timeline import timeline_figure
from tests.mechanistic.builders import EXAMPLE_CLASSES, EXAMPLE_GRAPH, make_class

pytest.importorskip("matplotlib", reason="figures need the extra 'plot'")
EXAMPLE = Workload(programs=(EXAMPLE_GRAPH,), classes=EXAMPLE_CLASSES, concurrent_groups=10)
BARRIERS = Workload(
    programs=(InstructionGraph.chain(["I", "<B & 2>"] * 2),),
    classes={
        "I": make_class("I", "alu", 0.25, 6),
        "<B & 2>": make_class("<B & 2>", "<barrier> & more", 2.25, 70, "barrier"),
    },
    sub_groups_per_group=3,
    concurrent_groups=2,
    total_groups=5,
)


def _bars(figure: Any, kind: str) -> list[tuple[int, float, float]]:
    """Return row, start and extent of the bars of a kind, in cycles."""
    (panel,) = figure.axes
    (found,) = [each for each in panel.containers if each.get_label() == kind]
    return sorted((round(b.get_y() + b.get_height() / 2), b.get_x(), b.get_width()) for b in found)


def _labels(figure: Any) -> list[str]:
    return [label.get_text() for label in figure.axes[0].get_yticklabels()]


@pytest.mark.parametrize("workload", [EXAMPLE, BARRIERS], ids=["example", "barriers"])
def test_every_start_is_a_bar_of_its_sub_group_and_of_its_subsystem(workload: Workload) -> None:
    simulation = simulate(workload, record=True)

    figure = timeline_figure(simulation)

    names, keys = list(simulation.fill), list(simulation.timeline())
    assert len(_labels(figure)) == len(names) + simulation.sub_groups
    assert _bars(figure, "subsystem") == sorted(
        (names.index(issue.subsystem), issue.time, workload.classes[issue.name].cpi)
        for issue in simulation.issues
    )
    assert _bars(figure, "sub-group") == sorted(
        (
            len(names) + keys.index((issue.group, issue.sub_group)),
            issue.time,
            workload.classes[issue.name].cpi,
        )
        for issue in simulation.issues
    )


def test_bars_of_a_subsystem_never_overlap_and_fill_what_its_label_says() -> None:
    simulation = simulate(EXAMPLE, record=True)

    figure = timeline_figure(simulation)

    rows = itertools.groupby(_bars(figure, "subsystem"), key=lambda bar: bar[0])
    for (name, fill), (_, group) in zip(simulation.fill.items(), rows, strict=True):
        spans = [(start, start + extent) for _, start, extent in group]
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(spans))
        assert sum(end - start for start, end in spans) == pytest.approx(fill * 58)
        assert f"{name}: {100 * fill:.1f} %" in _labels(figure)


def test_only_the_beginning_is_drawn_on_request() -> None:
    simulation = simulate(EXAMPLE, record=True)

    shown = _bars(timeline_figure(simulation, until=3), "sub-group")

    assert len(shown) == sum(issue.time < 3 for issue in simulation.issues) == 3


@pytest.mark.parametrize(
    ("simulation", "until", "parameter"),
    [
        pytest.param(simulate(EXAMPLE), None, "simulation", id="not recorded"),
        pytest.param(simulate(EXAMPLE, record=True), 0, "until", id="nothing to draw"),
    ],
)
def test_refused_drawings(simulation: Simulation, until: float | None, parameter: str) -> None:
    with pytest.raises(ParameterError) as caught:
        timeline_figure(simulation, until)

    assert caught.value.parameter == parameter


def test_instructions_that_take_no_time_are_drawn() -> None:
    free = replace(
        EXAMPLE, programs=(InstructionGraph("C"),), classes={"C": make_class("C", "alu", 1, 0)}
    )

    assert len(_bars(timeline_figure(simulate(free, record=True)), "sub-group")) == 10
