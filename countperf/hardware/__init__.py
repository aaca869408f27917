"""Devices: their identities and parameters."""
