"""Sphinx configuration of the documentation; `scripts/docs` builds it."""

from __future__ import annotations

from jupyter_client.manager import KernelManager

from countperf import __version__

if hasattr(KernelManager, "transport_encryption"):  # else kernels of notebooks warn of plain text
    KernelManager.transport_encryption.default_value = "auto"

project = "countperf"
author = "The countperf developers"
release = version = __version__
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinxarg.ext",
    "sphinx_copybutton",
]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_timeout = 600  # a hang; machines may have much else to do
nb_execution_raise_on_error = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_rtype = False
default_role = "code"
exclude_patterns = ["_build", "jupyter_execute"]  # what a run before has left
html_theme = "furo"
html_title = f"countperf {release}"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
