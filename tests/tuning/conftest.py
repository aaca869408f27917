"""Devices for the tests that need one."""

from __future__ import annotations

from tests.harness.conftest import _needs_device, device  # pyright: ignore[reportPrivateUsage]

__all__ = ["_needs_device", "device"]
