"""Checks of a release: version and changelog, advisories, interpreters, the report of proofs."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hatchling.builders.sdist import SdistBuilder

from penstock.assembly.settings import ENCRYPTION_SUFFIX, KEY_SUFFIX
from tests.prove.proofs import PROOFS
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
        assert (found["not_audited"], found["partial"]) == (["b"], True)
        assert audit.exit_code(found) == 1

    @pytest.mark.parametrize(
        ("reported", "code", "figures"),
        [
            ("clean", 0, {"audited": 1, "advisories": {}, "not_audited": []}),
            ("nothing", 0, {"skipped": "pip-audit failed: no route"}),
            ("bad first", 1, {"advisories": {"PYSEC-1": "a 1, fixed in 2"}, "partial": True}),
            ("bad last", 1, {"advisories": {"PYSEC-1": "a 1, fixed in 2"}, "partial": True}),
            ("clean first", 1, {"advisories": {}, "partial": True}),
        ],
    )
    def test_a_lock_that_cannot_be_audited(
        self,
        reported: str,
        code: int,
        figures: dict[str, Any],
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        """The others are audited all the same: an advisory counts, a part is no whole."""
        bad = {**self.CLEAN, "vulns": [{"id": "PYSEC-1", "fix_versions": ["2"]}]}
        package = bad if reported.startswith("bad") else self.CLEAN
        report = json.dumps({"dependencies": [package]})
        chosen = {"bad first": audit.LOCKS[0], "clean first": audit.LOCKS[0],
                  "bad last": audit.LOCKS[-1]}.get(reported)  # fmt: skip

        def run_audit(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
            has_report = reported == "clean" or command[2] == chosen
            out, error = (report, "") if has_report else ("", "trace\nno route\n")
            return subprocess.CompletedProcess(command, int(package is bad), out, error)

        monkeypatch.setattr(subprocess, "run", run_audit)
        assert audit.main([]) == code
        found = json.loads(capsys.readouterr().out)
        assert {name: found.get(name) for name in figures} == figures
        assert ("skipped" in found) == (reported == "nothing")
        if "partial" in figures:
            assert set(found["failed_locks"]) == set(audit.LOCKS) - {chosen}

    def test_an_advisory(self) -> None:
        bad = {**self.CLEAN, "vulns": [{"id": "PYSEC-1", "fix_versions": ["2"]}]}
        found = audit.verdict([{"dependencies": [bad]}])
        assert found["advisories"] == {"PYSEC-1": "a 1, fixed in 2"}


def test_every_lock_is_audited() -> None:
    """Each file with hashes is compared with advisories, and names no address."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True)
    tracked = [name for name in listed.stdout.decode().splitlines() if (ROOT / name).is_file()]
    locks = {
        name
        for name in tracked
        if name.endswith((".txt", ".lock")) and "--hash=sha256:" in (ROOT / name).read_text("utf-8")
    }
    assert locks == set(audit.LOCKS)
    for name in locks:
        text = (ROOT / name).read_text("utf-8")
        assert "://" not in text
        assert all("==" in line for line in text.splitlines() if line and line[0] not in " #")


def test_interpreters() -> None:
    """One that does not exist is named with the reason; the running one is found."""
    (missing, here) = wheels.interpreters(f"python9.99 {sys.executable}")
    assert missing == ("python9.99", None, "there is no such interpreter on this machine")
    assert here[1:] == (sys.executable, ".".join(map(str, sys.version_info[:3])))


