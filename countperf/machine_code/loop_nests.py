"""Executed code as loops within each other, read from its branches backward."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from countperf.machine_code.blocks import Code


@dataclass(frozen=True, slots=True)
class Stretch:
    """Instructions that are executed one after the other, or a loop of stretches."""

    count: int  # how often it is executed; a loop: how many iterations
    lines: tuple[int, ...] = ()  # numbers of its lines, none of a loop
    parts: tuple[Stretch, ...] = ()  # what an iteration of a loop executes

    @property
    def executed(self) -> int:
        """Number of executed instructions."""
        return self.count * len(self.lines) + sum(part.executed for part in self.parts)

    def times(self, part: Stretch) -> int:
        """Return how often an iteration executes a part, rounded."""
        return (2 * part.count + self.count) // (2 * self.count)

    @property
    def length(self) -> int:
        """Number of instructions of an iteration, with all iterations of loops inside."""
        return len(self.lines) + sum(self.times(part) * part.length for part in self.parts)

    def iteration(self) -> list[int]:
        """Return the lines of an iteration, those of loops inside as often as they are executed."""
        lines = list(self.lines)
        for part in self.parts:
            lines += part.iteration() * self.times(part)
        return lines


def iterations(code: Code, executed: Mapping[int, int], longest: int) -> Iterator[Stretch]:
    """Yield loops whose iterations have at most so many instructions, and what is outside of them.

    Loops inside belong to an iteration of the loop around them where they are short enough.
    """
    straight = [Stretch(executed[lines[0]], lines) for lines, _ in code.straight(executed)]
    ends: dict[int, list[int]] = {}
    for position, stretch in enumerate(straight):
        last = code.lines[stretch.lines[-1]]
        target = code.target(last) if last.mnemonic[0] == "j" else None
        if target is not None and target <= stretch.lines[-1]:
            ends.setdefault(target, []).append(position)
    waiting = _nest_parts(straight, range(len(straight)), ends)[::-1]
    while waiting:
        part = waiting.pop()
        if part.parts and part.length > longest:
            waiting += part.parts[::-1]
        else:
            yield part


def _nest_parts(
    straight: Sequence[Stretch], where: range, ends: Mapping[int, Sequence[int]], within: int = -1
) -> list[Stretch]:
    """Return the parts of code; those of a loop that ends at ``within`` end before.

    Of loops that begin alike, the last one is around the others if it ends its iterations more
    seldom than they begin; else all end iterations of one loop.
    """
    parts: list[Stretch] = []
    position = where.start
    while position < where.stop:
        part = straight[position]
        limit = within if position == where.start and within >= 0 else where.stop
        back = [end for end in ends.get(part.lines[0], ()) if position <= end < limit]
        if back:
            end = back[-1]
            is_outer = len(back) > 1 and 2 * straight[end].count < part.count
            count = straight[end].count if is_outer else part.count
            inside = range(position, end + 1)
            parts.append(
                Stretch(
                    count,
                    (),
                    tuple(_nest_parts(straight, inside, ends, end if is_outer else position)),
                )
            )
            position = end
        else:
            parts.append(part)
        position += 1
    return parts
