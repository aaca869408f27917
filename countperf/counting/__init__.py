"""Counting Loopy kernels: what they execute, and the names of what is counted."""