class TestSourceDistribution:
    """It has what is in Git, never a secret of the folder that it was built in."""

    @pytest.mark.parametrize("folder", ["deploy", "examples", "docs/operations", "tests", "src"])
    @pytest.mark.parametrize(
        "name",
        [
            ".env",
            ".env.local",
            f"penstock.db{KEY_SUFFIX}",
            f"state.sqlite3{KEY_SUFFIX}",
            f"penstock.db{ENCRYPTION_SUFFIX}",
        ],
    )
    def test_secrets_are_left_out(self, folder: str, name: str) -> None:
        """The build leaves them out also without the ignored files; Git ignores them as well."""
        config = SdistBuilder(str(ROOT)).config
        assert not config.include_path(f"{folder}/{name}")
        assert config.exclude_spec is not None
        assert config.exclude_spec.match_file(f"{folder}/{name}")
        ignored = ["git", "check-ignore", "--quiet", "--no-index", f"{folder}/{name}"]
        assert subprocess.run(ignored, cwd=ROOT, check=False).returncode == 0

    def test_templates_are_kept(self) -> None:
        """The settings of the systemd units have no secrets: they are templates."""
        config = SdistBuilder(str(ROOT)).config
        assert config.include_path("deploy/systemd/penstock.env")

    def test_rule(self) -> None:
        """Each file must be in Git or written by the build."""
        names = ["p-1/PKG-INFO", "p-1/src/a.py"]
        assert wheels.sdist_faults(names, ["src/a.py", "src/b.py"]) == []
        (fault,) = wheels.sdist_faults([*names, "p-1/deploy/.env"], ["src/a.py"])
        assert fault == "the source distribution has deploy/.env, which is not in Git"


class TestReportOfProofs:
    """A release needs a whole report, of one commit whose package is the released one."""

    COMMIT: ClassVar[str] = "| commit | {}, 2026-11-18 |\n"
    ROWS: ClassVar[str] = "".join(f"| {one.name} | holds | 1.0 | 0.1 | – |\n" for one in PROOFS)

    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        """A repository with a package in one commit."""
        (tmp_path / "src").mkdir()
        (tmp_path / "src" / "a.py").write_text("a = 1\n")
        self.git(tmp_path, "init", "-q")
        self.commit(tmp_path)
        return tmp_path

    def git(self, root: Path, *words: str) -> str:
        name = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        done = subprocess.run(
            ["git", *name, *words], cwd=root, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def commit(self, root: Path) -> str:
        self.git(root, "add", "-A")
        self.git(root, "commit", "-q", "-m", "Change")
        return self.git(root, "rev-parse", "--short=8", "HEAD")

    def outcome(self, root: Path, text: str, minutes: int = 90) -> str:
        page = root / "proof.md"
        page.write_text(f"| planned for | {minutes} minutes; took 87 |\n{text}" if text else "")
        return release.proof_outcome(page, root).why

    def test_a_whole_report(self, root: Path) -> None:
        text = self.COMMIT.format(self.git(root, "rev-parse", "--short=8", "HEAD")) + self.ROWS
        assert self.outcome(root, text) == ""
        (root / "README.md").write_text("later\n")
        self.commit(root)
        assert self.outcome(root, text) == ""
        assert "of 2 minutes" in self.outcome(root, text, minutes=2)

    def test_what_is_missing(self, root: Path) -> None:
        commit = self.COMMIT.format(self.git(root, "rev-parse", "--short=8", "HEAD"))
        assert "no report" in self.outcome(root, "")
        one = PROOFS[3].name
        for row in ("", f"| {one} | **fails** | 1.0 | 0.1 | – |\n"):
            rows = self.ROWS.replace(f"| {one} | holds | 1.0 | 0.1 | – |\n", row)
            assert self.outcome(root, commit + rows).endswith(f"hold: {one}")
        changed = commit.replace(" |\n", ", with uncommitted changes |\n")
        assert "one commit without changes" in self.outcome(root, changed + self.ROWS)

    def test_the_package_changed_since(self, root: Path) -> None:
        before = self.git(root, "rev-parse", "--short=8", "HEAD")
        (root / "src" / "a.py").write_text("a = 2\n")
        self.commit(root)
        why = self.outcome(root, self.COMMIT.format(before) + self.ROWS)
        assert why == f"src has changed since {before}, which was proved: run make prove"
        unknown = self.COMMIT.format("0123abcd")
        assert "src has changed" in self.outcome(root, unknown + self.ROWS)
