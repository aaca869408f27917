"""The longest time that tests wait for other processes."""

from __future__ import annotations

LONGEST_S = 300.0
"""Longest wait, s: enough on a busy machine for results that take seconds on an idle one.

A test that waits longer fails. No test claims that something is fast.
"""
