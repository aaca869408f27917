"""Memory of a GPU, and arguments that refer to it."""

from __future__ import annotations

from typing import Any

import numpy as np


class DeviceMemory:
    """Memory of a GPU; freed with the last reference."""

    def __init__(self, owner: Any, size: int) -> None:
        self._owner = owner
        self.ptr = int(owner.ptr)
        self.size = size


def as_argument(value: Any) -> Any:
    """Return what a kernel is passed: the address of device memory, or the scalar itself."""
    return np.uint64(value.ptr) if isinstance(value, DeviceMemory) else value
