"""Profiles, graphs and launches: derived counts, loops, refusals; predictions from them."""

from __future__ import annotations

from typing import Any

import pytest

from countperf.errors import DeviceParameterError, ModelNotApplicableError, ParameterError
from countperf.mechanistic.profile import (
    InstructionGraph,
    KernelProfile,
    LaunchConfiguration,
    ProfiledKernel,
)
from countperf.mechanistic.roofline import RooflineModel
from countperf.mechanistic.volkov import VolkovModel
from tests.mechanistic.builders import (
    EXAMPLE_CLASSES,
    EXAMPLE_GRAPH,
    example_device,
    example_profile,
    launch_at,
    make_class,
)


def test_counts_come_from_alpha_or_the_graph() -> None:
    assert example_profile().counts() == {"C": 4, "M": 2}
    assert example_profile(alpha={}).counts() == {"C": 4, "M": 2}
    assert example_profile(alpha={"C": 1}).instructions_per_sub_group() == 1


def test_counts_by_kind() -> None:
    device = example_device()

    assert example_profile().count_of("compute", device) == 4
    assert example_profile().count_of("barrier", device) == 0
    assert example_profile(alpha_mem=7.0).count_of("memory", device) == 7
    assert KernelProfile(name="k", alpha_comp=1).count_of("barrier", device) == 0
    with pytest.raises(DeviceParameterError) as caught:
        example_profile(alpha={"X": 1}).count_of("compute", device)
    assert caught.value.field == "classes.X"


@pytest.mark.parametrize(
    ("nodes", "edges", "parameter"),
    [
        pytest.param("", [], "nodes", id="empty"),
        pytest.param("ab", [(0, 1), (1, 0)], "edges", id="a cycle"),
        pytest.param("ab", [(1, 1)], "edges", id="a loop"),
        pytest.param("ab", [(0, 2)], "edges", id="leaves the nodes"),
        pytest.param("ab", [(-1, 1)], "edges", id="negative"),
    ],
)
def test_bad_graphs_are_refused(nodes: str, edges: list[tuple[int, int]], parameter: str) -> None:
    with pytest.raises(ParameterError) as caught:
        InstructionGraph(nodes, edges)

    assert caught.value.parameter == parameter


@pytest.mark.parametrize(
    ("fields", "parameter"),
    [
        pytest.param({"alpha": {"C": -1}}, "alpha[C]", id="negative count"),
        pytest.param({"gmem_bytes": float("inf")}, "gmem_bytes", id="infinite bytes"),
        pytest.param({"latency_bound": 0}, "latency_bound", id="no latency"),
        pytest.param({"registers_per_work_item": 1.5}, "registers_per_work_item", id="fraction"),
    ],
)
def test_bad_profiles_are_refused(fields: dict[str, Any], parameter: str) -> None:
    with pytest.raises(ParameterError) as caught:
        KernelProfile(name="k", **fields)

    assert caught.value.parameter == parameter


@pytest.mark.parametrize(
    ("fields", "parameter"),
    [
        ({"work_items_per_group": 0}, "work_items_per_group"),
        ({"num_groups": 0}, "num_groups"),
        ({"occupancy": 0.0}, "occupancy"),
        ({"active_groups": 0}, "active_groups"),
    ],
)
def test_bad_launches_are_refused(fields: dict[str, Any], parameter: str) -> None:
    with pytest.raises(ParameterError) as caught:
        LaunchConfiguration(**{"work_items_per_group": 32, "num_groups": 1, **fields})

    assert caught.value.parameter == parameter


def test_what_is_lacking_is_named_beside_what_is_given() -> None:
    with pytest.raises(ModelNotApplicableError, match="given: work") as caught:
        KernelProfile(name="k", work=1.0).require("span", model="tmm")

    assert caught.value.parameter == "span"


def test_other_kernels_are_refused() -> None:
    with pytest.raises(ParameterError) as caught:
        VolkovModel(device=example_device()).predict("kernel")

    assert caught.value.parameter == "kernel"


def test_a_prediction_tells_what_the_model_ignores() -> None:
    classes = {**EXAMPLE_CLASSES, "B": make_class("B", "barrier", 2, 40, "barrier")}
    profile = example_profile(
        alpha={"C": 4, "B": 1}, sub_group_idgs=(EXAMPLE_GRAPH, InstructionGraph("C"))
    )
    kernel = ProfiledKernel(profile=profile, launch=launch_at(1))

    prediction = RooflineModel(device=example_device(classes=classes)).predict(kernel)

    assert prediction.ignored == ("barriers", "divergence")
