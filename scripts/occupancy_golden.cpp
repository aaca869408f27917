// Work groups resident on a compute unit, as NVIDIA's headers tell: limits of the compute
// capabilities from CCCL (cuda/__device/arch_traits.h), occupancy from cuda_occupancy.h. Prints
// comma-separated rows for tests/golden/cuda_occupancy.csv; scripts/occupancy_golden compiles it.
// CCCL does not know compute capability 3.0: its limits are those of the CUDA C Programming Guide 10.2.
#include <climits>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

#include <cuda/__device/arch_traits.h>
#include <cuda_occupancy.h>

static unsigned long long state = 20261121;

// one of so many, by Knuth's linear congruential generator
static int draw(int choices) {
  state = state * 6364136223846793005ULL + 1442695040888963407ULL;
  return static_cast<int>((state >> 33) % static_cast<unsigned long long>(choices));
}

static cudaOccDeviceProp properties_of(cuda::arch_id id) {
  const cuda::arch_traits_t traits = cuda::arch_traits_for(id);
  cudaOccDeviceProp device;
  device.computeMajor = traits.compute_capability_major;
  device.computeMinor = traits.compute_capability_minor;
  device.maxThreadsPerBlock = traits.max_threads_per_block;
  device.maxThreadsPerMultiprocessor = traits.max_threads_per_multiprocessor;
  device.regsPerBlock = traits.max_registers_per_block;
  device.regsPerMultiprocessor = traits.max_registers_per_multiprocessor;
  device.warpSize = traits.warp_size;
  device.sharedMemPerBlock = traits.max_shared_memory_per_block;
  device.sharedMemPerMultiprocessor = traits.max_shared_memory_per_multiprocessor;
  device.sharedMemPerBlockOptin = traits.max_shared_memory_per_block_optin;
  device.reservedSharedMemPerBlock = traits.reserved_shared_memory_per_block;
  device.numSms = 1;
  return device;
}

static cudaOccDeviceProp kepler() {
  cudaOccDeviceProp device;
  device.computeMajor = 3;
  device.computeMinor = 0;
  device.maxThreadsPerBlock = 1024;
  device.maxThreadsPerMultiprocessor = 2048;
  device.regsPerBlock = device.regsPerMultiprocessor = 65536;
  device.warpSize = 32;
  device.sharedMemPerBlock = device.sharedMemPerMultiprocessor = 49152;
  device.sharedMemPerBlockOptin = 49152;
  device.reservedSharedMemPerBlock = 0;
  device.numSms = 1;
  return device;
}

static void print_limit(int groups) {
  if (groups == INT_MAX) {
    std::printf(",");
  } else {
    std::printf(",%d", groups);
  }
}

static void print_cases(const cudaOccDeviceProp &device, int cases, int most_registers) {
  const cudaOccDeviceState state;
  for (int index = 0; index < cases; ++index) {
    const int items = draw(4) ? 32 * (1 + draw(draw(3) ? 8 : 32)) : 1 + draw(1024);
    const int registers = draw(4) ? 1 + draw(draw(2) ? 40 : most_registers) : 0;
    const int most_local = static_cast<int>(device.sharedMemPerBlockOptin) + 512;
    const int local = draw(3) ? draw(draw(2) ? 8192 : most_local) : 0;
    cudaOccFuncAttributes kernel;
    kernel.maxThreadsPerBlock = INT_MAX;
    kernel.numRegs = registers;
    kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    kernel.maxDynamicSharedSizeBytes = device.sharedMemPerBlockOptin;
    kernel.numBlockBarriers = 1;
    cudaOccResult found;
    if (cudaOccMaxActiveBlocksPerMultiprocessor(&found, &device, &kernel, &state, items, local) !=
        CUDA_OCC_SUCCESS) {
      std::fprintf(stderr, "no occupancy for %d.%d\n", device.computeMajor, device.computeMinor);
      std::exit(1);
    }
    std::printf("%d.%d,%d,%d,%d,%d", device.computeMajor, device.computeMinor, items, registers,
                local, found.activeBlocksPerMultiprocessor);
    print_limit(found.blockLimitBlocks);
    print_limit(found.blockLimitWarps);
    print_limit(found.blockLimitRegs);
    print_limit(found.blockLimitSharedMem);
    std::printf("\n");
  }
}

int main() {
  std::printf("capability,work_items_per_group,registers_per_work_item,local_bytes_per_group,"
              "active_groups,groups,sub_groups,registers,local\n");
  print_cases(kepler(), 90, 63);
  for (cuda::arch_id id :
       {cuda::arch_id::sm_50, cuda::arch_id::sm_52, cuda::arch_id::sm_61, cuda::arch_id::sm_75,
        cuda::arch_id::sm_80, cuda::arch_id::sm_86, cuda::arch_id::sm_89, cuda::arch_id::sm_90,
        cuda::arch_id::sm_87, cuda::arch_id::sm_100, cuda::arch_id::sm_103, cuda::arch_id::sm_107,
        cuda::arch_id::sm_110, cuda::arch_id::sm_120, cuda::arch_id::sm_121}) {
    print_cases(properties_of(id), 90, 255);
  }
  return 0;
}
