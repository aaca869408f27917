"""The calls of CuPy and NVML that countperf makes, and the signatures that the packages have.

``signatures.json`` holds the signatures of the releases that were looked at, so that tests compare
the fake with them where no CuPy is installed. ``python -m tests.harness.cuda.surface`` writes the
file anew from the installed packages.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

RECORD = Path(__file__).with_name("signatures.json")
_ADDRESS, _SIZE, _STREAM = 4096, 64, 7


@dataclass(frozen=True, slots=True)
class Call:
    """A call that countperf makes."""

    name: str  # of the function, from its package on
    arguments: tuple[Any, ...] = ()  # passed by position
    keywords: tuple[str, ...] = ()  # names of those that are passed by name


CALLS = (
    Call("cupy.RawModule", (), ("code", "options", "backend")),
    Call("cupy.RawModule.compile"),
    Call("cupy.RawModule.get_function", ("name",)),
    Call("cupy.cuda.Device", (0,)),
    Call("cupy.cuda.Device.use"),
    Call("cupy.cuda.Event"),
    Call("cupy.cuda.Event.record", (object(),)),
    Call("cupy.cuda.Event.synchronize"),
    Call("cupy.cuda.Function.__call__", ((1,), (1,), ()), ("stream",)),
    Call("cupy.cuda.Memory", (_SIZE,)),
    Call("cupy.cuda.Stream", (), ("non_blocking",)),
    Call("cupy.cuda.Stream.synchronize"),
    Call("cupy.cuda.get_elapsed_time", (object(), object())),
    Call("cupy.cuda.runtime.deviceGetAttribute", (13, 0)),
    Call("cupy.cuda.runtime.deviceGetPCIBusId", (0,)),
    Call("cupy.cuda.runtime.driverGetVersion"),
    Call("cupy.cuda.runtime.getDeviceCount"),
    Call("cupy.cuda.runtime.getDeviceProperties", (0,)),
    Call("cupy.cuda.runtime.memGetInfo"),
    Call("cupy.cuda.runtime.memcpyAsync", (_ADDRESS, _ADDRESS, _SIZE, 1, _STREAM)),
    Call("cupy.cuda.runtime.memsetAsync", (_ADDRESS, 0, _SIZE, _STREAM)),
    Call("cupy.cuda.runtime.runtimeGetVersion"),
    Call("pynvml.nvmlDeviceGetHandleByPciBusId", ("0000:3B:00.0",)),
    Call("pynvml.nvmlDeviceGetMaxClockInfo", ("gpu", 1)),
    Call("pynvml.nvmlInit"),
    Call("pynvml.nvmlSystemGetDriverVersion"),
)

ATTRIBUTES = (
    *("cupy.RawKernel.kernel", "cupy.RawKernel.max_threads_per_block"),
    *("cupy.RawKernel.shared_size_bytes", "cupy.cuda.Memory.ptr", "cupy.cuda.Stream.ptr"),
)
"""Attributes of objects that countperf reads."""

EXCEPTIONS = (
    *("cupy.cuda.compiler.CompileException", "cupy.cuda.driver.CUDADriverError"),
    *("cupy.cuda.memory.OutOfMemoryError", "cupy.cuda.runtime.CUDARuntimeError"),
    "pynvml.NVMLError",
)
"""Exceptions that countperf expects."""

PROPERTIES = (
    *("clockRate", "major", "maxGridSize", "maxThreadsDim", "maxThreadsPerBlock", "minor"),
    *("multiProcessorCount", "name", "sharedMemPerBlock", "totalGlobalMem", "warpSize"),
)
"""Keys of ``getDeviceProperties`` that countperf reads."""


def find(name: str) -> Any:
    """Return what an installed package has under a name, such as ``cupy.cuda.Stream.ptr``."""
    package, *rest = name.split(".")
    found = importlib.import_module(package)
    for each in rest:
        found = getattr(found, each)
    return found


def is_readable(name: str) -> bool:
    """Tell whether objects of an installed package have an attribute."""
    owner, _, attribute = name.rpartition(".")
    described = find(owner)
    if hasattr(described, attribute):
        return True
    # set from an argument of __init__, which Cython describes in its first line
    starts = [getattr(each.__init__, "__doc__", None) or "" for each in described.__mro__]
    return any(re.search(rf"\b{attribute}\b", text.partition("\n")[0]) for text in starts)


def signature_of(name: str) -> str:
    """Return the signature of an installed function, as ``(a, b=1)``.

    Cython writes it into the first line of the description: ``f(int a, b=1) -> int``.
    """
    described = find(name)
    is_class = isinstance(described, type)
    texts = [described.__doc__, described.__init__.__doc__ if is_class else None]
    for text in filter(None, texts):
        first = text.splitlines()[0].strip()
        last = name.rpartition(".")[2]
        if match := re.match(rf"(?:\w+\.)*(?:{last}|__init__)(\(.*\))(?: -> .*)?$", first):
            return _plain(match[1], without_self=is_class or _is_method(name))
    parameters = list(inspect.signature(described).parameters.values())
    if not is_class and _is_method(name):
        parameters = parameters[1:]
    return "(" + ", ".join(str(each).split(":")[0] for each in parameters) + ")"


def _is_method(name: str) -> bool:
    return isinstance(find(name.rpartition(".")[0]), type)


def _plain(text: str, *, without_self: bool) -> str:
    """Take the types of C out of a signature.

    Examples
    --------
    >>> _plain("(self, tuple grid, size_t shared=0, *, bool lazy=False)", without_self=True)
    '(grid, shared=0, *, lazy=False)'
    """
    parts = [part.strip() for part in text[1:-1].split(",") if part.strip()]
    if without_self and parts and re.fullmatch(r"(?:\w+ )?self", parts[0]):
        parts = parts[1:]
    return "(" + ", ".join(re.sub(r"^(?:\w+ )+(?=\w)", "", part) for part in parts) + ")"


def takes(signature: str, call: Call) -> bool:
    """Tell whether a function of that signature can be called so."""
    tree = ast.parse(f"def f{signature}: pass")
    namespace: dict[str, Any] = {}
    exec(compile(tree, "signature", "exec"), namespace)
    try:
        inspect.signature(namespace["f"]).bind(*call.arguments, **dict.fromkeys(call.keywords))
    except TypeError:
        return False
    return True


def installed_versions() -> dict[str, str]:
    """Return the versions of CuPy and NVML that are installed, by the names of their packages."""
    found: dict[str, str] = {}
    for package in ("cupy-cuda13x", "cupy-cuda12x", "nvidia-ml-py"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def surface() -> dict[str, Any]:
    """Return what the installed packages have of what countperf uses."""
    return {
        "versions": installed_versions(),
        "signatures": {call.name: signature_of(call.name) for call in CALLS},
        "exceptions": {
            name: [each.__name__ for each in find(name).__mro__[1:-1]] for name in EXCEPTIONS
        },
        "attributes": [name for name in ATTRIBUTES if is_readable(name)],
    }


if __name__ == "__main__":
    RECORD.write_text(json.dumps(surface(), indent=1) + "\n")
