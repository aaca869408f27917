"""How long tests wait for other processes."""

from __future__ import annotations

LONGEST_S = 300.0
"""What comes within seconds on an idle machine has come by then on one that has much else to do.

A test that takes so long fails; none claims that something is fast.
"""
