"""The runtime whose object code is read."""

from __future__ import annotations

import pytest

from countperf.devices.device import Device
from countperf.devices.discovery import find_device
from countperf.errors import DeviceError


@pytest.fixture(scope="package")
def pocl() -> Device:
    """Return PoCL's device, or skip the test."""
    try:
        return find_device("pocl:0")
    except DeviceError as error:
        pytest.skip(str(error))
