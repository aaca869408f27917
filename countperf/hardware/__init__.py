"""Devices: which one it is (identity), and what it can do (parameters)."""
