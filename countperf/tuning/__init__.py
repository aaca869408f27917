"""Finding the fastest variant of a kernel: search spaces, ranking, tuning.

A `SearchSpace` is a set of choices and a function that builds the variant of each. Ranking predicts
every one; tuning measures the most promising, learns by how much the predictions of this family of
kernels are off, and stops when what is left can hardly be faster.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from countperf.tuning.space import Choice, SearchSpace, Value

if TYPE_CHECKING:
    from countperf.tuning.export import kernel_tuner_cache, t4_results, tuning_frame

_EXPORTS = ("kernel_tuner_cache", "t4_results", "tuning_frame")

__all__ = ["Choice", "SearchSpace", "Value", "kernel_tuner_cache", "t4_results", "tuning_frame"]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'countperf.tuning' has no attribute {name!r}")
    return getattr(import_module("countperf.tuning.export"), name)
