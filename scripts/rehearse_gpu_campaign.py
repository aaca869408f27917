"""Rehearse ``scripts/gpu_campaign`` on a machine without a GPU.

Generates CUDA for every kernel that the campaign checks or times, and compiles it for each
``--capability``: by CuPy's own call of NVRTC with CuPy's options where both are installed, else by
``nvcc``. It exits with 1 if something fails.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
import warnings
from collections.abc import Callable

from countperf.devices.nvcc import compile_cubin
from countperf.devices.targets import generate_cuda
from countperf.errors import CountperfError
from measurement_kernels.catalog import entries
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.variants.sets import variant_entries, variant_sets

CAPABILITIES = ("7.5", "8.0", "8.6", "8.9", "9.0")
_OPTIONS = ("--std=c++17", "-ftz=true")

Compile = Callable[[str, str], object]


def campaign_kernels() -> list[CatalogEntry]:
    """List the kernels that the campaign checks or times, each once."""
    listed = [*entries(element_type=None, purpose=None)]
    listed += [each for family in variant_sets() for each in variant_entries(family)]
    return list({each.name: each for each in listed}.values())


def nvrtc() -> Compile | None:
    """Return what `cupy.RawModule` of CuPy 14 calls; None without CuPy or NVRTC."""
    if importlib.util.find_spec("cupy") is None:
        return None
    from cupy.cuda import compiler  # pyright: ignore[reportMissingImports]

    def compile_one(source: str, capability: str) -> None:
        program = compiler._NVRTCProgram(source, name="kernel.cu", method="cubin")
        architecture = f"-arch=sm_{capability.replace('.', '')}"
        program.compile((*_OPTIONS, architecture, "--device-as-default-execution-space"))

    try:
        compile_one("", CAPABILITIES[0])
    except RuntimeError as error:
        print(f"  NVRTC does not load: {error}")
        return None
    return compile_one


def rehearse_kernels(capabilities: list[str], every: int) -> bool:
    """Compile the kernels; print how many, how long each takes, and what fails."""
    chosen = campaign_kernels()[::every]
    began, sources, failed = time.process_time(), dict[str, str](), 0
    for each in chosen:
        try:
            sources[each.name] = generate_cuda(each.build()).source
        except CountperfError as error:
            failed += 1
            print(f"  {each.name}: {error}")
    spent = time.process_time() - began
    print(f"  {len(sources)} kernels generated, {spent / len(chosen):.2f} s of CPU each")
    call = nvrtc()
    compile_one = call or compile_cubin
    for capability in capabilities:
        began = time.perf_counter()
        for name, source in sources.items():
            try:
                compile_one(source, capability)
            except Exception as error:  # noqa: BLE001 - the next kernel shall be tried as well
                failed += 1
                print(f"  {name}, {capability}: {error}")
        each_s = (time.perf_counter() - began) / len(sources)
        by = "nvcc" if call is None else "NVRTC"
        print(f"  {capability}: {len(sources)} kernels compiled by {by}, {each_s:.2f} s each")
    return failed == 0


def main() -> int:
    """Rehearse."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--capability", action="append", default=[], metavar="X.Y")
    parser.add_argument("--every", type=int, default=1, help="compile every n-th kernel only")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    return 0 if rehearse_kernels(options.capability or list(CAPABILITIES), options.every) else 1


if __name__ == "__main__":
    sys.exit(main())
