"""`python -m tests.prove`: run all proofs, or some, and write the report.

    python -m tests.prove --list
    python -m tests.prove --minutes 2 --only seeded,canary --json --no-report

A failure does not stop the others; the exit code is 1 if one failed. Outputs and results are kept
below `build/prove`. `--continue` runs only the proofs that have not held on this commit yet, and
reports all. The report of a part (`--only`) stays there too.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from penstock.core.clock import SECOND, SystemClock
from tests.prove import report, results, runner
from tests.prove.proofs import PROOFS, WHOLE, Proof

LOGS: Final = runner.ROOT / "build" / "prove"
REPORT: Final = runner.ROOT / "docs" / "operations" / "proof.md"
MINUTES_VARIABLE: Final = "PROVE_MINUTES"


def prove(proof: Proof, factor: float, patience: float = 1.0) -> report.Line:
    """Run one proof and judge its figures; `patience` multiplies its time limit."""
    command, load = list(proof.command(factor)), report.load_now()
    if not proof.is_present:
        why = f"{proof.needs} is not present"
        return report.Line(proof, command, runner.Outcome(verdict="not run", seconds=0, why=why))
    log = LOGS / f"{results.file_stem(proof.name)}.log"
    timeout = proof.timeout(factor) * patience
    outcome = runner.run(command, timeout, log, proof.environment(factor))
    if outcome.verdict == "holds":
        broken = [text for bar in proof.bars for text in bar.broken_by(outcome.figures)]
        if broken:
            outcome = dataclasses.replace(outcome, verdict="fails", why="; ".join(broken))
    return report.Line(proof, command, outcome, load)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen proofs; return 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.prove", description=__doc__)
    parser.add_argument(
        "--minutes",
        type=float,
        default=float(os.environ.get(MINUTES_VARIABLE, WHOLE)),
        help="length of the whole run, which scales every proof; default: 90",
    )
    parser.add_argument("--only", help="parts of names, by comma, such as chaos,seeded")
    parser.add_argument("--list", action="store_true", help="list the proofs and exit")
    parser.add_argument("--json", action="store_true", help="print a JSON line for each proof")
    parser.add_argument("--report", type=Path, help="where to write the report")
    parser.add_argument(
        "--continue",
        dest="is_continued",
        action="store_true",
        help="skip proofs that have held on this commit, and report their results",
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=1.0,
        help="factor of the time limits, for a machine that is busy with other work; default: 1",
    )
    parser.add_argument("--no-report", action="store_true", help="write no report")
    given = parser.parse_args(arguments)
    factor = given.minutes / WHOLE
    words = given.only.split(",") if given.only else [""]
    chosen = [proof for proof in PROOFS if any(word in proof.name for word in words)]
    if not chosen:
        parser.error(f"no proof matches {given.only}; see --list")
    page: Path = given.report or (LOGS / REPORT.name if given.only else REPORT)
    if given.list:
        for proof in chosen:
            sys.stdout.write(f"{proof.name:28} {proof.minutes * factor:5.1f} min  {proof.shows}\n")
        return 0
    runner.adopt_orphans()
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(1)
    )  # ends the running proof with its children
    began = SystemClock().now() / SECOND
    run = report.this_run(began, given.minutes)
    lines = []
    for proof in chosen:
        line = None
        if given.is_continued:
            line = results.find(LOGS, run.commit, proof, list(proof.command(factor)))
        if line is None:
            sys.stderr.write(f"{proof.name} …\n")
            line = prove(proof, factor, given.patience)
            results.save(LOGS, run.commit, line)
        run = dataclasses.replace(run, began=min(run.began, results.began_at(LOGS, line)))
        lines.append(line)
        _say(line, is_json=given.json)
        if not given.no_report:  # after each proof, so that an interrupted run has a report too
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(report.markdown(run, lines), encoding="utf-8")
    failed = [line.proof.name for line in lines if line.outcome.verdict == "fails"]
    sys.stderr.write(f"{len(lines) - len(failed)} of {len(lines)} did not fail")
    sys.stderr.write(f"; failed: {', '.join(failed)}\n" if failed else "\n")
    return 1 if failed else 0


def _say(line: report.Line, *, is_json: bool) -> None:
    out = line.outcome
    if is_json:
        found = {
            "proof": line.proof.name, "verdict": out.verdict, "seconds": round(out.seconds, 1),
            "why": out.why, "killed": out.killed, "figures": out.figures,
        }  # fmt: skip
        sys.stdout.write(json.dumps(found) + "\n")
    else:
        why = f" ({out.why})" if out.why else ""
        sys.stdout.write(f"{line.proof.name}: {out.verdict}{why}, {out.seconds:.0f} s\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
