"""Kernels of which CI runs some, and the nightly jobs all others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def one_of(share: int, kernels: Iterable[Any]) -> list[Any]:
    """Return kernels, or their names, as parameters of a test; every `share`-th runs in CI."""
    return [
        pytest.param(
            each,
            id=each if isinstance(each, str) else each.name,
            marks=[pytest.mark.nightly] if number % share else [],
        )
        for number, each in enumerate(kernels)
    ]
