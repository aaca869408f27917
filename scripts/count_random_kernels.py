"""Compare the counts of many generated kernels with what an interpreter executes.

The kernels are made in batches, each from a seed of its own. With ``--state FILE`` each batch's
result is kept in the file as it comes, and batches that are in it are not run again, so that a run
may be stopped at any time, continued, or made longer; the summary is of all batches in the file.
Exits with 1 if anything differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections import Counter
from concurrent.futures import as_completed
from pathlib import Path
from typing import Any

from countperf.devices.workers import Pool
from tests.counting.random_kernels import Campaign

BATCH = 250


def batch(start: int, number: int) -> dict[str, Any]:
    """Examine one batch; return what came of it as a document."""
    begin = time.process_time()
    campaign = Campaign()
    campaign.run(number, start)
    return {
        "seed": start,
        "kernels": sorted(
            hashlib.sha256(repr(case).encode()).hexdigest()[:12] for case in campaign.distinct
        ),
        "verdicts": campaign.verdicts,
        "refusals": campaign.refusals,
        "classed": campaign.classed,
        "failures": [(repr(case), wrong) for case, wrong in campaign.failures],
        "seconds": round(time.process_time() - begin, 1),
    }


def show(document: dict[str, Any]) -> None:
    """Print the failures of a batch."""
    for case, wrong in document["failures"]:
        print(f"\nseed {document['seed']}: {wrong}\n{case}", flush=True)


def summarize(documents: list[dict[str, Any]]) -> int:
    """Print totals; return the number of failures."""
    distinct: set[str] = set()
    verdicts: Counter[str] = Counter()
    refusals: Counter[str] = Counter()
    for document in documents:
        distinct.update(document["kernels"])
        verdicts.update(document["verdicts"])
        refusals.update(document["refusals"])
    failures = sum(len(d["failures"]) for d in documents)
    seconds = sum(d["seconds"] for d in documents)
    print(f"\n{len(distinct)} distinct kernels in {seconds:.0f} s of processor: {dict(verdicts)}")
    if seconds:
        print(f"{len(distinct) / seconds:.1f} kernels per second of one core")
    classed = sum(d["classed"] for d in documents)
    print(f"utilization classes compared: {classed}; failures: {failures}")
    for text, times in refusals.most_common(25):
        print(f"{times:7d}  {text}")
    return failures


def main() -> None:
    """Run batches until the number is reached; print failures as they come, then totals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("number", nargs="?", type=int, default=100_000, help="of kernels")
    parser.add_argument("seed", nargs="?", type=int, default=0)
    parser.add_argument("--state", type=Path, help="file that keeps the results of batches")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--batch", type=int, default=BATCH, help="kernels of one batch")
    given = parser.parse_args()
    documents: list[dict[str, Any]] = []
    if given.state is not None and given.state.exists():
        documents = [json.loads(line) for line in given.state.read_text().splitlines()]
    done = {document["seed"] for document in documents}
    seeds = [given.seed * 1_000_000 + k for k in range(-(-given.number // given.batch))]
    with Pool(given.processes) as pool:
        jobs = [pool.submit(batch, seed, given.batch) for seed in seeds if seed not in done]
        for job in as_completed(jobs):
            document = job.result()
            documents.append(document)
            show(document)
            if given.state is not None:
                with given.state.open("a") as file:
                    file.write(json.dumps(document) + "\n")
    sys.exit(1 if summarize(documents) else 0)


if __name__ == "__main__":
    main()
