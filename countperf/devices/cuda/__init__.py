"""Runs kernels on NVIDIA GPUs through CUDA; nothing here needs a GPU or CuPy to be imported."""
