"""The pipeline simulator, written down rule by rule: the oracle of the event-driven one.

No data structure is kept for speed: in every step the earliest start of every sub-group is worked
out anew. Times are fractions.
"""

from __future__ import annotations

from fractions import Fraction

from countperf.mechanistic.pipeline import Workload
from countperf.mechanistic.profile import InstructionGraph

Start = tuple[Fraction, str, int, int, int]
"""Time, subsystem, group, index in the group, position in the program."""


def reference(workload: Workload) -> tuple[Fraction, list[Start]]:
    """Return the end of the last group and every start in order."""
    return _Reference(workload).run()


def _exact(value: float) -> Fraction:
    return Fraction(value).limit_denominator(10**6)


class _Reference:
    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.size = workload.sub_groups_per_group
        self.limit = workload.issue_limit
        self.now = Fraction(0)
        self.valve = Fraction(0)
        self.free: dict[str, Fraction] = {}
        self.start: dict[tuple[int, int], Fraction] = {}
        self.issued: dict[tuple[int, int], dict[int, Fraction]] = {}
        self.finish: dict[tuple[int, int], dict[int, Fraction]] = {}
        self.starts: list[Start] = []
        self.programs = [self.nodes_and_waits(graph) for graph in workload.programs]

    def program(self, warp: tuple[int, int]) -> tuple[list[str], list[set[int]]]:
        return self.programs[warp[1] % len(self.programs)]

    def nodes_and_waits(self, graph: InstructionGraph) -> tuple[list[str], list[set[int]]]:
        waits: list[set[int]] = [set() for _ in graph.nodes]
        for i, j in graph.edges:
            waits[j].add(i)
        for node, name in enumerate(graph.nodes):
            if self.workload.classes[name].kind == "barrier":
                waits[node] |= set(range(node))
                for later in range(node + 1, len(graph.nodes)):
                    waits[later].add(node)
        return list(graph.nodes), waits

    def earliest(self, warp: tuple[int, int]) -> tuple[Fraction, int] | None:
        nodes, waits = self.program(warp)
        issued, finish = self.issued[warp], self.finish[warp]
        found: list[tuple[Fraction, int]] = []
        is_in_order = self.workload.issue_order == "in_order"
        for node, name in enumerate(nodes):
            if node in issued or (is_in_order and node > len(issued)):
                continue
            if all(index in finish for index in waits[node]):
                ready = max([self.start[warp], *(finish[index] for index in waits[node])])
                if is_in_order and node:
                    ready = max(ready, issued[node - 1])
                subsystem = self.workload.classes[name].subsystem
                at = max(ready, self.free.get(subsystem, Fraction(0)), self.valve, self.now)
                found.append((at, node))
        return min(found, default=None)

    def run(self) -> tuple[Fraction, list[Start]]:
        workload = self.workload
        slots = [Fraction(0)] * workload.concurrent_groups
        launched, running = 0, set[int]()
        last: tuple[int, int] | None = None
        end = Fraction(0)
        while launched < workload.groups or running:
            candidates = {
                warp: found
                for group in sorted(running)
                for warp in ((group, index) for index in range(self.size))
                if (found := self.earliest(warp)) is not None
            }
            soonest = min((at for at, _ in candidates.values()), default=None)
            slot = min(slots, default=None)
            if (
                launched < workload.groups
                and slot is not None
                and (soonest is None or slot <= soonest)
            ):
                slots.remove(slot)
                for index in range(self.size):
                    warp = (launched, index)
                    self.start[warp] = slot
                    self.issued[warp], self.finish[warp] = {}, {}
                running.add(launched)
                launched += 1
                continue
            assert soonest is not None
            able = sorted(warp for warp, (at, _) in candidates.items() if at == soonest)
            chosen = able[0]
            if workload.scheduler == "gto" and last in able:
                chosen = last
            if workload.scheduler == "rr" and last is not None:
                chosen = next((warp for warp in able if warp > last), able[0])
            assert chosen is not None
            self.now, last = soonest, chosen
            self.issue(chosen, candidates[chosen][1])
            group = chosen[0]
            if self.is_over(group):
                running.remove(group)
                over = max(
                    finish
                    for index in range(self.size)
                    for finish in self.finish[group, index].values()
                )
                end = max(end, over)
                slots.append(over + _exact(workload.group_launch_latency))
        return end, self.starts

    def issue(self, warp: tuple[int, int], node: int) -> None:
        nodes, _ = self.program(warp)
        entry = self.workload.classes[nodes[node]]
        self.starts.append((self.now, entry.subsystem, *warp, node))
        self.issued[warp][node] = self.now
        self.free[entry.subsystem] = self.now + _exact(entry.cpi)
        if self.limit is not None:
            self.valve = self.now + 1 / _exact(self.limit)
        if entry.kind != "barrier":
            self.finish[warp][node] = self.now + _exact(entry.known_latency)
            return
        group = warp[0]
        rank = sum(self.workload.classes[name].kind == "barrier" for name in nodes[:node])
        places = [self.barrier((group, index), rank) for index in range(self.size)]
        if all(place in self.issued[group, index] for index, place in enumerate(places)):
            for index, place in enumerate(places):
                own = self.workload.classes[self.program((group, index))[0][place]]
                self.finish[group, index][place] = self.now + _exact(own.known_latency)

    def barrier(self, warp: tuple[int, int], rank: int) -> int:
        nodes, _ = self.program(warp)
        kinds = [self.workload.classes[name].kind for name in nodes]
        return [node for node, kind in enumerate(kinds) if kind == "barrier"][rank]

    def is_over(self, group: int) -> bool:
        warps = [(group, index) for index in range(self.size)]
        return all(len(self.issued[warp]) == len(self.program(warp)[0]) for warp in warps)
