"""Fitting a model's weights to measurements, and saying how far to trust them."""
