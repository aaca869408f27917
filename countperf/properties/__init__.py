"""Kernel properties: counts sorted into the taxonomy that models charge for."""
