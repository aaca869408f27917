"""The main jobs as functions: one module per verb.

Kernels by name (`kernels`), predictions (`prediction`), campaigns (`measuring`), fits (`fitting`;
`fits` lists them), evaluations (`evaluating`), comparisons (`comparing`), searches (`tuning`). The
command line and the top-level names of countperf call these functions.
"""
