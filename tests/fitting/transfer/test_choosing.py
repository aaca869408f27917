"""The choice of kernels that ships."""

from __future__ import annotations

from pathlib import Path

from countperf.fitting.transfer import choice as choice_module
from countperf.fitting.transfer.choice import shipped_choice
from measurement_kernels.catalog import entry


def test_what_ships_can_be_measured() -> None:
    path = Path(choice_module.__file__).parent / "kernels.json"
    choice = shipped_choice()

    assert path.stat().st_size < 300_000
    assert len(choice.kernels) > 100
    assert {entry(each.name).purpose for each in choice.kernels} == {"measurement"}
    for each in choice.kernels[:40]:
        cases = [entry(each.name).case_at(**size.parameters) for size in each.sizes]
        assert [case.family for case in cases] == [each.family] * len(cases)
        bytes_in_all = [case.global_memory_bytes for case in cases]
        assert bytes_in_all == sorted(bytes_in_all)
