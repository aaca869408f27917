"""Object code of a kernel, from PoCL and Intel's runtime; `countperf.machine_code` reads it."""
