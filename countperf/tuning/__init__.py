"""Finding the fastest variant of a kernel: search spaces, ranking, tuning.

A `SearchSpace` is a set of choices and a function that builds the variant of each. Ranking predicts
every one; tuning measures the most promising, learns by how much the predictions of this family of
kernels are off, and stops when what is left can hardly be faster.
"""

from countperf.tuning.space import Choice, SearchSpace, Value

__all__ = ["Choice", "SearchSpace", "Value"]
