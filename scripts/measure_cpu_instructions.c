// Costs of vector instructions of a CPU with AVX-512, in cycles, for its document in
// countperf/devices/catalog. Build and run: scripts/measure_cpu_instructions.
//
// The clock is that of a chain of integer additions, one per cycle, measured beside every
// instruction. Latency: a chain in which each instruction uses the result of the one before.
// Cost: twelve independent ones. Each number is the least of many repetitions, so that other
// processes on the machine matter little; memory (all cores at once) is the best of several.
#include <immintrin.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + 1e-9 * time.tv_nsec;
}

#define CLOBBERS                                                                                   \
  "rax", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", \
      "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"
#define FOUR(text) text text text text
#define SIXTEEN(text) FOUR(FOUR(text))
#define ROUNDS 1000
#define REPETITIONS 500

// least time of one of 16 * ROUNDS copies of a piece of assembly, s; %0 in it is a pointer
#define TIME_AT(pointer, text)                                            \
  ({                                                                      \
    double best = 1e9;                                                    \
    for (int trial = 0; trial < REPETITIONS; ++trial) {                   \
      const double start = now();                                         \
      for (int round = 0; round < ROUNDS; ++round)                        \
        __asm__ volatile(SIXTEEN(text) : "+r"(pointer) : : CLOBBERS);     \
      const double passed = (now() - start) / (16.0 * ROUNDS);            \
      if (passed < best) best = passed;                                   \
    }                                                                     \
    best;                                                                 \
  })

static void *line[8] __attribute__((aligned(64)));

#define TIME(text) ({ void *unused = line; TIME_AT(unused, text); })

#define CYCLE "add $1, %%rax\n"
#define INTO(op, to) op " %%zmm1, %%zmm0, %%zmm" #to "\n"
#define CHAIN(op) op " %%zmm1, %%zmm0, %%zmm0\n"
#define TWELVE(op)                                                                        \
  INTO(op, 2) INTO(op, 3) INTO(op, 4) INTO(op, 5) INTO(op, 6) INTO(op, 7) INTO(op, 8)     \
      INTO(op, 9) INTO(op, 10) INTO(op, 11) INTO(op, 12) INTO(op, 13)

static const float ONE_FLOAT = 1;
static const double ONE_DOUBLE = 1;

#define FILL(broadcast, one)                                                                 \
  __asm__ volatile(broadcast " %0, %%zmm0\n"                                                 \
                   "vmovaps %%zmm0, %%zmm1\nvmovaps %%zmm0, %%zmm2\nvmovaps %%zmm0, %%zmm3\n" \
                   "vmovaps %%zmm0, %%zmm4\nvmovaps %%zmm0, %%zmm5\nvmovaps %%zmm0, %%zmm6\n" \
                   "vmovaps %%zmm0, %%zmm7\nvmovaps %%zmm0, %%zmm8\nvmovaps %%zmm0, %%zmm9\n" \
                   "vmovaps %%zmm0, %%zmm10\nvmovaps %%zmm0, %%zmm11\n"                       \
                   "vmovaps %%zmm0, %%zmm12\nvmovaps %%zmm0, %%zmm13\n"                       \
                   :: "m"(one) : CLOBBERS)

#define REPORT(op, broadcast, one)                                                \
  do {                                                                            \
    FILL(broadcast, one);                                                         \
    const double latency = TIME(CHAIN(op));                                       \
    FILL(broadcast, one);                                                         \
    const double cost = TIME(TWELVE(op)) / 12;                                    \
    const double cycle = TIME(CYCLE);                                             \
    printf("%-12s cost %6.3f  latency %6.2f cycles of %.3f GHz\n", op, cost / cycle, \
           latency / cycle, 1e-9 / cycle);                                        \
  } while (0)

#define LOAD(to) "vmovaps (%0), %%zmm" #to "\n"

// vector loads from the first-level cache; the chain goes through an integer register, the move to
// which is part of the latency
static void report_loads(void) {
  void *at = line[0] = line;
  const double latency = TIME_AT(at, "vmovaps (%0), %%zmm0\nvmovq %%xmm0, %0\n");
  const double cost =
      TIME_AT(at, LOAD(0) LOAD(1) LOAD(2) LOAD(3) LOAD(4) LOAD(5) LOAD(6) LOAD(7)) / 8;
  const double cycle = TIME(CYCLE);
  printf("cached load  cost %6.3f  latency %6.2f cycles of %.3f GHz\n", cost / cycle,
         latency / cycle, 1e-9 / cycle);
}

