"""Resident groups of a kernel, and the nearest changes that raise them, by hand."""

from __future__ import annotations

from countperf.hardware.library import load_device
from countperf.hardware.parameters import declare_device
from countperf.mechanistic.occupancy_advice import KernelOccupancy, program_occupancy
from countperf.mechanistic.profile import KernelProfile, LaunchConfiguration, ProfiledKernel
from tests.printing import text_of

GTX_970 = load_device("nvidia-gtx-970")


def profiled(
    group: int, *, registers: int | None = None, local_bytes: int | None = None
) -> ProfiledKernel:
    return ProfiledKernel(
        profile=KernelProfile(
            name="k", registers_per_work_item=registers, local_bytes_per_group=local_bytes
        ),
        launch=LaunchConfiguration(work_items_per_group=group, num_groups=1000),
    )


def test_the_next_number_of_registers() -> None:
    # a sub-group takes 40*32 = 1280 registers, a multiple of 256: 51 of them fit, 48 in fours,
    # that is 6 groups of 8; all 64 fit at 1024 = 32*32
    found = program_occupancy(profiled(256, registers=40), GTX_970)

    assert found.residency.active_groups == 6
    assert found.residency.limiter == "registers"
    assert found.most_registers == 40
    registers = {change.resource: change for change in found.changes}["registers_per_work_item"]
    assert (registers.value, registers.residency.active_groups) == (32, 8)


def test_the_next_amount_of_local_memory() -> None:
    # 98304 byte of a compute unit hold 2 groups of 40000, and 3 of 32768
    found = program_occupancy(profiled(256, registers=32, local_bytes=40000), GTX_970)

    assert found.residency.active_groups == 2
    local = {change.resource: change for change in found.changes}["local_bytes_per_group"]
    assert (local.value, local.residency.active_groups) == (32768, 3)


def test_the_next_size_of_a_group() -> None:
    # 32 groups of one sub-group each are all that a compute unit takes: 64 sub-groups need two each
    found = program_occupancy(profiled(32, registers=32), GTX_970)

    assert found.residency.limiter == "groups"
    assert found.residency.occupancy_max == 32
    (change,) = found.changes
    assert (change.resource, change.value) == ("work_items_per_group", 64)
    assert change.residency.occupancy_max == 64


def test_without_registers_the_occupancy_is_a_bound_that_names_those_which_keep_it() -> None:
    found = program_occupancy(profiled(256), GTX_970)

    assert not found.registers_are_known
    assert found.residency.active_groups == 8
    assert found.most_registers == 32
    text = text_of(KernelOccupancy(kernel="k", device="gtx", programs=(found,)))
    assert "at most 8 groups" in text
    assert "up to 32 keep this; state them (registers_per_work_item=N" in text


def test_a_device_whose_registers_limit_nothing() -> None:
    device = declare_device(
        sub_group_size=8, max_work_items_per_compute_unit=64, max_groups_per_compute_unit=1
    )

    found = program_occupancy(profiled(16), device)

    assert found.registers_are_known
    assert found.residency.limiter == "groups"


def test_a_frame_has_the_state_and_the_changes() -> None:
    programs = (program_occupancy(profiled(256, registers=40), GTX_970),)

    frame = KernelOccupancy(kernel="k", device="gtx", programs=programs).to_frame()

    assert list(frame["changed"]) == ["", "registers_per_work_item"]
    assert list(frame["groups"]) == [6, 8]
    assert list(frame["occupancy"]) == [0.75, 1.0]
