"""Configurations of Triton's autotuner are pruned by a cost function."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest

from countperf.errors import ParameterError
from countperf.integrations.triton import early_config_prune


@dataclass
class Config:
    """Stand-in with the fields of ``triton.Config``, where Triton is not installed."""

    kwargs: dict[str, Any]
    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    maxnreg: int | None = None
    pre_hook: Any = field(default=None, repr=False)


def config_class() -> Any:
    if find_spec("triton") is None:
        return Config
    return import_module("triton").Config


def seconds(configuration: dict[str, Any]) -> float:
    if configuration["num_warps"] == 16:
        return float("nan")
    return configuration["n"] / configuration["BLOCK"] + 10.0 * configuration["num_warps"]


def configs() -> list[Any]:
    make = config_class()
    return [make({"BLOCK": block}, num_warps=warps) for block in (64, 256) for warps in (2, 8, 16)]


@pytest.mark.parametrize(
    ("n", "wanted"), [(1024, [(256, 2), (64, 2)]), (65536, [(256, 2), (256, 8)])]
)
def test_the_configurations_predicted_fastest_are_kept(n: int, wanted: list[Any]) -> None:
    prune = early_config_prune(seconds, keep=2)
    kept = prune(configs(), {"x": object(), "n": n})
    assert [(each.kwargs["BLOCK"], each.num_warps) for each in kept] == wanted


def test_keeping_nothing_is_refused() -> None:
    with pytest.raises(ParameterError, match="keep one configuration at least"):
        early_config_prune(seconds, keep=0)
