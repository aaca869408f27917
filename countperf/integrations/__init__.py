"""Plug-ins for the tuners of others; each needs the package that it plugs into.

They choose as `countperf.tune` does, and take any cost function that ranks configurations, or none:
a fitted model, a mechanistic one, or times of another device.
"""
