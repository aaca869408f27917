"""Plug-ins for the tuners of others; each needs the package that it plugs into.

They search by `countperf.tuning.configuration_search`, which needs no model, and take any cost
function that ranks configurations: a fitted model, a mechanistic one, or times of another device.
"""
