"""Checks of a release: version and changelog, advisories, interpreters, the report of proofs."""

from __future__ import annotations

import sys
import tomllib
from typing import Any

import pytest

from tests.release import __main__ as release
from tests.release import audit, version, wheels
from tests.release.wheels import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
OPEN = "# Changelog\n\n## Unreleased\n\n### Added\n\n- A thing.\n"
DONE = "# Changelog\n\n## Unreleased\n\n## 1.2.0 - 2026-11-17\n\n### Added\n\n- A thing.\n"


class TestVersion:
    """The version and the changelog say the same."""

    def test_this_tree(self) -> None:
        changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
        assert version.version_faults(PROJECT["version"], changelog) == []
        assert version.python_faults(PROJECT) == []

    @pytest.mark.parametrize(
        ("number", "changelog", "fault"),
        [
            ("1.2.0.dev0", OPEN, None),
            ("1.2.0", DONE, None),
            ("1.2.0rc1", DONE.replace("1.2.0", "1.2.0rc1"), None),
            ("1.2", OPEN, "is not a version"),
            ("1.2.0", OPEN, "Unreleased has lines"),
            ("1.3.0", DONE, "newest section"),
            ("1.2.0.dev0", OPEN.replace("Unreleased", "Next"), "does not begin with Unreleased"),
            ("1.2.0.dev0", OPEN.replace("Added", "News"), "unknown heading"),
            ("1.2.0", DONE.replace(" - 2026-11-17", ""), "is not VERSION - YYYY-MM-DD"),
        ],
    )
    def test_rules(self, number: str, changelog: str, fault: str | None) -> None:
        found = version.version_faults(number, changelog)
        assert found == [] if fault is None else any(fault in one for one in found)

    def test_versions_of_python(self) -> None:
        gap = {**PROJECT, "classifiers": [c for c in PROJECT["classifiers"] if "3.12" not in c]}
        assert any("leave out" in fault for fault in version.python_faults(gap))
        assert version.python_faults({**PROJECT, "requires-python": ">=3.9"}) == ["requires-python"]


class TestAudit:
    """A package that could not be compared is never counted as clean."""

    CLEAN: dict[str, Any] = {"name": "a", "version": "1", "vulns": []}  # noqa: RUF012
    UNKNOWN: dict[str, Any] = {"name": "b", "skip_reason": "no network"}  # noqa: RUF012

    def test_clean(self) -> None:
        found = audit.verdict([{"dependencies": [self.CLEAN]}])
        assert found == {"audited": 1, "advisories": {}, "not_audited": []}

    def test_nothing_compared(self) -> None:
        found = audit.verdict([{"dependencies": [self.UNKNOWN]}])
        assert found == {"skipped": "none of 1 packages could be compared: no network"}

    def test_partly_compared(self) -> None:
        found = audit.verdict([{"dependencies": [self.CLEAN, self.UNKNOWN]}])
        assert found["not_audited"] == ["b"]

    def test_an_advisory(self) -> None:
        bad = {**self.CLEAN, "vulns": [{"id": "PYSEC-1", "fix_versions": ["2"]}]}
        found = audit.verdict([{"dependencies": [bad]}])
        assert found["advisories"] == {"PYSEC-1": "a 1, fixed in 2"}


def test_interpreters() -> None:
    """One that does not exist is named with the reason; the running one is found."""
    (missing, here) = wheels.interpreters(f"python9.99 {sys.executable}")
    assert missing == ("python9.99", None, "there is no such interpreter on this machine")
    assert here[1:] == (sys.executable, ".".join(map(str, sys.version_info[:3])))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "there is no report: run make prove"),
        ("| planned for | 60 minutes; took 61 | none fails", ""),
        (
            "| planned for | 60 minutes; took 61 | **fail**: x",
            "the report names a proof that fails",
        ),
        ("| planned for | 2 minutes; none fails", "the report is of 2 minutes: run make prove"),
    ],
)
def test_report_of_proofs(text: str, why: str, tmp_path: Any, monkeypatch: Any) -> None:
    """A release needs a whole report without a failure."""
    (tmp_path / "docs" / "operations").mkdir(parents=True)
    (tmp_path / "docs" / "operations" / "proof.md").write_text(text)
    monkeypatch.setattr(release, "ROOT", tmp_path)
    assert release.proof_outcome().why == why
