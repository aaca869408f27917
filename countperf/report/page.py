"""A page of results: one HTML file with everything in it, to be read without a network."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from countperf.errors import MissingExtraError
from countperf.report.drawing import svg_text
from countperf.report.rows import Table
from countperf.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A part of a section."""

    title: str = ""  # a heading
    lines: tuple[str, ...] = ()  # paragraphs
    facts: tuple[tuple[str, str], ...] = ()  # names and values
    figures: tuple[tuple[str, Figure], ...] = ()  # descriptions and pictures
    table: Table | None = None  # a table


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section of a page."""

    title: str  # its heading
    blocks: tuple[Block, ...]  # what is in it

    @property
    def anchor(self) -> str:
        """Name by which links find the section."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page."""

    title: str  # its title
    lead: tuple[str, ...] = ()  # the most important lines
    sections: tuple[Section, ...] = ()  # the rest

    def to_html(self) -> str:
        """Return the page as an HTML document that needs no other file."""
        try:
            from jinja2 import Environment, PackageLoader
        except ImportError as error:
            raise MissingExtraError(
                "pages need Jinja2; install it with: pip install 'countperf[report]'",
                extra="report",
            ) from error
        numbers = count(1)
        sections = [
            {
                "title": section.title,
                "anchor": section.anchor,
                "blocks": [
                    {
                        "title": block.title,
                        "lines": block.lines,
                        "facts": block.facts,
                        "table": block.table,
                        "figures": [
                            (text, _with_own_names(svg_text(figure), f"f{next(numbers)}-"))
                            for text, figure in block.figures
                        ],
                    }
                    for block in section.blocks
                ],
            }
            for section in self.sections
            if section.blocks
        ]
        environment = Environment(
            loader=PackageLoader("countperf.report"),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        page = {"title": self.title, "lead": self.lead, "sections": sections}
        return environment.get_template("page.html").render(page=page, version=__version__)


def _with_own_names(svg: str, prefix: str) -> str:
    """Return a drawing whose names differ from those of all other drawings of a page."""
    svg = re.sub(r'\bid="', f'id="{prefix}', svg)
    svg = re.sub(r'(xlink:href|href)="#', rf'\1="#{prefix}', svg)
    return svg.replace("url(#", f"url(#{prefix}")
