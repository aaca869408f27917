"""Progress and summary of a campaign on a rented GPU."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import NonNegativeFloat

from countperf.documents import Part, parse_json, validate
from countperf.measuring.characterization import Characterization
from countperf.models.metrics import Evaluation, RankingEvaluation
from countperf.store import read_file_text
from countperf.text import ShortRepr
from rental.stages import Options, read_checks, write_json


class _Attempt(Part):
    stage: str
    outcome: str
    seconds: NonNegativeFloat = 0.0
    said: str = ""


class _Progress(Part):
    finished: tuple[str, ...]
    log: tuple[_Attempt, ...]


@dataclass(slots=True, kw_only=True)
class Progress(ShortRepr):
    """Progress of the campaign, kept in ``campaign.json``."""

    finished: list[str] = field(default_factory=list[str])  # names of stages that are done for good
    # every attempt: stage, outcome, seconds, and the last line that it printed
    log: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    @classmethod
    def read(cls, folder: Path) -> Progress:
        """Read the file, if there is one."""
        path = folder / "campaign.json"
        if not path.exists():
            return cls()
        found = validate(_Progress, parse_json(read_file_text(path), path=path), path=path)
        log = [each.model_dump(exclude_unset=True) for each in found.log]
        return cls(finished=list(found.finished), log=log)

    def write(self, folder: Path) -> None:
        """Write the file."""
        write_json(folder / "campaign.json", asdict(self))


def summary(options: Options, progress: Progress) -> str:
    """Write what came out, from what is in the folder."""
    lines = [f"== {options.folder}"]
    for done in progress.log:
        seconds = f" in {done['seconds']} s" if "seconds" in done else ""
        lines.append(f"{done['stage']}: {done['outcome']}{seconds}: {done.get('said', '')}")
    checks = read_checks(options.folder / "checks.json")
    wrong = [f"  {name}: {verdict}" for name, verdict in checks.items() if verdict != "right"]
    if checks:
        lines += [f"kernels: {len(checks) - len(wrong)} right, {len(wrong)} not", *wrong[:20]]
    lines += _read_result(Characterization, options.folder / "characterization.json")
    for evaluation in sorted((options.folder / "fits").glob("*/evaluation.json")):
        parts = Evaluation.read_file(evaluation).by_purpose()
        lines += ["", *(part.lay_out().text() for name, part in parts.items() if name != "variant")]
        lines += _read_result(RankingEvaluation, evaluation.with_name("ranking.json"))
    return "\n".join(lines)


def _read_result(kind: type[Characterization | RankingEvaluation], path: Path) -> list[str]:
    return ["", kind.read_file(path).lay_out().text()] if path.exists() else []
