"""Notes which kernels Loopy launches in this process, and at which sizes.

Loopy's executors are wrapped. A launch runs first and as ever; what is noted of it afterwards are a
reference to its kernel, its scalars, and the shapes and types of its arrays, not the arrays. The
wrappers raise nothing of their own.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

_MARK = "is_recorded_by_countperf"

_MOST_KINDS = 10_000
"""Different launches that a recorder keeps apart; more are only counted."""


@dataclass(slots=True, kw_only=True)
class KernelLaunches:
    """Launches of one kernel with the same scalars, shapes and types, on one device."""

    unit: Any  # the kernel, as the program made it
    entrypoint: str  # its entry point
    integers: dict[str, int]  # integer arguments that were passed
    shapes: dict[str, tuple[int, ...]]  # shapes of array arguments that were passed
    types: dict[str, str]  # types of the arguments that were passed and have one
    device: Any = None  # pyopencl's device
    launches: int = 0  # how often


@dataclass(eq=False)
class Recorder:
    """Launches that happened while it was active."""

    # launches by what tells them apart
    kinds: dict[Any, KernelLaunches] = field(default_factory=dict[Any, KernelLaunches])
    left_out: int = 0  # launches that were too many to be kept apart
    # what went wrong in noting launches, each text once
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


_active: list[Recorder] = []
_lock = threading.Lock()


def _install() -> None:
    """Wrap Loopy's executors, once."""
    from loopy.target.c.c_execution import CExecutor
    from loopy.target.pyopencl_execution import PyOpenCLExecutor

    for executor in (CExecutor, PyOpenCLExecutor):
        if not hasattr(executor.__call__, _MARK):
            executor.__call__ = _recorded(executor.__call__)


def _recorded(launch: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(launch)
    def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = launch(self, *args, **kwargs)
        for recorder in tuple(_active):
            recorder.note(self, args, kwargs)
        return result

    setattr(recorded, _MARK, True)
    return recorded
