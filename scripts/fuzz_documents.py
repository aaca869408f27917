#!/usr/bin/env python3
"""Mutate documents of every kind, and count what is refused, accepted, and wrongly so.

    scripts/fuzz_documents.py 5000 --seed 2

Exit status 1 if a document ended in a traceback, or nonsense was accepted.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.document_kinds import kinds
from tests.mutations import mutants, outcome_of


def main() -> int:
    """Run the mutations."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("number", type=int, help="documents, of all kinds together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", action="append", help="only this kind (repeatable)")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    chosen = [kind for kind in kinds() if not options.kind or kind.name in options.kind]
    outcomes = ("accepted", "refused", "nonsense", "traceback")
    print(f"{'':24}" + "".join(f"{name:>11}" for name in outcomes))
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for kind in chosen:
            mutated = mutants(kind, random.Random(f"{options.seed} {kind.name}"))
            tally = Counter[str]()
            for mutant in itertools.islice(mutated, options.number // len(chosen)):
                outcome, said = outcome_of(mutant, Path(folder))
                tally[outcome] += 1
                if outcome in outcomes[2:]:
                    wrong.append(f"{outcome}: {kind.name}: {mutant.change[:90]}: {said[:150]}")
            print(f"{kind.name:24}" + "".join(f"{tally[name]:11}" for name in outcomes))
    print(*wrong[:40], sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
