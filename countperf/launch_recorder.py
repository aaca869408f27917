"""Notes which kernels Loopy launches in this process, and at which sizes.

Loopy's executors are wrapped. A launch runs first and as ever; what is noted of it afterwards are a
reference to its kernel, its scalars, and the shapes and types of its arrays, not the arrays. The
wrappers raise nothing of their own. Importing this module imports nothing but the standard library,
so that it costs programs nothing that launch no kernel.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.abc
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_EXECUTORS = {
    "loopy.target.pyopencl_execution": "PyOpenCLExecutor",
    "loopy.target.c.c_execution": "CExecutor",
}
"""Loopy's executors by their modules."""

_MARK = "is_recorded_by_countperf"

_MOST_KINDS = 10_000
"""Different launches that a recorder keeps apart; more are only counted."""


@dataclass(slots=True, kw_only=True)
class KernelLaunches:
    """Launches of one kernel with the same scalars, shapes and types, on one device.

    Attributes
    ----------
    unit : loopy.TranslationUnit
        The kernel, as the program made it.
    entrypoint : str
        Its entry point.
    integers : dict from str to int
        Integer arguments that were passed.
    shapes : dict from str to tuple of int
        Shapes of array arguments that were passed.
    types : dict from str to str
        Types of the arguments that were passed and have one.
    device : object or None
        Pyopencl's device; None of programs in C.
    launches : int
        How often.
    """

    unit: Any
    entrypoint: str
    integers: dict[str, int]
    shapes: dict[str, tuple[int, ...]]
    types: dict[str, str]
    device: Any = None
    launches: int = 0


@dataclass(eq=False)
class Recorder:
    """Launches that happened while it was active.

    Attributes
    ----------
    kinds : dict
        Launches by what tells them apart.
    left_out : int
        Launches that were too many to be kept apart.
    problems : list of str
        What went wrong in noting launches, each text once.
    """

    kinds: dict[Any, KernelLaunches] = field(default_factory=dict[Any, KernelLaunches])
    left_out: int = 0
    problems: list[str] = field(default_factory=list[str])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        """Note launches from now on."""
        with _lock:
            if self not in _active:
                _active.append(self)
        _install()

    def stop(self) -> None:
        """Note no more launches."""
        with _lock, contextlib.suppress(ValueError):
            _active.remove(self)

    def note(self, executor: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Note a launch; whatever goes wrong is noted too, and not raised."""
        try:
            self._note(executor, args, kwargs)
        except Exception as error:  # noqa: BLE001  the program is not to be disturbed
            said = f"a launch was not noted: {type(error).__name__}: {error}"
            if said not in self.problems and len(self.problems) < _MOST_KINDS:
                self.problems.append(said)

    def _note(self, executor: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        queue = kwargs.get("queue", args[0] if args else None)
        device = getattr(queue, "device", None)
        integers: dict[str, int] = {}
        shapes: dict[str, tuple[int, ...]] = {}
        types: dict[str, str] = {}
        for name, value in kwargs.items():
            shape = getattr(value, "shape", None)
            dtype = getattr(value, "dtype", None)
            if dtype is not None:
                types[name] = str(dtype)
            if isinstance(shape, tuple) and shape:
                shapes[name] = tuple(map(int, shape))
            elif hasattr(value, "__index__") and not isinstance(value, bool):
                integers[name] = int(value)
        unit = executor.t_unit
        kind = (
            id(unit),
            executor.entrypoint,
            tuple(integers.items()),
            tuple(shapes.items()),
            tuple(types.items()),
            getattr(device, "int_ptr", None),
        )
        with self._lock:
            found = self.kinds.get(kind)
            if found is None:
                if len(self.kinds) >= _MOST_KINDS:
                    self.left_out += 1
                    return
                found = self.kinds[kind] = KernelLaunches(
                    unit=unit,  # kept, so that its id stays its own
                    entrypoint=executor.entrypoint,
                    integers=integers,
                    shapes=shapes,
                    types=types,
                    device=device,
                )
            found.launches += 1

    def forget(self) -> None:
        """Forget all launches."""
        self.kinds.clear()
        self.left_out = 0


_active: list[Recorder] = []
_lock = threading.Lock()


# --- wrapping Loopy's executors


def _install() -> None:
    """Wrap the executors that are imported, and the others as soon as they are."""
    for name in _EXECUTORS:
        module = sys.modules.get(name)
        if module is not None:
            _wrap(module)
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _wrap(module: ModuleType) -> None:
    executor = getattr(module, _EXECUTORS[module.__name__], None)
    if executor is None or hasattr(executor.__call__, _MARK):
        return
    launch: Callable[..., Any] = executor.__call__

    @functools.wraps(launch)
    def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = launch(self, *args, **kwargs)
        for recorder in tuple(_active):
            recorder.note(self, args, kwargs)
        return result

    setattr(recorded, _MARK, True)
    executor.__call__ = recorded


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of the executors as ever, and has them wrapped once they are imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the specification of an executor's module; None for any other."""
        if fullname not in _EXECUTORS:
            return None
        for finder in sys.meta_path:
            found = None if finder is self else finder.find_spec(fullname, path, target)
            if found is not None and found.loader is not None:
                found.loader = _Loader(found.loader)
                return found
        return None


class _Loader(importlib.abc.Loader):
    """Loads a module as its own loader does, then wraps its executor."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Leave it to the loader."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Leave it to the loader, and wrap."""
        self._loader.exec_module(module)
        with contextlib.suppress(Exception):  # the program is not to be disturbed
            _wrap(module)
