"""Labels for people of properties, and of features that formulas of models make.

``labels.toml`` has them; ``docs/glossary.md`` explains each under the resource that it is for.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

_Words = dict[str, dict[str, str]]


@cache
def read_labels() -> tuple[list[tuple[re.Pattern[str], str]], _Words]:
    """Return patterns of names with their labels, and the words of the fields of these."""
    content = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    words: _Words = content["words"]
    known = {field: "|".join(sorted(of, key=len, reverse=True)) for field, of in words.items()}

    def match_field(field: re.Match[str]) -> str:
        return f"(?P<{field[1]}>{known.get(field[1], '[a-z0-9]+')})"

    found = {name.replace(".", r"\."): label for name, label in content["labels"].items()}
    return [(re.compile(re.sub(r"{(\w+)}", match_field, n)), s) for n, s in found.items()], words


def read_meanings() -> dict[str, str]:
    """Return what the tables of the glossary say of each label, by label."""
    package = Path(__file__).parent.parent
    folders = package / "_docs", package.parent / "docs"  # of an installed package; of a checkout
    path = next(path for of in folders if (path := of / "glossary.md").is_file())
    rows = re.findall(r"^\| (.*?) \| (.*) \|$", path.read_text(encoding="utf-8"), re.MULTILINE)
    each = [(label, meaning) for labels, meaning in rows for label in labels.split("<br>")]
    return {name.strip("*`"): meaning.replace("*", "") for name, meaning in reversed(each)}


@cache
def plain_name(part: str) -> str:
    """Return the label of a part of a time; one that is not ours stays.

    Examples
    --------
    >>> plain_name("load_lines_out_of_reach")
    'loads of cache lines beyond the reach of the TLB'
    """
    patterns, words = read_labels()
    for pattern, label in patterns:
        if match := pattern.fullmatch(part):
            fields = match.groupdict().items()
            return label.format_map({field: words.get(field, {}).get(w, w) for field, w in fields})
    return part
