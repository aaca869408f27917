"""Nothing that counting keeps in the process outlives `forget_counts`: timings are honest."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sized

import pytest

from countperf.properties import cache
from countperf.properties.count_properties import count_kernel
from countperf.properties.vector import PropertyVector
from countperf.symbolic.memory import forget_counts
from measurement_kernels.catalog import entry

_PARTS = ("countperf.symbolic", "countperf.counting", "countperf.properties")
_KERNELS = (
    "matmul-tiled/square/16x16",
    "transpose/stride1-writes/16x16",
    "stride2-filled/direct/256x1",
)


def _memories() -> Iterator[tuple[str, int]]:
    """Yield what modules keep, and how much of it."""
    for name, module in list(sys.modules.items()):
        if name.startswith(_PARTS):
            for attribute, value in vars(module).items():
                if hasattr(value, "cache_info"):
                    yield f"{name}.{attribute}", value.cache_info().currsize
                elif isinstance(value, Sized) and not attribute.startswith("__"):
                    yield f"{name}.{attribute}", len(value)


def test_what_was_kept_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_counted", itertools.count(1))  # none forgets in between
    kernels = [entry(name).build() for name in _KERNELS]

    def counted() -> list[PropertyVector]:
        return [count_kernel(kernel, cache=False) for kernel in kernels]

    first = counted()  # imports, too
    for vector in first:
        PropertyVector.from_document(vector.to_document())
    forget_counts()
    empty = dict(_memories())
    assert counted() == first
    for vector in first:
        PropertyVector.from_document(vector.to_document())
    grown = {name for name, size in _memories() if size > empty[name]}
    assert grown >= {
        "countperf.symbolic.context._context",
        "countperf.symbolic.polynomial_text.parse_polynomial",
        "countperf.properties.taxonomy.validate_name",
    }
    forget_counts()
    assert dict(_memories()) == empty
    assert not any(empty[name] for name in grown)
