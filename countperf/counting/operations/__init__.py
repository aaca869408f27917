"""What each expression computes and accesses: a rule for each class of nodes, in both views.

Each class adds rules to those of another, from accesses by scalars and functions to complex numbers
and vectors; the last ones leave out what a compiler removes.
"""