// cost of a pair of different instructions: the larger of theirs if they have pipes of their own
#define REPORT_PAIR(one_op, other_op)                                                        \
  do {                                                                                       \
    FILL("vbroadcastss", ONE_FLOAT);                                                         \
    const double cost = TIME(INTO(one_op, 2) INTO(other_op, 3) INTO(one_op, 4)               \
                                 INTO(other_op, 5) INTO(one_op, 6) INTO(other_op, 7)         \
                                     INTO(one_op, 8) INTO(other_op, 9)) / 4;                 \
    const double cycle = TIME(CYCLE);                                                        \
    printf("%s and %s: %.3f cycles\n", one_op, other_op, cost / cycle);                      \
  } while (0)

#define BYTES (512UL << 20)
static char *memory;
static int cores;

// bytes/s of a core that reads its share of the memory
static void *read_share(void *argument) {
  const long core = (long)(intptr_t)argument;
  const size_t share = BYTES / cores;
  const char *from = memory + core * share;
  __m512i sum = _mm512_setzero_si512();
  for (size_t at = 0; at < share; at += 64)
    sum = _mm512_xor_si512(sum, _mm512_load_si512((const void *)(from + at)));
  volatile int used = _mm512_reduce_add_epi32(sum);
  (void)used;
  return NULL;
}

static double bandwidth(void) {
  double best = 0;
  for (int trial = 0; trial < 20; ++trial) {
    pthread_t threads[256];
    const double start = now();
    for (long core = 0; core < cores; ++core)
      pthread_create(&threads[core], NULL, read_share, (void *)(intptr_t)core);
    for (int core = 0; core < cores; ++core) pthread_join(threads[core], NULL);
    const double rate = BYTES / (now() - start);
    if (rate > best) best = rate;
  }
  return best;
}

// least time of a load that depends on the one before, lines in random order (Sattolo's cycle), s
static double memory_latency(void) {
  const size_t lines = BYTES / 64;
  uint32_t *order = malloc(lines * sizeof *order);
  for (size_t line = 0; line < lines; ++line) order[line] = line;
  uint64_t state = 20261121;
  for (size_t line = lines - 1; line > 0; --line) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const size_t other = (state >> 33) % line;
    const uint32_t kept = order[line];
    order[line] = order[other];
    order[other] = kept;
  }
  for (size_t line = 0; line < lines; ++line)
    *(void **)(memory + 64 * line) = memory + 64 * (size_t)order[line];
  free(order);
  double best = 1e9;
  void **at = (void **)memory;
  for (int trial = 0; trial < 20; ++trial) {
    const double start = now();
    for (int step = 0; step < 200000; ++step) at = (void **)*at;
    const double passed = (now() - start) / 200000;
    if (passed < best) best = passed;
  }
  void *volatile used = at;
  (void)used;
  return best;
}

int main(void) {
  REPORT("vaddps", "vbroadcastss", ONE_FLOAT);
  REPORT("vmulps", "vbroadcastss", ONE_FLOAT);
  REPORT("vfmadd231ps", "vbroadcastss", ONE_FLOAT);
  REPORT("vdivps", "vbroadcastss", ONE_FLOAT);
  REPORT("vaddpd", "vbroadcastsd", ONE_DOUBLE);
  REPORT("vmulpd", "vbroadcastsd", ONE_DOUBLE);
  REPORT("vfmadd231pd", "vbroadcastsd", ONE_DOUBLE);
  REPORT("vdivpd", "vbroadcastsd", ONE_DOUBLE);
  REPORT("vpaddd", "vbroadcastss", ONE_FLOAT);
  REPORT("vpmulld", "vbroadcastss", ONE_FLOAT);
  report_loads();
  REPORT_PAIR("vaddps", "vmulps");
  REPORT_PAIR("vmulps", "vdivps");
  REPORT_PAIR("vaddps", "vdivps");
  REPORT_PAIR("vaddps", "vpaddd");
  REPORT_PAIR("vmulps", "vpaddd");
  REPORT_PAIR("vmulps", "vpmulld");
  REPORT_PAIR("vaddps", "vpmulld");
  cores = sysconf(_SC_NPROCESSORS_ONLN);
  memory = aligned_alloc(2 << 20, BYTES);
  memset(memory, 1, BYTES);
  printf("%d cores read %.2f GB/s from memory\n", cores, 1e-9 * bandwidth());
  printf("a load from memory takes %.1f ns\n", 1e9 * memory_latency());
  return 0;
}
