"""Counting Loopy kernels; the only reader of them."""
