"""Results as text, JSON, data frames and HTML, and as pictures.

This is the only place that rounds numbers or gives them SI prefixes; everything else holds full
values in s, byte, flop and Hz.
"""
