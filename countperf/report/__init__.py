"""Results as text, JSON, frames, HTML and pictures; the only place that rounds numbers.

Everything else holds full values in s, byte, flop and Hz.
"""
