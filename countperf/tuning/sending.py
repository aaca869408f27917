"""Sending of the task to predicting processes: packed once, and unpacked once in each.

A question holds a model with all that was measured for it, some megabytes: packing and unpacking it
for each task, and finding anew what a model remembers of kernels, takes as long as predicting.
"""

from __future__ import annotations

import hashlib
import pickle
import threading
import zlib
from collections import OrderedDict
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import cloudpickle

from countperf.tuning.points import Point, PredictionTask, predict_points
from countperf.tuning.space import Choice

REMEMBERED = 4
"""Questions that a process keeps: the latest ones."""

NOT_SENT = (pickle.PicklingError, AttributeError, TypeError, ValueError)
"""Errors that a task raises if it cannot be pickled."""

_LEVEL = 1  # of compression: a tenth of the size, in a tenth of the time of higher levels

_known: OrderedDict[str, PredictionTask] = OrderedDict()
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Packed:
    """A question on its way.

    Functions of the caller's main module, of notebooks and of functions go along by value, those of
    other modules by name.
    """

    digest: str  # of the content, by which processes know it again
    content: bytes  # the question, pickled and compressed

    @classmethod
    def of(cls, question: PredictionTask) -> Packed:
        """Pack a question."""
        pickled: bytes = cloudpickle.dumps(question, pickle.HIGHEST_PROTOCOL)
        content = zlib.compress(pickled, _LEVEL)
        return cls(hashlib.sha256(content).hexdigest(), content)

    def question(self) -> PredictionTask:
        """Unpack it, or return what this process unpacked before."""
        with _lock:
            found = _known.get(self.digest)
            if found is None:
                found = pickle.loads(zlib.decompress(self.content))
                _known[self.digest] = found
                while len(_known) > REMEMBERED:
                    _known.popitem(last=False)
            else:
                _known.move_to_end(self.digest)
            return found


def predict_sent(asked: Packed | PredictionTask, choices: Sequence[Choice]) -> list[Point]:
    """Predict some points; what a process of the pool is asked to do."""
    return predict_points(asked.question() if isinstance(asked, Packed) else asked, choices)


def predict_each(asked: Packed | PredictionTask, choices: Sequence[Choice]) -> Generator[Point]:
    """Predict some points one by one, so that those before one that ends the process are known."""
    for choice in choices:
        yield from predict_sent(asked, [choice])
