"""Pruning of configurations for Triton's autotuner.

>>> import triton  # doctest: +SKIP
>>> from countperf.integrations.triton import early_config_prune  # doctest: +SKIP
>>> @triton.autotune(  # doctest: +SKIP
...     configs=configs,
...     key=["n"],
...     prune_configs_by={"early_config_prune": early_config_prune(predicted_s, keep=8)},
... )
... @triton.jit
... def kernel(...): ...

A cost function ranks configurations by their meta-parameters (``BLOCK_SIZE``, ``num_warps``,
``num_stages``) and by the arguments of the call.

Source: Triton's documentation of ``triton.autotune`` (``prune_configs_by``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from countperf.errors import ParameterError
from countperf.integrations import Cost, predict_times

Prune: TypeAlias = Callable[..., list[Any]]

_META = ("num_warps", "num_stages", "num_ctas", "maxnreg")


def early_config_prune(cost: Cost, *, keep: int) -> Prune:
    """Return a function for ``prune_configs_by`` that keeps those predicted fastest."""
    if keep < 1:
        raise ParameterError(f"keep={keep}: keep one configuration at least", parameter="keep")

    def prune(configs: Sequence[Any], named_args: Mapping[str, Any], **more: Any) -> list[Any]:
        configurations: list[dict[str, Any]] = []
        for config in configs:  # without meta-parameters that Triton leaves at None
            meta = {name: getattr(config, name, None) for name in _META}
            given = {name: value for name, value in meta.items() if value is not None}
            configurations.append({**named_args, **more, **config.kwargs, **given})
        times = predict_times(cost, configurations)
        order = np.argsort(np.where(np.isnan(times), np.inf, times), kind="stable")
        return [configs[position] for position in order[:keep]]

    return prune
