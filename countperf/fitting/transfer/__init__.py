"""Fits of a new device from few measurements and what is known of other devices."""
