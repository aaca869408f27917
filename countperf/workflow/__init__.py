"""The main jobs as functions: one module per verb.

Kernels by name (`kernels`), predictions (`prediction`), campaigns (`measuring`), fits (`fitting`, `fits`),
evaluations (`evaluating`), comparisons (`comparing`), searches (`tuning`), a campaign on a rented
GPU (`gpu_campaign`). The command line and the top-level names of countperf call these functions.
"""
