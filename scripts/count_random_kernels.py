"""Compare the counts of many generated kernels with what an interpreter executes.

Usage: count_random_kernels.py [number of kernels] [seed]. The kernels are made in batches, each
from a seed of its own, on all cores; exits with 1 if anything differs.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.counting.random_kernels import Campaign

BATCH = 250


def batch(start: int) -> Campaign:
    """Examine one batch."""
    campaign = Campaign()
    campaign.run(BATCH, start)
    return campaign


def main() -> None:
    """Run batches until the number is reached; print failures as they come, then totals."""
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    begin = time.monotonic()
    distinct: set[int] = set()
    verdicts: Counter[str] = Counter()
    refusals: Counter[str] = Counter()
    classed = failures = 0
    seeds = [first * 1_000_000 + k for k in range(-(-number // BATCH))]
    with ProcessPoolExecutor() as pool:
        for start, campaign in zip(seeds, pool.map(batch, seeds), strict=True):
            distinct.update(hash(repr(case)) for case in campaign.distinct)
            verdicts += campaign.verdicts
            refusals += campaign.refusals
            classed += campaign.classed
            failures += len(campaign.failures)
            for case, wrong in campaign.failures:
                print(f"\nseed {start}: {wrong}\n{case!r}", flush=True)
    print(
        f"\n{len(distinct)} distinct kernels in {time.monotonic() - begin:.0f} s: {dict(verdicts)}"
    )
    print(f"utilization classes compared: {classed}; failures: {failures}")
    for text, times in refusals.most_common(25):
        print(f"{times:7d}  {text}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
