"""Many sources compiled by one run of nvcc, since starting it takes longer than most kernels do."""

from __future__ import annotations

import re
from collections.abc import Mapping

from countperf.devices.nvcc import KernelResources, parse_resources, run_nvcc

_KERNEL_NAME = re.compile(
    r"(?:__global__\s+void|KERNEL)\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\("
)


def compile_sources(
    sources: Mapping[str, str], capability: str = "9.0"
) -> dict[str, dict[str, KernelResources]]:
    """Compile many sources in one go and read what their kernels take."""
    names = list(sources)
    texts = [_apart(sources[name], name, number) for number, name in enumerate(names)]
    by_source: dict[str, dict[str, KernelResources]] = {name: {} for name in names}
    said, _ = run_nvcc("\n".join(texts), capability, "-cubin", "-Xptxas", "-v")
    for entry, resources in parse_resources(said).items():
        number, _, kernel = entry[1:].partition("_")
        by_source[names[int(number)]][kernel] = resources
    return by_source


def _apart(source: str, label: str, number: int) -> str:
    """Put a source into a namespace of its own, its kernels under names of their own."""
    for name in set(_KERNEL_NAME.findall(source)):
        source = re.sub(rf"\b{name}\b", f"k{number}_{name}", source)
    return f'namespace n{number} {{\n#line 1 "{label}"\n{source}\n}}\n#undef bIdx\n#undef tIdx\n'
