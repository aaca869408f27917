"""Kernels of which CI runs some, and the nightly jobs all others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from measurement_kernels.entry import CatalogEntry


def one_of(share: int, kernels: Sequence[CatalogEntry]) -> list[Any]:
    """Return kernels as parameters of a test; only every `share`-th runs in CI."""
    return [
        pytest.param(each, id=each.name, marks=[pytest.mark.nightly] if number % share else [])
        for number, each in enumerate(kernels)
    ]
