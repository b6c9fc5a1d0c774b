"""The report of a run as Markdown: date, commit, machine, a table, then each proof in words."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from penstock.testing.memory import memory_store
from penstock.testing.postgres.binaries import binaries_find
from tests.harness.chaos import OPTIONS
from tests.prove.proofs import Proof
from tests.prove.runner import ROOT, Outcome

LINES_MAX: Final = 14
FIGURES_MAX: Final = 6
_TEMPORARY: Final = re.compile(r"(?:/tmp|/var|/root|/home|/work|/dev/shm|/usr)/[^\s'\",:)]*")
"""Paths of the machine; a report names none."""
_ADDRESS: Final = re.compile(r"https?://(?!127\.0\.0\.1|localhost)[^\s'\"]+")
"""Addresses, such as of a package index: they belong to the machine too."""


@dataclass(frozen=True, slots=True)
class Line:
    """A proof, its command and its outcome."""

    proof: Proof
    command: Sequence[str]
    outcome: Outcome
    load: float | None = None
    """Load average of the machine when the proof started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """When, where and on what the proofs ran."""

    began: float
    """When the first proof began, in seconds since 1970; a continued run keeps that."""
    minutes: float
    commit: str
    machine: str
    versions: str


def this_run(began: float, minutes: float) -> Run:
    """Describe this machine and this tree."""
    return Run(
        began=began, minutes=minutes, commit=this_commit(), machine=_machine(), versions=_versions()
    )


def markdown(run: Run, lines: Sequence[Line]) -> str:
    """Return the report."""
    seconds = sum(line.outcome.seconds for line in lines)
    holds = sum(line.outcome.verdict == "holds" for line in lines)
    failed = [line.proof.name for line in lines if line.outcome.verdict == "fails"]
    skipped = [line.proof.name for line in lines if line.outcome.verdict == "not run"]
    parts = [
        "# Proof of reliability",
        "",
        "Written by `make prove`, which runs the proofs of [how Penstock is tested](../testing.md)",
        "at length: simulated histories, all orders of concurrent transactions in small scenarios",
        "and sampled orders in larger ones, crashes, faults under full load, fuzzing, isolation of",
        "customers.",
        "",
        _chaos_server(),
        "",
        "| run | |",
        "| --- | --- |",
        f"| began | {datetime.fromtimestamp(run.began, UTC):%Y-%m-%d %H:%M} UTC |",
        f"| planned for | {run.minutes:g} minutes; took {seconds / 60:.0f} |",
        f"| commit | {run.commit} |",
        f"| machine | {run.machine} |",
        f"| versions | {run.versions} |",
        f"| result | {holds} of {len(lines)} hold"
        + (f"; **fail**: {', '.join(failed)}" if failed else "; none fails")
        + (f"; not run: {', '.join(skipped)}" if skipped else "")
        + " |",
        f"| simulated histories | {_histories(lines):,} |",
        "",
        "| proof | verdict | minutes | load at its start | figures |",
        "| --- | --- | --- | --- | --- |",
        *(_row(line) for line in lines),
        "",
    ]
    for line in lines:
        parts += _section(line)
    return "\n".join(parts).rstrip() + "\n"


def _chaos_server() -> str:
    """Return the settings with which PostgreSQL runs in scenarios of chaos."""
    given = ", ".join(f"`{name}={value}`" for name, value in OPTIONS.items())
    return (
        "In the chaos proofs except failover, PostgreSQL writes durably and differs from its "
        f"defaults in {given}. So autovacuum works a little in every window instead of seconds in "
        "one of them, and not on tables that only grow."
    )


def _histories(lines: Sequence[Line]) -> int:
    """Count the simulated histories of all proofs."""
    figures = [one for line in lines for one in line.outcome.figures]
    return sum(int(one.get("seeds") or one.get("histories") or 0) for one in figures)


def _row(line: Line) -> str:
    out = line.outcome
    verdict = f"**{out.verdict}**" if out.verdict == "fails" else out.verdict
    load = "–" if line.load is None else f"{line.load:.1f}"
    minutes = f"{out.seconds / 60:.1f}"
    return f"| {line.proof.name} | {verdict} | {minutes} | {load} | {_figures(line)} |"


def _figures(line: Line) -> str:
    """Return the chosen figures of each line that has them."""
    texts = []
    for one in line.outcome.figures[:FIGURES_MAX]:
        shown = [f"{_words(name)} {_shown(one[name])}" for name in line.proof.shown if name in one]
        if shown:
            texts.append(", ".join(shown))
    return "; ".join(texts) or _clean(line.outcome.why)


def _section(line: Line) -> list[str]:
    out = line.outcome
    parts = [f"## {line.proof.name[:1].upper()}{line.proof.name[1:]}", "", line.proof.shows, ""]
    parts += ["```text", _command(line.command)]
    parts += [json.dumps(one) for one in out.figures[:LINES_MAX]]
    parts += ["```", ""]
    if out.verdict != "holds":
        label = "Fails" if out.verdict == "fails" else "Not run"
        parts += [f"{label}: {_clean(out.why)}.", ""]
    if out.verdict == "fails" and out.tail:
        tail = _clean(out.tail).replace("```", "'''").splitlines()[-LINES_MAX:]
        parts += ["```text", *tail, "```", ""]
    return [_clean(part) for part in parts]


def _command(command: Sequence[str]) -> str:
    return shlex.join(["python" if word == sys.executable else word for word in command])


def _words(name: str) -> str:
    return name.replace("_per_s", "/s").replace("_", " ")


def _shown(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "–" if value is None else str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3g}"


def _clean(text: str) -> str:
    """Return a text without the paths of this machine, and without the ends of table cells."""
    plain = _ADDRESS.sub("URL", text.replace(str(ROOT), "."))
    return _TEMPORARY.sub("PATH", plain).replace("|", "/")


def load_now() -> float | None:
    """Return the load average of the last minute, where the system has one."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def this_commit() -> str:
    """Return the commit of this tree and its date, and whether the tree differs from it."""
    command = ["git", "log", "-1", "--format=%h, %cs"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    changed = subprocess.run(
        ["git", "status", "--porcelain", "--untracked-files=no"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if found.returncode:
        return "unknown (not a git clone)"
    return found.stdout.strip() + (", with uncommitted changes" if changed.stdout.strip() else "")


def _machine() -> str:
    model = ""
    cpus = Path("/proc/cpuinfo")
    if cpus.exists():
        names = re.findall(r"^model name\s*:\s*(.+)$", cpus.read_text(), re.MULTILINE)
        model = names[0] if names else ""
    memory = Path("/proc/meminfo")
    size = ""
    if memory.exists():
        kilobytes = re.search(r"MemTotal:\s*(\d+)", memory.read_text())
        size = f", {int(kilobytes[1]) / 1e6:.0f} GB of memory" if kilobytes else ""
    return f"{model or platform.machine()}, {os.cpu_count()} cores{size}"


def _versions() -> str:
    server = subprocess.run(
        [str(binaries_find(None) / "postgres"), "--version"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    store = memory_store()
    sqlite = ".".join(map(str, store.sqlite_version))
    store.close()
    return (
        f"Python {platform.python_version()}, {server.stdout.strip()}, SQLite {sqlite}, "
        f"{platform.system()} {platform.release()}"
    )
