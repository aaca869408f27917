"""The calls of CuPy: all are listed, the fake takes them, and so do the packages."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from countperf.devices import cuda as session
from countperf.devices.cuda import has_nvidia_gpu, load_driver
from countperf.devices.device import pick_errors
from countperf.errors import DeviceError
from tests.devices.cuda import fake_cupy
from tests.devices.cuda.fake_cupy import FakeCupy

needs_cupy = pytest.mark.skipif(
    importlib.util.find_spec("cupy") is None,
    reason="no CuPy (the extra 'cuda')",
)
_SIZE, _OF_LAUNCHES = 64, ("shared_mem", "stream")
_STREAMS = "null=False, non_blocking=False, ptds=False, priority=None"
_RAW_MODULE = (
    "code=None, *, path=None, options=(), backend='nvrtc', translate_cucomplex=False,"
    " enable_cooperative_groups=False, name_expressions=None, jitify=None"
)


class Call(NamedTuple):
    """A call that countperf makes, and the function's arguments in CuPy 14.2."""

    name: str  # of the function, from its package on
    parameters: str = ""
    arguments: tuple[Any, ...] = ()  # passed by position
    keywords: tuple[str, ...] = ()  # names of those that are passed by name


CALLS = (
    Call("cupy.RawModule", _RAW_MODULE, (), ("code", "options", "backend")),
    Call("cupy.RawModule.compile", "log_stream=None"),
    Call("cupy.RawModule.get_function", "name", ("name",)),
    Call("cupy.cuda.Device", "device=None", (0,)),
    Call("cupy.cuda.Device.use"),
    Call("cupy.cuda.Event", "block=False, disable_timing=False, interprocess=False"),
    Call("cupy.cuda.Event.record", "stream=None", (object(),)),
    Call("cupy.cuda.Event.synchronize"),
    Call("cupy.cuda.Function.__call__", "*args, **kwargs", ((1,), (1,), ()), _OF_LAUNCHES),
    Call("cupy.cuda.Memory", "size", (_SIZE,)),
    Call("cupy.cuda.Stream", _STREAMS, (), ("non_blocking",)),
    Call("cupy.cuda.Stream.synchronize"),
    Call("cupy.cuda.get_elapsed_time", "start_event, end_event", (object(), object())),
    Call("cupy.cuda.runtime.deviceGetAttribute", "attrib, device", (13, 0)),
    Call("cupy.cuda.runtime.driverGetVersion"),
    Call("cupy.cuda.runtime.getDeviceCount"),
    Call("cupy.cuda.runtime.getDeviceProperties", "device", (0,)),
    Call("cupy.cuda.runtime.memGetInfo"),
    Call("cupy.cuda.runtime.memcpyAsync", "dst, src, size, kind, stream", (8, 8, _SIZE, 1, 7)),
    Call("cupy.cuda.runtime.memsetAsync", "ptr, value, size, stream", (8, 0, _SIZE, 7)),
    Call("cupy.cuda.runtime.runtimeGetVersion"),
)
EXCEPTIONS = {
    "cupy.cuda.compiler.CompileException": Exception,
    "cupy.cuda.driver.CUDADriverError": RuntimeError,
    "cupy.cuda.memory.OutOfMemoryError": MemoryError,
    "cupy.cuda.runtime.CUDARuntimeError": RuntimeError,
}
"""Exceptions that countperf expects, and what they are derived from."""
ATTRIBUTES = (
    *("cupy.RawKernel.kernel", "cupy.RawKernel.max_threads_per_block"),
    *("cupy.RawKernel.shared_size_bytes", "cupy.cuda.Memory.ptr"),
)
PROPERTIES = (
    *("clockRate", "major", "maxGridSize", "maxThreadsDim", "maxThreadsPerBlock", "minor"),
    *("multiProcessorCount", "name", "sharedMemPerBlock", "totalGlobalMem", "warpSize"),
)
"""Keys of ``getDeviceProperties`` that countperf reads."""
names = pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)


def _takes(parameters: str, call: Call) -> bool:
    """Tell whether a function with these parameters can be called so."""
    function = inspect.signature(eval(f"lambda {parameters}: None"))
    with contextlib.suppress(TypeError):
        return bool(function.bind(*call.arguments, **dict.fromkeys(call.keywords)))
    return False


def _installed(name: str) -> Any:
    package, *rest = name.split(".")
    value: Any = importlib.import_module(package)
    for part in rest:
        value = getattr(value, part)
    return value


