"""Kernels as users name them: finding them, and counting them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

import loopy as lp

from countperf.counting.count_properties import count_kernel
from countperf.counting.frontend.producers import bound_arguments, known_unit, translation_unit
from countperf.counting.structure.memory_hierarchy import DEFAULT_CACHES, CountedCaches
from countperf.counting.vector import PropertyVector
from countperf.documents import parse_json
from countperf.errors import CountingError, DocumentError, KernelSpecificationError
from countperf.sizes import first_point
from countperf.store import read_file_text
from countperf.user_code import find_in_user_code

if TYPE_CHECKING:
    from countperf.counting.taxonomy import View
    from countperf.measuring import InstructionCounts, Statistic
    from measurement_kernels.entry import CatalogEntry


_UNNAMED = "loopy_kernel"
"""Name that Loopy gives to a kernel without one."""


def load_kernel(specification: str) -> Any:
    """Find the kernel that a text names.

    Parameters
    ----------
    specification : str
        ``path/file.py:name`` or ``package.module:name``, where the name is a Loopy translation
        unit, an object around one (`countperf.counting.frontend.producers`), or a function
        without arguments that returns one; the name of a kernel of the catalogue; or the path of a
        property-vector document (``.json``).

    Returns
    -------
    loopy.TranslationUnit or PropertyVector
        A kernel to which no name was given has that of the object.

    Raises
    ------
    KernelSpecificationError
        The text names nothing of the kind.
    DocumentError
        The property-vector document is bad.
    """
    return _loaded(specification)[0]


def kernel_and_arguments(kernel: Any, lacking: str) -> tuple[Any, dict[str, Any]]:
    """Return a kernel as `kernel_itself` does, and the arguments that come with it."""
    if not isinstance(kernel, str):
        return kernel_itself(kernel, lacking), bound_arguments(kernel)
    loaded, bound = _loaded(kernel)
    return kernel_itself(loaded, lacking), bound


def _loaded(specification: str) -> tuple[Any, dict[str, Any]]:
    """Find the kernel that a text names, and the arguments that come with it."""
    if specification.endswith(".json"):
        return _vector_document(Path(specification)), {}
    if is_in_catalogue(specification):
        return entry(specification).build(), {}
    if ":" not in specification:
        raise KernelSpecificationError(
            f"{specification} is a file: name the kernel in it too, as in {specification}:axpy"
        )

    bound: dict[str, Any] = {}

    def unit_or_itself(loaded: object) -> object:
        """Return the translation unit of what a package that generates kernels handed out."""
        unit = known_unit(loaded)
        if unit is None:
            return loaded
        bound.update(bound_arguments(loaded))
        return unit

    loaded: Any = find_in_user_code(
        specification,
        lp.TranslationUnit,
        kind_name="loopy.TranslationUnit",
        error=KernelSpecificationError,
        convert=unit_or_itself,
    )
    name = specification.rpartition(":")[2]
    if loaded.entrypoints == {_UNNAMED} and name.isidentifier():
        loaded = lp.rename_callable(loaded, _UNNAMED, name)
    return loaded, bound


def table_kernels(names: Iterable[str], file: str | None) -> dict[str, Any]:
    """Find the kernels that a table of times names."""
    if file is None:
        return {name: load_kernel(name) for name in names}

    kinds: Any = lp.TranslationUnit | FunctionType
    return {
        name: find_in_user_code(
            f"{file}:{name}",
            kinds,
            kind_name="loopy.TranslationUnit",
            error=KernelSpecificationError,
        )
        for name in names
    }


def is_in_catalogue(specification: str) -> bool:
    """Return whether a text can only be the name of a kernel of the catalogue."""
    return ":" not in specification and not specification.endswith((".json", ".py"))


def entry(name: str) -> CatalogEntry:
    """Return a kernel of the catalogue."""
    from measurement_kernels import catalog

    return catalog.entry(name)


def _vector_document(path: Path) -> PropertyVector:
    if not path.exists():
        raise KernelSpecificationError(f"there is no file {path}")
    content = parse_json(read_file_text(path), path=path)
    try:
        return PropertyVector.from_document(content)
    except DocumentError as error:
        raise DocumentError(f"{path}: {error}", path=str(path), field=error.field) from error


def counted(
    kernel: Any,
    *,
    statistics: Mapping[str, Statistic] | None = None,
    view: View | None = None,
    sizes: Mapping[str, Any] | None = None,
    instruction_counts: InstructionCounts | None = None,
    caches: CountedCaches = DEFAULT_CACHES,
) -> PropertyVector:
    """Return the property vector of a kernel, a text that names one, or a mapping by hand."""
    statistics = kernel_statistics(kernel, statistics, sizes or {})
    loaded = load_kernel(kernel) if isinstance(kernel, str) else kernel
    if isinstance(loaded, PropertyVector | Mapping):
        if statistics or instruction_counts:
            raise CountingError(
                "statistics and counts of instructions are for kernels; a property vector takes"
                " none"
            )
        if not isinstance(loaded, PropertyVector):
            return PropertyVector.from_mapping(loaded, view=view or "source")
        if view not in (None, loaded.view):
            raise CountingError(
                f"the vector of '{loaded.kernel}' is of the {loaded.view} view; to have the {view} "
                "view, count the kernel itself"
            )
        return loaded
    return count_kernel(
        loaded,
        statistics=statistics,
        view=view or "source",
        instruction_counts=instruction_counts,
        caches=caches,
    )


def kernel_statistics(
    kernel: Any, given: Mapping[str, Statistic] | None, sizes: Mapping[str, Any]
) -> Mapping[str, Statistic] | None:
    """Add what is known of the data of a kernel of the catalogue at a size, unless it is given.

    Statistics that depend on sizes are those of the first size; without sizes they are left out.
    """
    if not isinstance(kernel, str) or not is_in_catalogue(kernel):
        return given
    known_kernel = entry(kernel)
    if not known_kernel.statistics:
        return given
    if depends_on_sizes(kernel, given) and all(s.name in sizes for s in known_kernel.sizes):
        return {**known_kernel.statistics_at(first_point(sizes)), **(given or {})}
    fixed = {name: v for name, v in known_kernel.statistics.items() if not callable(v)}
    return {**fixed, **(given or {})}


def count_at_sizes(
    kernel: Any,
    statistics: Mapping[str, Statistic] | None,
    sizes: Mapping[str, Any],
    count: Callable[[Mapping[str, Statistic] | None], PropertyVector],
) -> PropertyVector:
    """Count a kernel by the statistics at its sizes; anew at each, where they depend on these."""

    def count_at(point: Mapping[str, Any]) -> PropertyVector:
        return count(kernel_statistics(kernel, statistics, point))

    vector = count_at(sizes)
    return vector.recount(count_at) if depends_on_sizes(kernel, statistics) else vector


def depends_on_sizes(kernel: Any, given: Mapping[str, Statistic] | None) -> bool:
    """Return whether statistics of a kernel of the catalogue, unless given, depend on its sizes."""
    known = entry(kernel).statistics if isinstance(kernel, str) and is_in_catalogue(kernel) else {}
    return any(callable(value) and name not in (given or {}) for name, value in known.items())


def kernel_itself(kernel: Any, lacking: str) -> Any:
    """Return a kernel, or the one that a text names; refuse counts, which lack something."""
    loaded = load_kernel(kernel) if isinstance(kernel, str) else kernel
    if isinstance(loaded, Mapping):
        raise CountingError(f"a property vector has no {lacking}; pass the kernel itself")
    return translation_unit(loaded)
