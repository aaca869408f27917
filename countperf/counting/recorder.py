"""Records instructions in program order and what each waits for, barriers included."""

from __future__ import annotations

from collections.abc import Iterable


class Recorder:
    """Numbers instructions and keeps what they wait for.

    A barrier waits for everything before it, and what comes later waits for the barrier: of the
    edges to earlier instructions, those that a barrier stands between are left out.
    """

    def __init__(self) -> None:
        self.number = 0
        self.edges: list[tuple[int, int]] = []
        self._fence = -1
        self._unused: set[int] = set()  # since the last barrier

    def add(self, waits: Iterable[int]) -> int:
        """Add an instruction that waits for some earlier ones; return its number."""
        number = self.number
        after = {source for source in waits if source > self._fence}
        if not after and self._fence >= 0:
            after = {self._fence}
        self.edges += [(source, number) for source in sorted(after)]
        self._unused -= after
        self._unused.add(number)
        self.number += 1
        return number

    def barrier(self) -> int:
        """Add a barrier; return its number."""
        number = self.add(self._unused)
        self._fence, self._unused = number, {number}
        return number
