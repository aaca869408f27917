"""Table and figure of the scores of searches on recorded spaces."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

DRAWN = 6
"""Strategies of Kernel Tuner that the figure names: the best."""

_OURS = "countperf"


def write(
    rows: Sequence[Mapping[str, Any]], figure: Path | None = None, compressed: Path | None = None
) -> None:
    """Print the table; draw the figure and write all scores, if wanted.

    Spaces on which a search has no score yet are left out of table and figure.

    Parameters
    ----------
    rows : sequence of Mapping
        Scores of a search on a space, as ``score_searches.py score`` writes them.
    figure, compressed : Path, optional
        Files to be written.
    """
    names = list(dict.fromkeys(row["space"] for row in rows))
    by_label: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        by_label.setdefault(row["strategy"], {})[row["space"]] = row
    names = [name for name in names if all(name in each for each in by_label.values())]
    whole = {label: {name: each[name] for name in names} for label, each in by_label.items()}
    order = sorted(whole, key=lambda label: -mean_score(whole[label]))
    print("| search | " + " | ".join(names) + " | mean | 95 % interval | CPU s a run |")
    print("| --- |" + " ---: |" * (len(names) + 3))
    for label in order:
        each = whole[label]
        low, high = interval(each)
        cells = [f"{np.mean(each[name]['scores']):.2f}" for name in names]
        cells += [f"{mean_score(each):.3f}", f"{low:.2f} to {high:.2f}"]
        cells.append(f"{np.mean([row['cpu_s'] for row in each.values()]):.2g}")
        print(f"| {label} | " + " | ".join(cells) + " |")
    if figure is not None:
        draw(whole, order, figure)
    if compressed is not None:
        text = json.dumps(list(rows), separators=(",", ":"), sort_keys=True)
        compressed.write_bytes(gzip.compress(text.encode(), mtime=0))


def mean_score(rows: Mapping[str, Mapping[str, Any]]) -> float:
    """Return the mean over spaces of the mean over repeats."""
    return float(np.mean([np.mean(row["scores"]) for row in rows.values()]))


def interval(rows: Mapping[str, Mapping[str, Any]]) -> tuple[float, float]:
    """Return the 95 % interval of the mean over spaces, by drawing repeats again."""
    rng = np.random.default_rng(0)
    drawn = [
        np.mean(rng.choice(row["scores"], (1000, len(row["scores"]))), axis=1)
        for row in rows.values()
    ]
    low, high = np.percentile(np.mean(drawn, axis=0), [2.5, 97.5])
    return float(low), float(high)


def draw(
    whole: Mapping[str, Mapping[str, Mapping[str, Any]]], order: Sequence[str], figure: Path
) -> None:
    """Draw the score over the budget, mean over spaces, and the mean of each search."""
    import matplotlib.pyplot as plt

    fig, (over_time, bars) = plt.subplots(1, 2, figsize=(11, 5.2), width_ratios=(1.2, 1))
    others = [label for label in order if not label.startswith(_OURS)]
    shown = [label for label in order if label.startswith(_OURS)] + others[:DRAWN]
    for label in (each for each in others[DRAWN:] if each != "random_sample"):
        share, curve = mean_curve(whole[label])
        over_time.plot(share, curve, color="0.85", linewidth=1, zorder=1)
    for label in shown:
        ours = label.startswith(_OURS)
        share, curve = mean_curve(whole[label])
        over_time.plot(share, curve, label=label, linewidth=2.2 if ours else 1.1, zorder=3 + ours)
    over_time.axhline(0, color="black", linewidth=1, linestyle=":")
    over_time.text(0.98, 0.01, "random search", ha="right", va="bottom", fontsize=8)
    over_time.set(
        xlabel="share of the budget", ylabel="0: random search, 1: optimum", ylim=(-0.5, 1)
    )
    over_time.legend(fontsize=8, loc="lower right")
    means = [mean_score(whole[label]) for label in reversed(order)]
    ends = np.array([interval(whole[label]) for label in reversed(order)]).T
    colors = ["tab:blue" if each.startswith(_OURS) else "0.7" for each in reversed(order)]
    reach = np.abs(ends - np.array(means))
    bars.barh(list(reversed(order)), means, color=colors, xerr=reach, error_kw={"linewidth": 0.8})
    bars.tick_params(axis="y", labelsize=7)
    bars.axvline(0, color="black", linewidth=0.8)
    bars.set(xlabel="score, mean over spaces", xlim=(max(-1.0, min(means)), 1))
    fig.tight_layout()
    fig.savefig(figure)
    plt.close(fig)


def mean_curve(
    rows: Mapping[str, Mapping[str, Any]],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return shares of the budget, and the mean over spaces of the curves."""
    curves = np.array([row["curve"] for row in rows.values()])
    return np.linspace(0, 1, curves.shape[1]), curves.mean(axis=0)
