"""Counts of generated kernels against an interpreter that runs their loops."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from tests.counting.random_kernels import DISTINCT, Campaign
from tests.strategies import KernelCase, kernels

_UNEVEN = "refused by countperf: UnsupportedExpressionError: kernel 'loopy_kernel': the address of "
"""Floors in subscripts along the lanes, drawn on purpose: they have no stride, by definition."""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Loopy on newer islpy
def test_counts_equal_what_the_interpreter_executes() -> None:
    campaign = Campaign()

    @settings(
        max_examples=DISTINCT * 9 // 5,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.filter_too_much,
            HealthCheck.data_too_large,
            HealthCheck.large_base_example,
        ],
    )
    @given(kernels())
    def check(case: KernelCase) -> None:
        if campaign.verdicts["equal"] < DISTINCT:
            wrong = campaign.add(case)
            assert not wrong, wrong

    check()
    compared = campaign.verdicts["equal"]
    assert compared >= DISTINCT, (campaign.verdicts, campaign.refusals)
    assert not any("LoopyIndexError" in text for text in campaign.refusals), campaign.refusals
    assert campaign.classed >= compared // 5
    refused = campaign.verdicts["refused by countperf"] - sum(
        times for text, times in campaign.refusals.items() if text.startswith(_UNEVEN)
    )
    assert refused <= compared // 20, campaign.refusals
