"""How much parameters matter: against densities of the library, and against what was made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from countperf.tuning.posterior import OWN, _Sampler, draws  # pyright: ignore[reportPrivateUsage]

FREEDOM, SQUARE = 4.0, 1.0


def _made(count: int = 24) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of four truth values the second one decides; return how alike variants are, and ratios."""
    random = np.random.default_rng(1)
    codes = random.integers(0, 2, (count, 4))
    similar = (codes[:, None, :] == codes[None, :, :]).astype(np.float64)
    return similar, 1.2 * codes[:, 1] + random.normal(0, 0.05, count)


def test_the_evidence_is_that_of_a_multivariate_student() -> None:
    similar, ratios = _made(6)
    base = 2 * np.ones((6, 6))
    among = np.array([similar[..., 0], similar.mean(axis=2)])
    sampler = _Sampler(similar, base, ratios, SQUARE, FREEDOM, np.random.default_rng(0))
    law: Any = stats.multivariate_t
    wanted = [
        law(
            np.zeros(6), SQUARE / FREEDOM * (base + (1 - own) * each + own * np.eye(6)), df=FREEDOM
        ).logpdf(ratios)
        for each, own in zip(among, OWN[1:3], strict=True)
    ]

    found = sampler.evidence(among, OWN[1:3])

    assert found[1] - found[0] == pytest.approx(wanted[1] - wanted[0], abs=1e-5)


def test_what_decides_is_told_from_what_does_not_matter() -> None:
    similar, ratios = _made()

    found = draws(similar, np.ones((24, 24)), ratios, prior_square=SQUARE, prior_freedom=FREEDOM)

    matters = np.mean([draw.matters for draw in found], axis=0)
    assert matters[1] > 2 * max(matters[[0, 2, 3]])
    assert np.mean([draw.own for draw in found]) < 0.2
