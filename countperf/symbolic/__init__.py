"""Exact symbolic counting of integer points; the only user of islpy."""

from __future__ import annotations

from countperf.symbolic.versions import check_versions

check_versions()
