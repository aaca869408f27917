"""Where a device executes what a kernel counts: sites, steps of addresses, reuse, footprints.

Counts are facts of a program. What a compiler and a processor make of them is a guess that a fit
has to confirm: the heuristics of this package.
"""
