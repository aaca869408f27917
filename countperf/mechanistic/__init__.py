"""Mechanistic models: published theories of how hardware executes kernels, without weights."""
