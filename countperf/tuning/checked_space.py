"""Check of a search space and of sizes for it before any work."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import islice

from countperf.errors import CountperfError, ParameterError
from countperf.tuning.points import built, user_space
from countperf.tuning.pools import process_pool
from countperf.tuning.sending import NOT_SENT
from countperf.tuning.shared_counts import counted_variant, scheduled_variant
from countperf.tuning.space import Choice, SearchSpace
from countperf.tuning.workers import WorkerLostError

_PROBED = 8  # variants, to find out which sizes kernels of a space have
_PROBE_S = 10.0  # for each of them


def checked_space(space: SearchSpace | str, sizes: Mapping[str, int]) -> SearchSpace:
    """Find a space, and see to it before any work that it can be asked for these sizes."""
    found = user_space(space) if isinstance(space, str) else space
    for name, value in sizes.items():
        if value < 0 or (not value and name not in _known_sizes(found)[1]):
            raise ParameterError(
                f"space '{found.name}': {name} = {value}; sizes are positive", parameter=name
            )
    unknown = [name for name in sizes if name not in found.sizes]
    there = {*found.sizes, *_known_sizes(found)[0]} if unknown else set[str]()
    for name in unknown:
        if there and name not in there:
            raise ParameterError(
                f"space '{found.name}' has no size {name}; there are {', '.join(sorted(there))}",
                parameter=name,
            )
    return found


@lru_cache(maxsize=32)
def _known_sizes(space: SearchSpace) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the parameters of the first variant that can be counted, and those with defaults.

    A process of its own builds and counts variants, since builders are anybody's code. Both are
    empty if none of the first variants can be counted.
    """
    with process_pool(1) as pool:
        for choice in islice(space.choices(), _PROBED):
            try:
                return pool.submit_within(_PROBE_S, _parameters_of, space, dict(choice)).result()
            except (CountperfError, WorkerLostError):
                continue
            except NOT_SENT:
                break
    return (), frozenset()


def _parameters_of(space: SearchSpace, choice: Choice) -> tuple[tuple[str, ...], frozenset[str]]:
    variant = scheduled_variant(built(space, choice), "source")
    vector = counted_variant(variant, "source", policy=False)
    return tuple(vector.parameters), frozenset(vector.defaults)
