"""A page of results: one HTML file with everything in it, to be read without a network."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from countperf.errors import MissingExtraError
from countperf.report.drawing import svg_text
from countperf.report.rows import Printed
from countperf.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Part = Printed | tuple[str, "Figure"]
"""A result, or a picture with its description."""

_MOST_ROWS = 10_000
_INCHES = 5.2  # so narrow that words of figures can be read on a phone


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page."""

    title: str
    lead: Sequence[str]  # the most important lines
    sections: Mapping[str, Sequence[Part]]  # by heading; empty ones are left out

    def to_html(self) -> str:
        """Return the page as an HTML document that needs no other file."""
        try:
            from jinja2 import Environment, PackageLoader
        except ImportError as error:
            raise MissingExtraError(
                "pages need Jinja2; install it with: pip install 'countperf[report]'",
                extra="report",
            ) from error
        sections = [
            (
                title,
                re.sub(r"[^a-z0-9]+", "-", title.lower()),
                [_html(part, f"s{section}p{position}-") for position, part in enumerate(parts)],
            )
            for section, (title, parts) in enumerate(self.sections.items())
            if parts
        ]
        environment = Environment(
            loader=PackageLoader("countperf.report"),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        page = {"title": self.title, "lead": self.lead, "sections": sections}
        return environment.get_template("page.html").render(page=page, version=__version__)


def _html(part: Part, prefix: str) -> str:
    """Return a part; the names in a drawing differ from those of all others of the page."""
    if isinstance(part, Printed):
        return f'<div class="wide">{part.html(_MOST_ROWS)}</div>'
    text, figure = part
    figure.set_size_inches(_INCHES, figure.get_size_inches()[1])
    svg = re.sub(r'\bid="', f'id="{prefix}', svg_text(figure))
    svg = re.sub(r'(xlink:href|href)="#', rf'\1="#{prefix}', svg)
    svg = svg.replace("url(#", f"url(#{prefix}")
    return f'<figure role="img" aria-label="{escape(text)}">{svg}</figure>'
