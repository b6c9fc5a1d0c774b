"""Compares the locked dependencies with published advisories, by pip-audit.

    python -m tests.release.audit --pip-audit .venv-release/bin/pip-audit

A package or a lock file that could not be compared (no network, not on the index) is not counted as
clean: if that is everything, the audit is skipped, with the reason; if it is a part, the audit is
partial and fails. An advisory fails it whatever else was left out. One JSON line.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
LOCKS: Final = (
    "requirements.lock", "deploy/requirements.lock", "docs/requirements.txt",
    "deploy/requirements-build.lock", "deploy/requirements-test.txt",
    "deploy/requirements-release.txt",
)  # fmt: skip


def verdict(
    reports: Sequence[Mapping[str, Any]], failed: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the figures of pip-audit's reports, one for each lock file that it could read.

    failed: the other lock files, each with what pip-audit said.
    """
    audited, skipped, found = set(), {}, {}
    for one in (one for report in reports for one in report["dependencies"]):
        if "skip_reason" in one:
            skipped[one["name"]] = one["skip_reason"]
            continue
        audited.add(one["name"])
        for advisory in one["vulns"]:
            fixed = ", ".join(advisory["fix_versions"]) or "no version"
            found[advisory["id"]] = f"{one['name']} {one['version']}, fixed in {fixed}"
    if failed and not audited:
        return {"skipped": f"pip-audit failed: {next(iter(failed.values()))}"}
    if skipped and not audited:
        reason = next(iter(skipped.values()))
        return {"skipped": f"none of {len(skipped)} packages could be compared: {reason}"}
    figures: dict[str, Any] = {"audited": len(audited), "advisories": found}
    figures["not_audited"] = sorted(skipped.keys() - audited)
    if failed:
        figures["failed_locks"] = dict(failed)
    if failed or figures["not_audited"]:
        figures["partial"] = True
    return figures


def exit_code(figures: Mapping[str, Any]) -> int:
    """Return 1 if there is an advisory, or if only a part was compared."""
    return 1 if figures.get("advisories") or figures.get("partial") else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Audit every lock file; return 1 if there is an advisory or only a part was compared."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pip-audit", default="pip-audit")
    given = parser.parse_args(arguments)
    reports, failed = [], {}
    for lock in LOCKS:
        options = ["--require-hashes", "--disable-pip", "--format", "json", "--progress-spinner"]
        command = [given.pip_audit, "-r", lock, *options, "off"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if not done.stdout.startswith("{"):
            failed[lock] = (done.stderr.strip().splitlines() or ["no output"])[-1][:200]
            continue
        reports.append(json.loads(done.stdout))
    found = verdict(reports, failed)
    sys.stdout.write(json.dumps(found) + "\n")
    return exit_code(found)


if __name__ == "__main__":
    sys.exit(main())
