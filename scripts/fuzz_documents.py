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
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.document_kinds import kinds
from tests.mutations import Result, mutants, read_mutant, tally


def main() -> int:
    """Run the mutations."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("number", type=int, help="documents, of all kinds together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", action="append", help="only this kind (repeatable)")
    parser.add_argument("--show", type=int, default=40, help="wrong outcomes that are printed")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    chosen = [kind for kind in kinds() if not options.kind or kind.name in options.kind]
    results: dict[str, list[Result]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in chosen:
            rng = random.Random(f"{options.seed} {kind.name}")
            some = itertools.islice(mutants(kind, rng), options.number // len(chosen))
            results[kind.name] = [read_mutant(each, Path(folder)) for each in some]
    print(tally(results))
    wrong = [e for each in results.values() for e in each if e.outcome in ("traceback", "nonsense")]
    for each in wrong[: options.show]:
        print(
            f"{each.outcome}: {each.mutant.kind.name}: {each.mutant.change[:90]}: {each.said[:150]}"
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
