"""Devices for the tests that need one."""

from __future__ import annotations

from functools import cache

import pytest

from countperf.devices.device import Device
from countperf.devices.discovery import find_device
from countperf.errors import DeviceError


@cache
def _device_or_reason() -> Device | str:
    try:
        return find_device()
    except DeviceError as error:
        return str(error)


@pytest.fixture
def device() -> Device:
    """Return a working device, or skip the test."""
    found = _device_or_reason()
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.fixture
def pocl() -> Device:
    """Return PoCL's first device, or skip the test."""
    try:
        return find_device("pocl:0")
    except DeviceError as error:
        pytest.skip(str(error))


@pytest.fixture(autouse=True)
def _needs_device(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("device") is not None:
        request.getfixturevalue("device")
