// Stands for CUDA where `emulator.py` compiles kernels for the host.
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
