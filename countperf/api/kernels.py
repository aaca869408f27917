"""Kernels as users name them: finding them, and counting them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

import loopy as lp
import numpy as np

from countperf import errors
from countperf.counting.analysis import with_transactions
from countperf.counting.count_properties import count_kernel
from countperf.counting.frontend.producers import take_unit, translation_unit
from countperf.counting.structure.memory_hierarchy import DEFAULT_CACHES, CountedCaches
from countperf.counting.vector import PropertyVector
from countperf.documents import parse_json
from countperf.sizes import first_point
from countperf.store import read_file_text
from countperf.text import ShortRepr
from countperf.user_code import find_in_user_code

if TYPE_CHECKING:
    from countperf.counting.taxonomy import View
    from countperf.measuring import InstructionCounts, Statistic
    from countperf.models.weights import WeightSet
    from measurement_kernels.entry import CatalogEntry


_UNNAMED = "loopy_kernel"  # what Loopy calls a kernel without a name
_WANTED: Any = {"kind_name": "loopy.TranslationUnit", "error": errors.KernelSpecificationError}


def load_kernel(specification: str) -> Any:
    """Find the kernel that a text names.

    Parameters
    ----------
    specification : str
        ``path/file.py:name`` or ``package.module:name``, where the name is a Loopy translation
        unit, an object around one (`countperf.counting.frontend.producers`), or a function
        without arguments that returns one; the name of a kernel of the catalogue; or the path of a
        property-vector document (``.json``). A kernel without a name gets that of the object.

    Raises
    ------
    KernelSpecificationError, DocumentError
        The text names nothing of the kind, or the property-vector document is bad.
    """
    return _load_with_object(specification)[0]


def _load_with_object(specification: str) -> tuple[Any, Any]:
    """Find the kernel that a text names, and the object that it came in."""
    if specification.endswith(".json"):
        return _read_vector(Path(specification)), None
    if is_in_catalogue(specification):
        return entry(specification).build(), None
    if ":" not in specification:
        raise errors.KernelSpecificationError(
            f"{specification} is a file: name the kernel in it too, as in {specification}:axpy"
        )
    around: list[object] = [None]  # what packages that generate kernels handed out

    def find_unit(loaded: object) -> object:
        if (unit := take_unit(loaded)) is None:
            return loaded
        around.append(loaded)
        return unit

    loaded: Any = find_in_user_code(specification, lp.TranslationUnit, **_WANTED, convert=find_unit)
    name = specification.rpartition(":")[2]
    if loaded.entrypoints == {_UNNAMED} and name.isidentifier():
        loaded = lp.rename_callable(loaded, _UNNAMED, name)
    return loaded, around[-1]


def table_kernels(names: Iterable[str], file: str | None) -> dict[str, Any]:
    """Find the kernels that a table of times names."""
    kinds: Any = lp.TranslationUnit | FunctionType
    return {
        name: find_in_user_code(f"{file}:{name}", kinds, **_WANTED) if file else load_kernel(name)
        for name in names
    }


def is_in_catalogue(specification: str) -> bool:
    """Return whether a text can only be the name of a kernel of the catalogue."""
    return ":" not in specification and not specification.endswith((".json", ".py"))


def entry(name: str) -> CatalogEntry:
    """Return a kernel of the catalogue."""
    from measurement_kernels import catalog

    return catalog.entry(name)


def _read_vector(path: Path) -> PropertyVector:
    if not path.exists():
        raise errors.KernelSpecificationError(f"there is no file {path}")
    content = parse_json(read_file_text(path), path=path)
    try:
        return PropertyVector.from_document(content)
    except errors.DocumentError as error:
        raise errors.DocumentError(f"{path}: {error}", path=str(path), field=error.field) from error


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kernel(ShortRepr):
    """A kernel as the user gave it, its sizes, and what counting has to know of its data."""

    unit: Any  # the translation unit; a property vector or counts by hand where these were given
    name: str = ""  # as the user gave it; empty where it was an object
    entry: CatalogEntry | None = None  # of a kernel of the catalogue
    sizes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    given_statistics: Mapping[str, Statistic] | None = None
    instruction_counts: InstructionCounts | None = None
    around: Any = field(default=None, repr=False)  # the object in which the unit came

    @classmethod
    def of(
        cls,
        kernel: Any,
        sizes: Mapping[str, Any] | None = None,
        statistics: Mapping[str, Statistic] | None = None,
        instruction_counts: InstructionCounts | None = None,
    ) -> Kernel:
        """Find the kernel that a text names, or take the one that is given."""
        if isinstance(kernel, Kernel):
            return kernel
        is_text = isinstance(kernel, str)
        unit, around = _load_with_object(kernel) if is_text else (kernel, kernel)
        is_listed = is_text and is_in_catalogue(kernel)
        return cls(
            unit=unit if isinstance(unit, Mapping) else translation_unit(unit),
            name=kernel.rpartition(":")[2] if is_text and not kernel.endswith(".json") else "",
            entry=entry(kernel) if is_listed else None,
            sizes=sizes or {},
            given_statistics=statistics,
            instruction_counts=instruction_counts,
            around=around,
        )

    def at(self, sizes: Mapping[str, Any]) -> Kernel:
        """Return the kernel at other sizes."""
        return replace(self, sizes=sizes)

    @property
    def is_counted(self) -> bool:
        """True if counts were given, and no kernel."""
        return isinstance(self.unit, Mapping)

    def unit_with(self, what: str) -> Any:
        """Return the translation unit; refuse counts, which have nothing of the kind."""
        if self.is_counted:
            raise errors.CountingError(f"a property vector has no {what}; pass the kernel itself")
        return self.unit

    @property
    def statistics(self) -> Mapping[str, Statistic] | None:
        """The statistics given, and the catalogue's, at the first of the sizes if all are known."""
        given, known = self.given_statistics, self.entry
        if known is None or not known.statistics:
            return given
        if self.depends_on_sizes and all(size.name in self.sizes for size in known.sizes):
            return {**known.statistics_at(first_point(self.sizes)), **(given or {})}
        fixed = {name: v for name, v in known.statistics.items() if not callable(v)}
        return {**fixed, **(given or {})}

    @property
    def depends_on_sizes(self) -> bool:
        """True if the catalogue's statistics, where none are given, depend on the sizes."""
        known, given = self.entry and self.entry.statistics, self.given_statistics or {}
        return any(callable(value) and name not in given for name, value in (known or {}).items())

    def count(
        self, view: View | None = None, *, caches: CountedCaches = DEFAULT_CACHES
    ) -> PropertyVector:
        """Count the kernel by the statistics at its sizes; return counts that were given."""
        if not self.is_counted:
            return count_kernel(
                self.unit,
                statistics=self.statistics,
                view=view or "source",
                instruction_counts=self.instruction_counts,
                caches=caches,
            )
        if self.given_statistics or self.instruction_counts:
            raise errors.CountingError(
                "statistics and counts of instructions are for kernels; a property vector takes"
                " none"
            )
        if not isinstance(self.unit, PropertyVector):
            return PropertyVector.from_mapping(self.unit, view=view or "source")
        if view not in (None, self.unit.view):
            raise errors.CountingError(
                f"the vector of '{self.unit.kernel}' is of the {self.unit.view} view; to have the"
                f" {view} view, count the kernel itself"
            )
        return self.unit

    def count_for(self, weights: WeightSet) -> PropertyVector:
        """Count the kernel as weights need it; leave a vector as it is, for them to check."""
        if self.is_counted:
            return self.count(None if isinstance(self.unit, PropertyVector) else weights.view)

        def count(at: Kernel) -> PropertyVector:
            vector = at.count(weights.view, caches=weights.counted_caches)
            if weights.definition.reads_code:
                checked = vector.check_parameters(at.sizes, {})
                sizes = {name: int(np.max(value)) for name, value in checked.items()}
                vector = at.add_code(vector, sizes, weights.device.slug)
            named = weights.definition.named_transactions
            return with_transactions(vector, at.unit, named, at.statistics)

        return self.count_each(count)

    def count_each(self, count: Callable[[Kernel], PropertyVector]) -> PropertyVector:
        """Count the kernel at its sizes; anew at others, where statistics depend on these."""
        vector = count(self)
        if not self.depends_on_sizes:
            return vector
        return vector.recount(lambda sizes: count(self.at(sizes)))

    def add_code(
        self,
        vector: PropertyVector,
        sizes: Mapping[str, int],
        device: str,
        *,
        every_group: bool = False,
    ) -> PropertyVector:
        """Compile the kernel for some sizes, and add what its code executes to its counts."""
        from countperf.devices.compile.compiled_kernel import add_code

        unit, statistics = self.unit_with("code to compile"), self.statistics
        return add_code(vector, unit, sizes, device, statistics, every_group=every_group)
