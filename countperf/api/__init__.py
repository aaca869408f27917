"""The main jobs as functions: one module per verb.

Kernels by name (`kernels`), predictions (`prediction`), campaigns (`catalogue`), fits and
evaluations (`evaluation`; `fits` lists them), mechanistic models and comparisons with them
(`mechanistic_models`), searches (`searching`). The command line and the top-level names of
countperf call these functions.
"""
