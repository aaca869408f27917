"""Records of whole search spaces, and searches replayed from them, for benchmarks and tests."""
