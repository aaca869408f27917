"""Runs CUDA C on the host, so that kernels' numbers can be compared where there is no GPU.

g++ compiles the code against a header that stands for CUDA: indices are globals, work items of a
group take turns, each with a stack of its own, and a barrier hands over to the next. A barrier that
some work items of a group reach and others do not is an error, as is a write outside an array.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

COMPILER = shutil.which("g++")
_PADDING = 256
_GUARD = 0xFF  # a NaN, in floating point

_HEADER = r"""
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>
#include <ucontext.h>
#define __CUDA_ARCH__ 900
#define __global__
#define __device__
#define __constant__ static
#define __shared__ static
#define __launch_bounds__(n)
#define __forceinline__ inline
struct dim3 { unsigned x, y, z; };
static dim3 threadIdx, blockIdx, blockDim, gridDim;
static ucontext_t scheduler;
static std::vector<ucontext_t> fibers;
static std::vector<std::vector<char>> stacks;
static std::vector<char> state;  // 0: runs, 1: at a barrier, 2: done
static unsigned current;
static void (*body)();
static void __syncthreads() {
  state[current] = 1;
  swapcontext(&fibers[current], &scheduler);
}
static void item() { body(); state[current] = 2; }
static int run_group() {
  unsigned items = blockDim.x * blockDim.y * blockDim.z;
  if (fibers.size() < items) { fibers.resize(items); stacks.resize(items); state.resize(items); }
  for (unsigned k = 0; k < items; ++k) {
    stacks[k].resize(1 << 16);
    getcontext(&fibers[k]);
    fibers[k].uc_stack.ss_sp = stacks[k].data();
    fibers[k].uc_stack.ss_size = stacks[k].size();
    fibers[k].uc_link = &scheduler;
    makecontext(&fibers[k], item, 0);
    state[k] = 0;
  }
  for (;;) {
    unsigned done = 0;
    for (unsigned k = 0; k < items; ++k) {
      current = k;
      threadIdx = {k % blockDim.x, k / blockDim.x % blockDim.y, k / blockDim.x / blockDim.y};
      swapcontext(&scheduler, &fibers[k]);
      done += state[k] == 2;
    }
    if (done == items) return 0;
    if (done) return 1;  // some are at a barrier that others never reach
  }
}
static int run_grid(const unsigned *shape) {
  gridDim = {shape[0], shape[1], shape[2]};
  blockDim = {shape[3], shape[4], shape[5]};
  for (blockIdx.z = 0; blockIdx.z < gridDim.z; ++blockIdx.z)
    for (blockIdx.y = 0; blockIdx.y < gridDim.y; ++blockIdx.y)
      for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x)
        if (int status = run_group()) return status;
  return 0;
}
template <class... A> struct Launch {
  static void (*kernel)(A...);
  static void **arguments;
  template <std::size_t... I> static void call(std::index_sequence<I...>) {
    kernel(*(A *) arguments[I]...);
  }
  static void invoke() { call(std::index_sequence_for<A...>()); }
};
template <class... A> void (*Launch<A...>::kernel)(A...);
template <class... A> void **Launch<A...>::arguments;
template <class... A> int launch(void (*kernel)(A...), const unsigned *shape, void **arguments) {
  Launch<A...>::kernel = kernel;
  Launch<A...>::arguments = arguments;
  body = Launch<A...>::invoke;
  return run_grid(shape);
}
struct alignas(16) float4 { float x, y, z, w; };
static long long ticks;
inline long long clock64() { return ticks += 1000; }
inline float rsqrtf(float x) { return 1 / sqrtf(x); }
inline double rsqrt(double x) { return 1 / sqrt(x); }
template <class T> T max(T a, T b) { return a > b ? a : b; }
template <class T> T min(T a, T b) { return a < b ? a : b; }
template <class T> T atomicAdd(T *address, T value) {
  T old = *address;
  *address += value;
  return old;
}
template <class T> T atomicCAS(T *address, T compare, T value) {
  T old = *address;
  if (old == compare) *address = value;
  return old;
}
"""
_KERNEL = re.compile(
    r"(?:__global__\s+void|KERNEL)\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\("
)


class Memory:
    """Host memory with guards at both ends."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.bytes = np.full(size + 2 * _PADDING, _GUARD, np.uint8)

    @property
    def address(self) -> int:
        """Of the first byte between the guards."""
        return self.bytes.ctypes.data + _PADDING

    @property
    def content(self) -> Any:
        """The bytes between the guards."""
        return self.bytes[_PADDING : _PADDING + self.size]

    @property
    def is_intact(self) -> bool:
        """True if nothing was written outside."""
        guards = (self.bytes[:_PADDING], self.bytes[_PADDING + self.size :])
        return all(bool((guard == _GUARD).all()) for guard in guards)


class CompileError(Exception):
    """g++ refuses the code."""


class EmulatedModule:
    """Kernels of one or more sources, compiled for the host.

    Kernels of different sources may have the same name.
    """

    def __init__(self, sources: Mapping[str, str], folder: Path) -> None:
        assert COMPILER is not None
        parts = [_HEADER]
        self._symbols: dict[tuple[str, str], str] = {}
        for number, (name, source) in enumerate(sources.items()):
            text, calls = source, ""
            for kernel in dict.fromkeys(_KERNEL.findall(source)):
                inner = f"k{number}_{kernel}"
                text = re.sub(rf"\b{kernel}\b", inner, text)
                self._symbols[name, kernel] = f"launch_{inner}"
                calls += (
                    f'extern "C" int launch_{inner}(const unsigned *shape, void **arguments)'
                    f" {{ return launch({inner}, shape, arguments); }}\n"
                )
            parts.append(f"namespace n{number} {{\n{text}\n{calls}}}\n#undef bIdx\n#undef tIdx\n")
        path = folder / "kernels.cpp"
        path.write_text("\n".join(parts))
        library = path.with_suffix(".so")
        # no contraction: references are rounded after each operation
        flags = ("-O1", "-w", "-std=c++17", "-fPIC", "-shared", "-ffp-contract=off")
        result = subprocess.run(
            [COMPILER, *flags, str(path), "-o", str(library)],
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode:
            raise CompileError(result.stderr)
        self._library = ctypes.CDLL(str(library))

    def launch(
        self,
        source: str,
        kernel: str,
        grid: Sequence[int],
        group: Sequence[int],
        arguments: Sequence[Any],
    ) -> None:
        """Run a kernel; arguments are NumPy scalars, addresses as uint64."""
        shape = [*grid, *[1] * (3 - len(grid)), *group, *[1] * (3 - len(group))]
        values = [np.asarray(argument) for argument in arguments]
        pointers = (ctypes.c_void_p * max(1, len(values)))(*(v.ctypes.data for v in values))
        call = getattr(self._library, self._symbols[source, kernel])
        status = call((ctypes.c_uint * 6)(*map(int, shape)), pointers)
        assert status == 0, f"{source}: not all work items of a group reach a barrier"
