"""The drawing of a simulation: every instruction at its time, in its rows."""

from __future__ import annotations

import itertools
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from countperf.errors import ParameterError
from countperf.mechanistic.profile import InstructionGraph
from countperf.mechanistic.simulation import Simulation, Workload, simulate
from countperf.mechanistic.timeline import draw_timeline
from tests.mechanistic.builders import EXAMPLE_CLASSES, EXAMPLE_GRAPH, make_class

SVG = "{http://www.w3.org/2000/svg}"
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


def bars(drawing: str, kind: str) -> list[tuple[float, float, float]]:
    """Return row, start and extent of the bars of a kind, in cycles."""
    return sorted(
        (float(bar.attrib["y"]), float(bar.attrib["x"]), float(bar.attrib["width"]))
        for bar in ElementTree.fromstring(drawing).iter(f"{SVG}rect")
        if bar.attrib["class"] == kind
    )


def texts(drawing: str) -> list[str]:
    return [text.text or "" for text in ElementTree.fromstring(drawing).iter(f"{SVG}text")]


@pytest.mark.parametrize("workload", [EXAMPLE, BARRIERS], ids=["example", "barriers"])
def test_every_start_is_a_bar_of_its_sub_group_and_of_its_subsystem(workload: Workload) -> None:
    simulation = simulate(workload, record=True)

    drawing = draw_timeline(simulation)

    of_sub_groups, of_subsystems = bars(drawing, "sub-group"), bars(drawing, "subsystem")
    rows = sorted({row for row, _, _ in of_subsystems + of_sub_groups})
    assert len(rows) == len(simulation.fill) + simulation.sub_groups
    names = list(simulation.fill)
    keys = list(simulation.timeline())
    assert of_subsystems == sorted(
        (rows[names.index(issue.subsystem)], issue.time, workload.classes[issue.name].cpi)
        for issue in simulation.issues
    )
    assert of_sub_groups == sorted(
        (
            rows[len(names) + keys.index((issue.group, issue.sub_group))],
            issue.time,
            workload.classes[issue.name].cpi,
        )
        for issue in simulation.issues
    )


def test_bars_of_a_subsystem_never_overlap_and_fill_what_its_label_says() -> None:
    simulation = simulate(EXAMPLE, record=True)

    drawing = draw_timeline(simulation)

    rows = itertools.groupby(bars(drawing, "subsystem"), key=lambda bar: bar[0])
    for (name, fill), (_, group) in zip(simulation.fill.items(), rows, strict=True):
        spans = [(start, start + extent) for _, start, extent in group]
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(spans))
        assert sum(end - start for start, end in spans) == pytest.approx(fill * 58)
        assert f"{name}: {100 * fill:.1f} %" in texts(drawing)


def test_pixels_and_axis_follow_from_the_width() -> None:
    drawing = draw_timeline(simulate(EXAMPLE, record=True), width=580)

    group = ElementTree.fromstring(drawing).find(f"{SVG}g")
    assert group is not None
    assert group.attrib["transform"] == "translate(170 0) scale(10.0 1)"
    assert [text for text in texts(drawing) if text.isdigit()] == [
        "0", "10", "20", "30", "40", "50"
    ]  # fmt: skip


def test_only_the_beginning_is_drawn_on_request() -> None:
    simulation = simulate(EXAMPLE, record=True)

    drawing = draw_timeline(simulation, until=3)

    assert (
        len(bars(drawing, "sub-group")) == sum(issue.time < 3 for issue in simulation.issues) == 3
    )


def test_names_are_written_as_text() -> None:
    simulation = simulate(BARRIERS, record=True)
    drawing = draw_timeline(simulation)

    titles = [title.text or "" for title in ElementTree.fromstring(drawing).iter(f"{SVG}title")]
    assert any(title.startswith("<B & 2> (1) of group 4, sub-group 2: starts") for title in titles)
    assert any(text.startswith("<barrier> & more: ") for text in texts(drawing))


@pytest.mark.parametrize(
    ("simulation", "changes", "parameter"),
    [
        pytest.param(simulate(EXAMPLE), {}, "simulation", id="not recorded"),
        pytest.param(simulate(EXAMPLE, record=True), {"width": 0}, "width", id="no width"),
        pytest.param(simulate(EXAMPLE, record=True), {"until": 0}, "until", id="nothing to draw"),
    ],
)
def test_refused_drawings(
    simulation: Simulation, changes: dict[str, float], parameter: str
) -> None:
    with pytest.raises(ParameterError) as caught:
        draw_timeline(simulation, **changes)

    assert caught.value.parameter == parameter


def test_instructions_that_take_no_time_are_drawn() -> None:
    free = replace(
        EXAMPLE, programs=(InstructionGraph("C"),), classes={"C": make_class("C", "alu", 1, 0)}
    )

    assert len(bars(draw_timeline(simulate(free, record=True)), "sub-group")) == 10