def _installed_parameters(name: str) -> str:
    """Return the parameters of an installed function, without types and without ``self``.

    Cython writes them into the first line of the description: ``f(int a, b=1) -> int``.
    """
    function = _installed(name)
    is_class = isinstance(function, type)
    is_method = is_class or isinstance(_installed(name.rpartition(".")[0]), type)
    for text in (function.__doc__, function.__init__.__doc__ if is_class else None):
        first = (text or " ").splitlines()[0].strip()
        last = name.rpartition(".")[2]
        if match := re.match(rf"(?:\w+\.)*(?:{last}|__init__)\((.*)\)(?: -> .*)?$", first):
            parts = [part.strip() for part in match[1].split(",") if part.strip()]
            break
    else:
        parts = [str(p).split(":")[0] for p in inspect.signature(function).parameters.values()]
    if is_method and parts and re.fullmatch(r"(?:\w+ )?self", parts[0]):
        parts = parts[1:]
    return ", ".join(re.sub(r"^(?:\w+ )+(?=\w)", "", part) for part in parts)


def test_every_call_in_the_code_is_listed() -> None:
    text = "\n".join(path.read_text() for path in Path(session.__file__).parent.glob("cuda*.py"))
    chain = r"(\w+(?:\.\w+)*)"
    prefixes = {r"\.cupy\.": "cupy", r"\bruntime\.": "cupy.cuda.runtime", r"\bcuda\.": "cupy.cuda"}
    used: set[str] = set()
    for pattern, prefix in prefixes.items():
        used |= {f"{prefix}.{name}" for name in re.findall(pattern + chain, text)}
    listed = {call.name for call in CALLS} | set(EXCEPTIONS)
    kinds = r"cupy\.RawModule.*|cupy\.cuda\.(?:runtime\..*|[A-Z]\w*|get\w+|\w+\.[A-Z]\w+)"
    calls = {name for name in used if re.fullmatch(kinds, name)}
    assert calls - listed == set()
    assert {"cupy.cuda.runtime.memcpyAsync", "cupy.cuda.Stream"} <= calls


@names
def test_recorded_signatures_take_the_calls(call: Call) -> None:
    assert _takes(call.parameters, call)


def test_the_fake_has_the_real_bases_of_exceptions_and_names_of_properties(tmp_path: Path) -> None:
    for name, base in EXCEPTIONS.items():
        assert getattr(fake_cupy, name.rpartition(".")[2]).__bases__ == (base,)
    # CUDA 13 leaves the clock out
    assert set(FakeCupy(tmp_path).properties) == set(PROPERTIES) - {"clockRate"}


@needs_cupy
@names
def test_the_installed_packages_take_the_calls(call: Call) -> None:
    assert _takes(_installed_parameters(call.name), call)


@needs_cupy
def test_the_installed_packages_have_what_else_is_used() -> None:
    from cupy_backends.cuda.api import runtime  # pyright: ignore[reportMissingImports]

    assert all(issubclass(_installed(name), base) for name, base in EXCEPTIONS.items())
    for name in ATTRIBUTES:
        assert hasattr(_installed(name.rpartition(".")[0]), name.rpartition(".")[2]), name
    known = Path(runtime.__file__).read_bytes()
    assert [name for name in PROPERTIES if name.encode() not in known] == []


@needs_cupy
def test_a_launch_takes_tuples_and_a_stream_by_name() -> None:
    # a built-in method without a signature is called: without a GPU or a function, CUDA refuses
    from cupy.cuda import Function, driver, runtime  # pyright: ignore[reportMissingImports]

    launch = Function.__new__(Function)
    stream, arguments = SimpleNamespace(ptr=0), (np.uint64(4096), np.int32(1), np.float32(2))
    with pytest.raises((runtime.CUDARuntimeError, driver.CUDADriverError)):
        launch((1,), (1,), arguments, stream=stream)
    with pytest.raises(TypeError):
        launch((1,), (1,), arguments, queue=stream)


@needs_cupy
def test_nvrtcs_errors_are_read() -> None:
    from cupy.cuda import compiler  # pyright: ignore[reportMissingImports]

    try:
        program = compiler._NVRTCProgram("__global__ void f() { a = 1; }", name="k.cu")
    except RuntimeError as error:
        pytest.skip(f"no NVRTC: {error}")
    with pytest.raises(compiler.CompileException) as caught:
        program.compile(("-arch=compute_80",))
    words = pick_errors(str(caught.value))
    assert words.startswith('k.cu(1): error: identifier "a" is undefined; 1 error detected')


@needs_cupy
@pytest.mark.skipif(has_nvidia_gpu(), reason="there is a driver")
def test_cupy_without_a_driver_is_named() -> None:
    with pytest.raises(
        DeviceError, match=r"CuPy is there, but CUDA does not start.*install NVIDIA's"
    ):
        load_driver()
