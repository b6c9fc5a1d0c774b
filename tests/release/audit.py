"""Compares the locked dependencies with published advisories, by pip-audit.

    python -m tests.release.audit --pip-audit .venv-release/bin/pip-audit

A package that could not be compared (no network, not on the index) is not counted as clean: if that
is every package, the audit is skipped, with the reason. One JSON line.
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


def verdict(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the figures of pip-audit's reports, one for each lock file."""
    audited, skipped, found = set(), {}, {}
    for one in (one for report in reports for one in report["dependencies"]):
        if "skip_reason" in one:
            skipped[one["name"]] = one["skip_reason"]
            continue
        audited.add(one["name"])
        for advisory in one["vulns"]:
            fixed = ", ".join(advisory["fix_versions"]) or "no version"
            found[advisory["id"]] = f"{one['name']} {one['version']}, fixed in {fixed}"
    figures: dict[str, Any] = {"audited": len(audited), "advisories": found}
    if skipped and not audited:
        reason = next(iter(skipped.values()))
        return {"skipped": f"none of {len(skipped)} packages could be compared: {reason}"}
    return {**figures, "not_audited": sorted(skipped)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Audit both lock files; return 1 if there is an advisory or a package was left out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pip-audit", default="pip-audit")
    given = parser.parse_args(arguments)
    reports = []
    for lock in LOCKS:
        options = ["--require-hashes", "--disable-pip", "--format", "json", "--progress-spinner"]
        command = [given.pip_audit, "-r", lock, *options, "off"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if not done.stdout.startswith("{"):
            reason = (done.stderr.strip().splitlines() or ["no output"])[-1][:200]
            sys.stdout.write(json.dumps({"skipped": f"pip-audit failed: {reason}"}) + "\n")
            return 0
        reports.append(json.loads(done.stdout))
    found = verdict(reports)
    sys.stdout.write(json.dumps(found) + "\n")
    return 1 if found.get("advisories") or found.get("not_audited") else 0


if __name__ == "__main__":
    sys.exit(main())
