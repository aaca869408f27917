"""Rules by which a device runs what was counted: vectors, unrolling, caches, instructions issued.

Counts are facts of a program. What a compiler and a processor make of them is a guess that a fit
has to confirm: the heuristics of this package.
"""
