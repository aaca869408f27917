"""Assumptions about how devices run what was counted; the memory hierarchy is the first of them."""
