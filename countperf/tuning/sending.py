"""Sending of the task to predicting processes, and a check of it before any work.

A question holds a model with all that was measured for it, some megabytes: packing and unpacking it
for each task, and finding anew what a model remembers of kernels, takes as long as predicting. So
it is packed once, and unpacked once in each process.
"""

from __future__ import annotations

import hashlib
import pickle
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice

import cloudpickle

from countperf.errors import CountperfError, ParameterError
from countperf.properties.count_properties import count_kernel
from countperf.tuning.points import Point, PredictionTask, built, predict_points, user_space
from countperf.tuning.pools import WorkerLostError, process_pool
from countperf.tuning.space import Choice, SearchSpace

NOT_SENT = (pickle.PicklingError, AttributeError, TypeError, ValueError)
"""Errors that a task raises if it cannot be pickled."""

_LEVEL = 1  # of compression: a tenth of the size, in a tenth of the time of higher levels


@dataclass(frozen=True, slots=True)
class Packed:
    """A question on its way.

    Functions of the caller's main module, of notebooks and of functions go along by value, those of
    other modules by name.
    """

    digest: str  # of the content, by which processes know it again
    content: bytes = field(compare=False)  # the question, pickled and compressed

    @classmethod
    def of(cls, question: PredictionTask) -> Packed:
        """Pack a question."""
        pickled: bytes = cloudpickle.dumps(question, pickle.HIGHEST_PROTOCOL)
        content = zlib.compress(pickled, _LEVEL)
        return cls(hashlib.sha256(content).hexdigest(), content)

    def question(self) -> PredictionTask:
        """Unpack it, or return what this process unpacked before."""
        return _unpacked(self)


@lru_cache(maxsize=4)
def _unpacked(packed: Packed) -> PredictionTask:
    return pickle.loads(zlib.decompress(packed.content))


def predict_sent(asked: Packed, choices: Sequence[Choice]) -> list[Point]:
    """Predict some points; what a process of the pool is asked to do."""
    return predict_points(asked.question(), choices)


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
    vector = count_kernel(built(space, choice), cache=False)
    return tuple(vector.parameters), frozenset(vector.defaults)
