"""The analysis of a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from countperf.counting.access_analysis import AccessAnalysis
from countperf.counting.analysis import Footprint
from countperf.counting.places import Refusable
from countperf.counting.structure import ChainAnalysis, InstructionAnalysis, ProgramAnalysis
from countperf.counting.transactions import bank_conflicts, transactions
from countperf.errors import CountingError
from countperf.report.rows import Printed, picked, plain
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
    values = None if parameters is None else of.sizes.checked(parameters)
    writer = _Writer(values, memory)
    content = {
        "kernel": of.kernel,
        "assumptions": of.sizes.assumptions,
        "parameters": values,
        "is_estimate": of.is_estimate,
        "programs": writer.value(of.programs),
        "accesses": writer.value(of.accesses),
        "footprints": writer.value(of.footprints),
        "storage": [
            {
                **picked(storage, "name", "space", "element_bytes"),
                "shape": [str(extent) for extent in storage.shape],
                "bytes": str(storage.size_bytes),
            }
            for storage in of.storage
        ],
    }
    return Printed(head=_outline(content, ""), facts=content)


class _Writer:
    """Writes the parts of an analysis, with values where parameters are given."""

    def __init__(self, values: Mapping[str, int] | None, memory: MemoryGeometry | None) -> None:
        self.values = values
        self.memory = memory

    def value(self, of: object) -> Any:
        """Return a part as JSON has it; a record by its fields."""
        match of:
            case PiecewiseQuasiPolynomial() | Refusable():
                return self.count(of)
            case tuple():
                return [self.value(part) for part in of]
            case ProgramAnalysis():
                return self.program(of)
            case ChainAnalysis():
                operations = None if of.operations is None else dict(of.operations)
                return {**self.fields(of), "operations": operations}
            case InstructionAnalysis():
                return self.instruction(of)
            case AccessAnalysis():
                return self.access(of)
            case Footprint():
                return self.footprint(of)
            case _:
                return self.fields(of) if is_dataclass(of) else plain(of)

    def fields(self, of: Any) -> dict[str, Any]:
        """Return the fields of a record; where statistics enter its executions, these say so."""
        found = {
            field.name: self.value(getattr(of, field.name)) for field in fields(of) if field.repr
        }
        if estimate := found.pop("is_estimate", ""):
            found["executions"]["reason"] = estimate
        return found

    def count(self, count: PiecewiseQuasiPolynomial | Refusable) -> dict[str, Any]:
        """Return ``{"symbolic", "value"?, "reason"?}``."""
        found = count if isinstance(count, Refusable) else Refusable(count=count)
        result: dict[str, Any] = {"symbolic": None if found.count is None else str(found.count)}
        values = self.values
        if values is not None and found.count is not None and found.count.names() <= set(values):
            result["value"] = _number(found.count.evaluate(values))
        return {**result, "reason": found.reason} if found.reason else result

    def program(self, program: ProgramAnalysis) -> dict[str, Any]:
        content = self.fields(program)
        content["group_shape"] = content.pop("shape")["extents"]
        if self.memory is not None:
            full, rest = program.shape.sub_groups(self.memory.sub_group_size)
            vectors, left, rows = program.shape.vectors(self.memory.sub_group_size)
            content["sub_groups"] = {"full": full, "items_of_partial": rest}
            content["rows"] = {"number": rows, "full_vectors": vectors, "items_left": left}
        return content

    def instruction(self, instruction: InstructionAnalysis) -> dict[str, Any]:
        """Return an instruction; slots without a formula are found by enumeration."""
        content = self.fields(instruction)
        slots = content["slots"]
        if self.values is not None and "value" not in slots:
            try:
                slots["value"] = instruction.slots_at(self.values)
            except CountingError as error:
                slots.setdefault("reason", str(error))
        return content

    def access(self, access: AccessAnalysis) -> dict[str, Any]:
        content = self.fields(access)
        del content["access"]
        return {
            **picked(access.access, "address_space", "direction", "array", "bits"),
            **content,
            "index": [str(part) for part in access.access.index],
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
        content = {**self.fields(footprint), "bytes": self.count(footprint.size_bytes)}
        if self.values is not None:
            cells = content["cells"]
            try:
                cells["value"] = footprint.cells_at(self.values)
                content["bytes"]["value"] = cells["value"] * footprint.element_bytes
                content["accesses_per_cell"] = _number(footprint.accesses_per_cell(self.values))
            except CountingError as error:
                cells.setdefault("reason", str(error))
        return content


def _number(value: Any) -> int | float:
    if isinstance(value, Fraction):
        return value.numerator if value.denominator == 1 else float(value)
    return value


_ONE = {"around": "loop around", "accesses": "access"}


def _outline(record: Mapping[str, Any], indent: str) -> list[str]:
    """Write a record on a line, and each record in it on one below, further in."""
    cells: list[str] = []
    below: list[str] = []
    for name, value in record.items():
        if name == "strides":
            below += [f"{indent}  {'; '.join(map(_stride, value))}"] if value else []
        elif (
            isinstance(value, list)
            and isinstance(next(iter(value), None), Mapping)
            and ("symbolic" not in value[0])
        ):
            for part in value:
                first, *more = _outline(part, f"{indent}  ")
                below += [f"{indent}  {_ONE.get(name, name.removesuffix('s'))}: {first}", *more]
        elif text := _shown(value):
            cells.append(f"{name.replace('_', ' ')} {text}")
    return ["; ".join(cells), *below]


def _stride(stride: Mapping[str, Any]) -> str:
    along = stride["iname"] if stride["axis"] is None else stride["axis"]
    return f"{stride['kind']} {along}: {stride['stride'] or stride['reason']}"


def _shown(value: Any) -> str:
    """Write a value; of a count its value, else the formula, else why there is none."""
    if isinstance(value, Mapping):
        if "symbolic" in value:
            return _shown(value.get("value", value["symbolic"])) or f"unknown ({value['reason']})"
        return ", ".join(f"{_shown(part)} {name}" for name, part in value.items())
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    if value is None or value is False:
        return ""
    return f"{value:.10g}" if isinstance(value, float) else str(value)
