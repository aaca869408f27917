"""First picks of models without measuring, judged by spaces that were measured whole.

``python scripts/replay_first_picks.py SLUG [--random N] [--first N] [--weights WEIGHTS]``

Of each space that is recorded in ``fits/SLUG/tuning``, the structural model orders all variants.
Those that it puts first, and others at random, are compiled on the device, which has to be here,
and their code is followed: none is timed. A pick's result is the time of the fastest of all
recorded variants as a fraction of the recorded time of the one that a model predicts to be fastest:
of all by the structural model, of its first by compiled code (as ``rank`` does), and of the whole
sample by compiled code. Counts of code are kept in a file (``--counts``), so that other weights can
be judged later. Written to ``fits/SLUG/first-picks.json``, and printed.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from countperf.counting.producers import translation_unit
from countperf.errors import CountperfError
from countperf.execution.memory_hierarchy import CacheSize
from countperf.harness.compile.compiled_kernel import CompiledKernel, counts_of_many, read_compiled
from countperf.harness.devices import find_device
from countperf.models.library import load_weights
from countperf.models.weights import WeightSet
from countperf.properties.count_properties import count_kernel
from countperf.tuning.points import Predicted, PredictionTask, predict_point
from countperf.tuning.result import as_key
from measurement_kernels.variants import spaces
from tuning_replay.records import Record, read_record

_BATCH = 20


def structural_order(record: Record, weights: WeightSet) -> list[Predicted]:
    """Return the variants that ran, by predicted time."""
    question = PredictionTask(
        space=record.space, weights=weights, sizes=dict(record.sizes), incomplete_ok=True
    )
    points = (
        predict_point(question, record.space, each.choice)
        for each in record.variants
        if each.samples_s
    )
    return sorted((p for p in points if isinstance(p, Predicted)), key=lambda p: p.time_s)


class CodeCounts:
    """Counts of variants' code, kept in a file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, dict[str, Any]] = {}
        if path.exists():
            lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
            self._known = {line["variant"]: line for line in lines}

    def of(
        self,
        record: Record,
        choices: Sequence[Mapping[str, Any]],
        device: Any,
        cache: CacheSize,
    ) -> list[Any]:
        """Return counts by property of variants, or a text where code cannot be followed."""
        names = [f"{record.space.name} {dict(record.sizes)} {as_key(each)}" for each in choices]
        missing = [k for k, name in enumerate(names) if name not in self._known]
        for first in range(0, len(missing), _BATCH):
            places = missing[first : first + _BATCH]
            began_s = time.process_time()
            counted = _code_of(record, [choices[k] for k in places], device, cache)
            spent_s = (time.process_time() - began_s) / len(places)
            with self._path.open("a", encoding="utf-8") as file:
                for place, counts in zip(places, counted, strict=True):
                    line = {"variant": names[place], "counts": counts, "read_s": spent_s}
                    self._known[names[place]] = line
                    file.write(json.dumps(line) + "\n")
        return [self._known[name]["counts"] for name in names]


def _code_of(
    record: Record, choices: Sequence[Mapping[str, Any]], device: Any, cache: CacheSize
) -> list[Any]:
    sizes = dict(record.sizes)
    units = [(translation_unit(record.space.build(**each)), sizes) for each in choices]
    read = read_compiled(units, device)
    followed = iter(
        counts_of_many(
            [(each, sizes, {}, cache) for each in read if isinstance(each, CompiledKernel)]
        )
    )
    found = [next(followed) if isinstance(each, CompiledKernel) else each for each in read]
    return [str(each) if isinstance(each, Exception) else each for each in found]


def compiled_times(
    record: Record, choices: Sequence[Mapping[str, Any]], counts: Sequence[Any], weights: WeightSet
) -> list[float | None]:
    """Return predicted times by compiled code, s; None where there is none."""
    found: list[float | None] = []
    for choice, code in zip(choices, counts, strict=True):
        time_s = None
        if not isinstance(code, str):
            unit = translation_unit(record.space.build(**choice))
            try:
                vector = count_kernel(unit, view="structure", caches=weights.counted_caches)
                vector = vector.with_code(lambda _, code=code: code)
                made = weights.predict_counts(vector, dict(record.sizes), incomplete_ok=True)
                time_s = float(made.time_s)
            except CountperfError:
                time_s = None
        found.append(time_s)
    return found


def judged(record: Record, options: argparse.Namespace, counts: CodeCounts) -> dict[str, Any]:
    """Return the picks of a family and what they are worth."""
    device = find_device(record.device.slug)
    order = structural_order(record, load_weights(options.structural or record.device.slug))
    others = random.Random(0).sample(order[options.first :], min(options.random, len(order) - 20))
    sample = [*order[: options.first], *others]
    choices = [point.choice for point in sample]
    weights = load_weights(options.weights or record.device.slug, model="compiled")
    code = counts.of(record, choices, device, weights.counted_caches.code)
    times = compiled_times(record, choices, code, weights)

    def worth(places: Sequence[int]) -> tuple[float, float]:
        """Return the result of the pick, and of the best of the first five."""
        known = sorted((t, k) for k in places if (t := times[k]) is not None)
        return (
            record.quality(choices[known[0][1]]),
            max(record.quality(choices[k]) for _, k in known[:5]),
        )

    whole, few = worth(range(len(choices))), worth(range(min(16, options.first)))
    return {
        "variants": len(order),
        "read": len(choices),
        "refused": sum(isinstance(each, str) for each in code),
        "structural": record.quality(order[0].choice),
        "structural_five": max(record.quality(each.choice) for each in order[:5]),
        "first_by_code": few[0],
        "compiled": whole[0],
        "compiled_five": whole[1],
        "best_read": max(map(record.quality, choices)),
    }


def main() -> None:
    """Judge, print and write."""
    command = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    command.add_argument("slug", help="of the device, which has to be here")
    command.add_argument("--random", type=int, default=80, help="variants to read at random")
    command.add_argument("--first", type=int, default=20, help="of the structural order to read")
    command.add_argument("--weights", help="compiled ones: slug or path; by default the device's")
    command.add_argument("--structural", help="the same of the structural model")
    command.add_argument("--families", nargs="+", default=list(spaces()), choices=list(spaces()))
    command.add_argument("--counts", default="code-counts.jsonl", help="file of what was read")
    command.add_argument("--output", help="by default fits/SLUG/first-picks.json")
    options = command.parse_args()
    folder = Path("fits") / options.slug
    counts = CodeCounts(Path(options.counts))
    families: dict[str, Any] = {}
    for family in options.families:
        record = read_record(folder / "tuning" / f"{family}.jsonl")
        families[family] = judged(record, options, counts)
        print(family, json.dumps(families[family]), flush=True)
    counted = ("variants", "read", "refused")
    names = [name for name in families[options.families[0]] if name not in counted]
    means = {
        name: math.exp(sum(math.log(each[name]) for each in families.values()) / len(families))
        for name in names
    }
    content = {
        "format": "countperf-first-picks",
        "version": 1,
        "device": options.slug,
        "families": families,
        "geometric_mean": means,
    }
    path = Path(options.output or folder / "first-picks.json")
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(means, indent=1))


if __name__ == "__main__":
    main()
