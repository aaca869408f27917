"""The analysis of a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from countperf.counting.access_analysis import AccessAnalysis
from countperf.counting.analysis import Footprint
from countperf.counting.places import Refusable
from countperf.counting.structure import (
    ChainAnalysis,
    InstructionAnalysis,
    LoopAnalysis,
    ProgramAnalysis,
    RegionAnalysis,
)
from countperf.counting.transactions import bank_conflicts, transactions
from countperf.errors import CountingError
from countperf.report.rows import Printed, picked
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial

if TYPE_CHECKING:
    from countperf.counting.analysis import KernelAnalysis


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryGeometry:
    """Properties of a device that decide transactions and bank conflicts."""

    sub_group_size: int = 32  # work items that access together
    line_bytes: int = 32  # bytes of a line or sector of global memory
    banks: int = 32  # banks of local memory, and bytes of their words
    bank_width_bytes: int = 4


def analysis(
    of: KernelAnalysis,
    parameters: Mapping[str, Any] | None = None,
    *,
    memory: MemoryGeometry | None = None,
) -> Printed:
    """Give the structure of a kernel, with values where parameters are given."""
    content = _content(of, parameters, memory)
    head, *body = _lines(content)
    return Printed(head=[head], body=body, facts=content)


def _content(
    analysis: KernelAnalysis, parameters: Mapping[str, Any] | None, memory: MemoryGeometry | None
) -> dict[str, Any]:
    values = None if parameters is None else analysis.sizes.checked(parameters)
    writer = _Writer(values, memory)
    return {
        "kernel": analysis.kernel,
        "assumptions": analysis.sizes.assumptions,
        "parameters": values,
        "is_estimate": analysis.is_estimate,
        "programs": [writer.program(program) for program in analysis.programs],
        "accesses": [writer.access(access) for access in analysis.accesses],
        "footprints": [writer.footprint(footprint) for footprint in analysis.footprints],
        "storage": [
            {
                **picked(storage, "name", "space", "element_bytes"),
                "shape": [str(extent) for extent in storage.shape],
                "bytes": str(storage.size_bytes),
            }
            for storage in analysis.storage
        ],
    }


class _Writer:
    """Writes the parts of an analysis, with values where parameters are given."""

    def __init__(self, values: Mapping[str, int] | None, memory: MemoryGeometry | None) -> None:
        self.values = values
        self.memory = memory

    def count(
        self, count: PiecewiseQuasiPolynomial | Refusable, estimate: str = ""
    ) -> dict[str, Any]:
        """Return ``{"symbolic", "value"?, "reason"?}``."""
        found = count if isinstance(count, Refusable) else Refusable(count=count)
        result: dict[str, Any] = {"symbolic": None if found.count is None else str(found.count)}
        values = self.values
        if values is not None and found.count is not None and found.count.names() <= set(values):
            result["value"] = _number(found.count.evaluate(values))
        reason = estimate or found.reason
        return {**result, "reason": reason} if reason else result

    def program(self, program: ProgramAnalysis) -> dict[str, Any]:
        split: dict[str, Any] = {}
        if self.memory is not None:
            full, rest = program.shape.sub_groups(self.memory.sub_group_size)
            vectors, left, rows = program.shape.vectors(self.memory.sub_group_size)
            split = {
                "sub_groups": {"full": full, "items_of_partial": rest},
                "rows": {"number": rows, "full_vectors": vectors, "items_left": left},
            }
        return {
            "name": program.name,
            "launches": self.count(program.launches),
            "groups": [self.count(extent) for extent in program.groups],
            "group_shape": list(program.shape.extents),
            **split,
            "regions": [self.region(region) for region in program.regions],
        }

    def region(self, region: RegionAnalysis) -> dict[str, Any]:
        return {
            **picked(region, "index", "ends_at_barrier"),
            "passes": self.count(region.passes),
            "around": [self.loop(loop) for loop in region.around],
            "loops": [self.loop(loop) for loop in region.loops],
            "instructions": [self.instruction(i) for i in region.instructions],
            "chains": [self.chain(chain) for chain in region.chains],
        }

    def loop(self, loop: LoopAnalysis) -> dict[str, Any]:
        return {
            **picked(loop, "iname", "kind", "around"),
            "trips": self.count(loop.trips),
            "iterations": self.count(loop.iterations),
            "entries": self.count(loop.entries),
        }

    def instruction(self, instruction: InstructionAnalysis) -> dict[str, Any]:
        """Return an instruction; slots without a formula are found by enumeration."""
        slots = self.count(instruction.slots)
        if self.values is not None and "value" not in slots:
            try:
                slots["value"] = instruction.slots_at(self.values)
            except CountingError as error:
                slots.setdefault("reason", str(error))
        return {
            **picked(instruction, "id", "loops"),
            "executions": self.count(instruction.executions, instruction.is_estimate),
            "slots": slots,
        }

    def chain(self, chain: ChainAnalysis) -> dict[str, Any]:
        return {
            **picked(chain, "instructions", "variables", "loops", "span"),
            "operations": None if chain.operations is None else dict(chain.operations),
            "steps": self.count(chain.steps),
            "accumulators": self.count(chain.accumulators),
        }

    def access(self, access: AccessAnalysis) -> dict[str, Any]:
        return {
            **picked(access, "program", "region", "instruction", "repeats"),
            **picked(access.access, "array", "address_space", "direction", "bits"),
            "index": [str(part) for part in access.access.index],
            "executions": self.count(access.executions, access.is_estimate),
            "address": None if access.address is None else str(access.address),
            "strides": [
                {
                    **picked(stride, "kind", "axis", "iname"),
                    "stride": None if stride.stride is None else str(stride.stride),
                    **({"reason": stride.reason} if stride.reason else {}),
                }
                for stride in access.strides
            ],
            **self._transactions(access),
        }

    def _transactions(self, access: AccessAnalysis) -> dict[str, Any]:
        memory = self.memory
        if memory is None or self.values is None:
            return {}
        is_local = access.access.address_space == "local"
        name = "bank_conflicts" if is_local else "transactions"
        size = memory.sub_group_size
        try:
            if is_local:
                width, banks = memory.bank_width_bytes, memory.banks
                conflicts = bank_conflicts(
                    access, self.values, banks=banks, bank_width_bytes=width, sub_group_size=size
                )
                counts = picked(conflicts, "instructions", "maximum")
                return {name: {**counts, "mean": _number(conflicts.mean)}}
            found = transactions(
                access, self.values, line_bytes=memory.line_bytes, sub_group_size=size
            )
        except CountingError as error:
            return {name: {"reason": str(error)}}
        return {
            name: {
                **picked(found, "instructions", "transactions"),
                "bytes": found.transferred_bytes,
                "bytes_per_instruction": _number(found.bytes_per_instruction),
            }
        }

    def footprint(self, footprint: Footprint) -> dict[str, Any]:
        """Return a footprint; cells without a formula are found by enumeration."""
        cells = self.count(footprint.cells)
        size = self.count(footprint.size_bytes)
        result: dict[str, Any] = {
            **picked(footprint, "array", "address_space", "direction", "element_bytes"),
            "accesses": self.count(footprint.accesses),
            "cells": cells,
            "bytes": size,
        }
        if self.values is not None:
            try:
                cells["value"] = footprint.cells_at(self.values)
                size["value"] = cells["value"] * footprint.element_bytes
                result["accesses_per_cell"] = _number(footprint.accesses_per_cell(self.values))
            except CountingError as error:
                cells.setdefault("reason", str(error))
        return result


def _number(value: Any) -> int | float:
    if isinstance(value, Fraction):
        return value.numerator if value.denominator == 1 else float(value)
    return value


# --- text


def _lines(content: Mapping[str, Any]) -> list[str]:
    lines = [f"kernel {content['kernel']}"]
    if content["is_estimate"]:
        lines.append(f"with the caller's statistics for {content['is_estimate']}")
    for program in content["programs"]:
        shape = " x ".join(map(str, program["group_shape"])) or "1"
        groups = " x ".join(_shown(extent) for extent in program["groups"]) or "1"
        lines.append(f"program {program['name']}: {groups} groups of {shape} items")
        for region in program["regions"]:
            lines += _region_lines(region)
    lines += _access_lines(content["accesses"])
    lines += ["footprints"] if content["footprints"] else []
    for footprint in content["footprints"]:
        ratio = footprint.get("accesses_per_cell")
        lines.append(
            f"  {footprint['array']} {footprint['direction']}: {_shown(footprint['bytes'])} bytes"
            + ("" if ratio is None else f", {ratio:.6g} accesses per cell")
        )
    for storage in content["storage"]:
        owner = "item" if storage["space"] == "private" else "group"
        lines.append(f"{storage['space']} {storage['name']}: {storage['bytes']} bytes per {owner}")
    return lines


def _region_lines(region: Mapping[str, Any]) -> list[str]:
    end = ", ends at a barrier" if region["ends_at_barrier"] else ""
    lines = [f"  region {region['index']}: {_shown(region['passes'])} passes of groups{end}"]
    for loop in (*region["around"], *region["loops"]):
        lines.append(f"    {loop['kind']} {loop['iname']}: {_shown(loop['trips'])} trips")
    for instruction in region["instructions"]:
        lines.append(
            f"    {instruction['id']}: {_shown(instruction['executions'])} executions, "
            f"{_shown(instruction['slots'])} slots"
        )
    for chain in region["chains"]:
        operations = chain["operations"]
        kinds = (
            "too many carried reads"
            if operations is None
            else " + ".join(f"{n} {kind}" for kind, n in operations.items()) or "no operation"
        )
        per = "iteration" if chain["span"] == 1 else f"{chain['span']} iterations"
        lines.append(
            f"    chain through {', '.join(chain['variables'])} along {', '.join(chain['loops'])}: "
            f"{kinds} per {per}, {_shown(chain['steps'])} steps, "
            f"{_shown(chain['accumulators'])} side by side"
        )
    return lines


def _access_lines(accesses: list[Mapping[str, Any]]) -> list[str]:
    lines = ["accesses: strides in elements"] if accesses else []
    for access in accesses:
        index = f"[{', '.join(access['index'])}]" if access["index"] else ""
        lines.append(
            f"  {access['instruction']}: {access['address_space']} {access['direction']} "
            f"{access['array']}{index}, {access['bits']} bits, "
            f"{_shown(access['executions'])} executions"
        )
        strides = [
            f"{stride['kind']} {stride['iname'] if stride['axis'] is None else stride['axis']}: "
            f"{stride['stride'] if stride['stride'] is not None else stride['reason']}"
            for stride in access["strides"]
        ]
        lines.append(f"    {'; '.join(strides) or 'no axes'}")
        for name in ("transactions", "bank_conflicts"):
            found = access.get(name)
            if found is None:
                continue
            if "reason" in found:
                lines.append(f"    {name.replace('_', ' ')}: {found['reason']}")
            elif name == "transactions":
                lines.append(
                    f"    {found['transactions']} transactions of {found['instructions']} "
                    f"sub-group instructions, {found['bytes_per_instruction']:.6g} bytes each"
                )
            else:
                lines.append(
                    f"    bank conflicts: degree {found['mean']:.6g} on average, at most "
                    f"{found['maximum']}"
                )
    return lines


def _shown(count: Mapping[str, Any]) -> str:
    if "value" in count:
        return (
            f"{count['value']:.10g}" if isinstance(count["value"], float) else str(count["value"])
        )
    return str(count["symbolic"]) if count["symbolic"] else f"unknown ({count['reason']})"
