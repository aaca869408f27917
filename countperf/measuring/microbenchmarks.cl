// Microbenchmarks of the clock, barriers, local memory and global memory, in the dialect of
// countperf.devices.device.

#define LOCAL_WORDS 4096

KERNEL cycles(GLOBAL I64 *RESTRICT out, int n, float a, float b)
{
  I64 begin = CYCLES;
  float x = a + b * LOCAL_ID;
  for (int k = 0; k < n; ++k) x = fma(x, a, b);
  I64 end = CYCLES;
  out[GLOBAL_ID] = x == 12345.0f ? 0 : end - begin;
}

KERNEL barriers(GLOBAL int *RESTRICT out, int n)
{
  for (int k = 0; k < n; ++k) { LOCAL_BARRIER; LOCAL_BARRIER; LOCAL_BARRIER; LOCAL_BARRIER; }
  out[GLOBAL_ID] = n;
}

KERNEL local_loads(GLOBAL int *RESTRICT out, int n, int step)
{
  LOCAL_ARRAY(int, next, LOCAL_WORDS);
  for (int k = LOCAL_ID; k < LOCAL_WORDS; k += LOCAL_SIZE)
    next[k] = (k + step) & (LOCAL_WORDS - 1);
  LOCAL_BARRIER;
  int x = LOCAL_ID;
  for (int k = 0; k < n; ++k) {
    x = next[x]; x = next[x]; x = next[x]; x = next[x];
    x = next[x]; x = next[x]; x = next[x]; x = next[x];
  }
  out[GLOBAL_ID] = x;
}

KERNEL chase(GLOBAL int *RESTRICT out, GLOBAL const int *next, int n, int start)
{
  int x = start;
  for (int k = 0; k < n; ++k) {
    x = next[x]; x = next[x]; x = next[x]; x = next[x];
    x = next[x]; x = next[x]; x = next[x]; x = next[x];
  }
  out[GLOBAL_ID] = x;
}

KERNEL load(GLOBAL float *RESTRICT out, GLOBAL const float *RESTRICT in, int items, int turns,
            int stride, float never)
{
  I64 i = (I64) GLOBAL_ID * stride, step = (I64) items * stride;
  float s = 0;
  for (int k = 0; k < turns; ++k, i += step) s += in[i];
  if (s == never) out[GLOBAL_ID] = s;
}

KERNEL copy4(GLOBAL F4 *RESTRICT out, GLOBAL const F4 *RESTRICT in)
{ out[GLOBAL_ID] = in[GLOBAL_ID]; }
