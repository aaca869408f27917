"""Sizes at which two kernels cross: which of them is the faster one, from where on, by model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from countperf import text

SAME = 1e-3  # of a time: a smaller difference is none


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Crossover(text.Result):
    """Which of two kernels is the faster one, from which size on, by model."""

    kernels: tuple[str, str]
    device: str  # slug of the device
    size: str  # the one whose values are named; others that grow follow
    ends: tuple[int, int]  # its least and largest value
    # by model, the one to trust first first: values from which on a kernel is the faster one, ""
    # where both take the same time
    changes: Mapping[str, Sequence[tuple[int, str]]]
    ratios: Mapping[str, tuple[float, float]]  # time of the second over the first, at both ends
    lacking: Mapping[str, str]  # why a model does not tell

    __repr__ = text.Result.__str__

    def say_crossing(self, model: str) -> str:
        """Say which kernel is faster by a model, from which size on."""
        said = [f"{who or 'neither'} from {self.size} = {n}" for n, who in self.changes[model]]
        if not said[1:]:
            return f"{said[0]} to {self.ends[1]}: no crossing"
        return ", ".join(f"{each} on" for each in said)

    def lay_out(self) -> text.Printed:
        """Give what the model to trust first says, then a row per model."""
        best, (first, second) = next(iter(self.changes)), self.kernels
        rows: list[dict[str, Any]] = [
            {
                "model": name,
                **dict(zip(("first_ratio", "last_ratio"), self.ratios[name], strict=True)),
                "faster": self.say_crossing(name),
                "changes": [{"from": value, "faster": who} for value, who in found],
            }
            for name, found in self.changes.items()
        ]
        at = [text.Column(f"at {self.size} = {end}", "{:.3g}".format) for end in self.ends]
        return text.Printed(
            head=[
                text.wrap_note(f"faster: {self.say_crossing(best)}, by {best}", ""),
                f"{second} over {first}, times on {self.device}",
            ],
            rows=rows,
            columns={
                **text.columns_of("model"),
                **dict(zip(("first_ratio", "last_ratio"), at, strict=True)),
                **text.columns_of("faster"),
            },
            notes=[
                text.wrap_note(f"{by} does not tell: {why}") for by, why in self.lacking.items()
            ],
            facts=text.extract(self, "kernels", "device", "size", "ends", "lacking"),
            name="models",
        )
