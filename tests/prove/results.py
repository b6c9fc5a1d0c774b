"""Results of proofs, one file each, so that an interrupted run can be continued."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from pathlib import Path

from tests.prove.proofs import Proof
from tests.prove.report import Line
from tests.prove.runner import Outcome


def file_stem(name: str) -> str:
    """Return the name of a proof as it appears in file names."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower())


def save(folder: Path, commit: str, line: Line) -> None:
    """Store the result of a proof with the commit that it is about."""
    folder.mkdir(parents=True, exist_ok=True)
    stored = {
        "commit": commit,
        "command": list(line.command),
        "load": line.load,
        "outcome": dataclasses.asdict(line.outcome),
    }
    (folder / f"{file_stem(line.proof.name)}.json").write_text(json.dumps(stored), "utf-8")


def began_at(folder: Path, line: Line) -> float:
    """Return when the stored result of a proof began, in seconds since 1970."""
    path = folder / f"{file_stem(line.proof.name)}.json"
    return path.stat().st_mtime - line.outcome.seconds


def find(folder: Path, commit: str, proof: Proof, command: Sequence[str]) -> Line | None:
    """Return the stored result of a proof that held with this command on this commit."""
    path = folder / f"{file_stem(proof.name)}.json"
    if not path.exists():
        return None
    stored = json.loads(path.read_text("utf-8"))
    outcome = Outcome(**stored["outcome"])
    if (stored["commit"], stored["command"], outcome.verdict) != (commit, list(command), "holds"):
        return None
    return Line(proof, command, outcome, stored["load"])
