"""Validity of models on a kind of kernel: published errors, and their own roofs.

Lemeire, Cornelis & Konstantinidis (Tables 10 to 12) print the error of eight models for fourteen
kernels of Rodinia on a Maxwell, a Pascal and a Turing GPU. `published_error` is their mean over the
GPUs and those kernels that have barriers, as the kernel at hand, or that have none. In Table 12 the
columns of WFG and the corrected MWP-CWP are exchanged (``docs/evidence/papers.md``),
which is undone here.
For GPUs of compute capability 1.x, Hong & Kim print 13.3 %, a mean over six kernels.
"""

from __future__ import annotations

from countperf.devices.parameters import DeviceParameters

_LEMEIRE = {
    "pipeline-rr": (0.247, 0.238),
    "volkov": (0.857, 0.344),
    "mwp-cwp-restated": (1.101, 0.309),
    "mwp-cwp-corrected": (0.821, 0.259),
    "wfg-original": (0.834, 0.883),
    "wfg-corrected": (0.419, 0.271),
    "gpumech-rr": (1.011, 1.224),
    "gpumech-gto": (0.641, 0.883),
}
"""Errors on kernels with barriers, and without."""

ROOF_IN_BYTES = frozenset({"roofline-bytes", "mwp-cwp", "tmm", "merpsys"})
"""Models that take no costs of instruction classes, so that peaks alone bound their times."""


def published_error(model: str, device: DeviceParameters, *, has_barriers: bool) -> float | None:
    """Return the mean error of a model that was published for such kernels and devices, if any."""
    capability = device.compute_capability
    if capability is None:
        return None
    known = {"mwp-cwp": (0.133, 0.133)} if capability.startswith("1.") else _LEMEIRE
    return known[model][0 if has_barriers else 1] if model in known else None
