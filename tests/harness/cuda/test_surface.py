"""The calls of CuPy and NVML: all are listed, the fake takes them, and so do the packages."""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from countperf.errors import DeviceError
from countperf.harness.cuda import session
from countperf.harness.cuda.session import compilers_words, has_nvidia_gpu, load_driver
from tests.harness.cuda import fake_cupy
from tests.harness.cuda.fake_cupy import FakeCupy, FakeNvml
from tests.harness.cuda.surface import (
    ATTRIBUTES,
    CALLS,
    EXCEPTIONS,
    PROPERTIES,
    RECORD,
    Call,
    installed_versions,
    signature_of,
    surface,
    takes,
)

RECORDED: dict[str, Any] = json.loads(RECORD.read_text())
needs_cupy = pytest.mark.skipif(
    importlib.util.find_spec("cupy") is None or importlib.util.find_spec("pynvml") is None,
    reason="no CuPy or no nvidia-ml-py (the extra 'cuda')",
)
names = pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)


def test_every_call_in_the_code_is_listed() -> None:
    folder = Path(session.__file__).parent
    text = "\n".join(path.read_text() for path in folder.glob("*.py"))
    chain = r"(\w+(?:\.\w+)*)"
    found = {f"cupy.{name}" for name in re.findall(rf"\.cupy\.{chain}", text)}
    found |= {f"cupy.cuda.runtime.{name}" for name in re.findall(rf"\bruntime\.{chain}", text)}
    found |= {f"cupy.cuda.{name}" for name in re.findall(rf"\bcuda\.{chain}", text)}
    found |= {f"pynvml.{name}" for name in re.findall(r"\bnvml\.(\w+)", text)}
    listed = {call.name for call in CALLS} | set(EXCEPTIONS)

    calls = {name for name in found if name.startswith(("cupy.RawModule", "pynvml"))}
    calls |= {name for name in found if name.startswith("cupy.cuda.runtime.")}
    calls |= {
        name
        for name in found
        if re.fullmatch(r"cupy\.cuda\.(?:[A-Z]\w*|get\w+|\w+\.[A-Z]\w+)", name)
    }

    assert calls - listed - {"pynvml.nvml"} == set()
    assert {"cupy.cuda.runtime.memcpyAsync", "cupy.cuda.Stream", "pynvml.nvmlInit"} <= calls


@names
def test_the_recorded_signatures_take_the_calls(call: Call) -> None:
    assert takes(RECORDED["signatures"][call.name], call)


def test_a_call_that_does_not_fit_is_seen() -> None:
    assert not takes("(a, b)", Call("f", (1,)))
    assert not takes("(a)", Call("f", (1,), ("stream",)))
    assert takes("(a, *, stream=None)", Call("f", (1,), ("stream",)))


def _fake(name: str, folder: Path) -> Any:
    """Return what the fake has in the place of a name."""
    cupy = FakeCupy(folder)
    code = 'extern "C" __global__ void nothing(int *a) { }'
    built = fake_cupy.FakeRawModule(cupy, code)
    kernel = SimpleNamespace(__call__=fake_cupy.FakeRawKernel.kernel.__get__(built))
    stand_ins: dict[str, Any] = {
        "cupy.RawModule": cupy.RawModule,
        "cupy.RawModule.compile": built.compile,
        "cupy.RawModule.get_function": built.get_function,
        "cupy.cuda.Device.use": cupy.cuda.Device(0).use,
        "cupy.cuda.Event.record": cupy.cuda.Event().record,
        "cupy.cuda.Event.synchronize": cupy.cuda.Event().synchronize,
        "cupy.cuda.Function.__call__": kernel.__call__,
        "cupy.cuda.Stream.synchronize": cupy.cuda.Stream().synchronize,
    }
    if name in stand_ins:
        return stand_ins[name]
    package, *rest = name.split(".")
    found: Any = cupy if package == "cupy" else FakeNvml()
    for each in rest:
        found = getattr(found, each)
    return found


@names
def test_the_fake_takes_the_calls(call: Call, tmp_path: Path) -> None:
    signature = inspect.signature(_fake(call.name, tmp_path))

    signature.bind(*call.arguments, **dict.fromkeys(call.keywords))


@pytest.mark.parametrize("name", EXCEPTIONS)
def test_the_fakes_exceptions_have_the_bases_of_the_real_ones(name: str) -> None:
    exception = getattr(fake_cupy, name.rpartition(".")[2])

    assert [each.__name__ for each in exception.__mro__[1:-1]] == RECORDED["exceptions"][name]


def test_attributes_that_are_read_exist() -> None:
    assert RECORDED["attributes"] == list(ATTRIBUTES)


def test_the_fake_describes_a_gpu_by_cudas_names(tmp_path: Path) -> None:
    found = set(FakeCupy(tmp_path).properties)

    assert found <= set(PROPERTIES)
    assert set(PROPERTIES) - found == {"clockRate"}  # as CUDA 13 leaves it out


@needs_cupy
def test_the_record_is_what_the_installed_packages_have() -> None:
    if installed_versions() != RECORDED["versions"]:
        pytest.skip(f"other releases are installed than {RECORDED['versions']}")

    assert surface() == RECORDED


@needs_cupy
@names
def test_the_installed_packages_take_the_calls(call: Call) -> None:
    assert takes(signature_of(call.name), call)


@needs_cupy
def test_a_launch_takes_tuples_and_a_stream_by_name() -> None:
    # a built-in method without a signature is called: without a GPU or a function, CUDA refuses
    from cupy.cuda import Function, runtime  # pyright: ignore[reportMissingImports]

    launch = Function.__new__(Function)
    stream, arguments = SimpleNamespace(ptr=0), (np.uint64(4096), np.int32(1), np.float32(2))

    with pytest.raises((runtime.CUDARuntimeError, driver_error())):
        launch((1,), (1,), arguments, stream=stream)
    with pytest.raises(TypeError):
        launch((1,), (1,), arguments, queue=stream)


def driver_error() -> type[Exception]:
    """Return the driver's exception of the installed CuPy."""
    from cupy.cuda import driver  # pyright: ignore[reportMissingImports]

    return driver.CUDADriverError


@needs_cupy
def test_nvrtcs_errors_are_read() -> None:
    from cupy.cuda import compiler  # pyright: ignore[reportMissingImports]

    try:
        program = compiler._NVRTCProgram("__global__ void f() { a = 1; }", name="k.cu")
    except RuntimeError as error:
        pytest.skip(f"no NVRTC: {error}")

    with pytest.raises(compiler.CompileException) as caught:
        program.compile(("-arch=compute_80",))

    words = compilers_words(str(caught.value))
    assert words.startswith('k.cu(1): error: identifier "a" is undefined; 1 error detected')


@needs_cupy
@pytest.mark.skipif(has_nvidia_gpu(), reason="there is a driver")
def test_cupy_without_a_driver_is_named() -> None:
    with pytest.raises(DeviceError, match="CuPy is there, but no NVIDIA driver; install NVIDIA's"):
        load_driver()


@needs_cupy
@pytest.mark.parametrize("name", PROPERTIES)
def test_cupys_runtime_knows_the_property(name: str) -> None:
    from cupy_backends.cuda.api import runtime  # pyright: ignore[reportMissingImports]

    assert name.encode() in Path(runtime.__file__).read_bytes()
