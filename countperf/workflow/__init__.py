"""The main jobs as functions: one module per verb.

Kernels by name (`kernels`), predictions (`prediction`), campaigns (`measuring`), fits and
evaluations (`fitting`; `fits` lists them), mechanistic models and comparisons with them
(`mechanistic`), searches (`tuning`). The command line and the top-level names of countperf call
these functions.
"""
