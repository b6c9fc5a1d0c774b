"""The driver of `make prove`: verdicts, time limits, bars, the report and its table."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest

from tests.harness import chaos, chaos_load, throughput, upgrade
from tests.prove import report, results, runner
from tests.prove.__main__ import main, prove
from tests.prove.proofs import PROOFS, SEEDS, WHOLE, Bar, Proof, zero
from tests.tidy import files, retired, words


def shell(script: str) -> list[str]:
    return [sys.executable, "-c", script]


def proof(script: str, *bars: Bar, minutes: float = 1) -> Proof:
    return Proof(name="a proof", shows="It shows.", minutes=minutes,
                 command=lambda _: shell(script), bars=bars, shown=("lost",))  # fmt: skip


FIGURES = 'import json; print("noise"); print(json.dumps({"lost": %d}))'


class TestRunner:
    """Commands end, and leave nothing behind."""

    @pytest.mark.parametrize(
        ("code", "figures", "late", "verdict"),
        [
            (0, [{"lost": 0}], None, "holds"),
            (1, [{"lost": 0}], None, "fails"),
            (0, [{"lost": 0}], 60.0, "fails"),
            (0, [{"skipped": "no root"}], None, "not run"),
            (0, [{"skipped": "no root"}, {"lost": 0}], None, "holds"),
            (0, [{"passed": 1, "skipped": 0}], None, "holds"),
        ],
    )
    def test_verdicts(
        self, code: int, figures: list[dict[str, object]], late: float | None, verdict: str
    ) -> None:
        assert runner.judged(code, figures, late)[0] == verdict

    def test_figures_between_other_lines(self, tmp_path: Path) -> None:
        found = runner.run(shell(FIGURES % 3), 60, tmp_path / "out.log")
        assert (found.verdict, found.figures) == ("holds", [{"lost": 3}])

    def test_a_command_without_figures(self, tmp_path: Path) -> None:
        log = tmp_path / "out.log"
        assert runner.run(shell("print(1)"), 60, log).why == "it printed no figures"
        assert runner.run(shell("print(1)"), 60, log, needs_figures=False).verdict == "holds"

    def test_processes_that_ran_before_are_left_alone(self, tmp_path: Path) -> None:
        with subprocess.Popen(shell("input()"), stdin=subprocess.PIPE) as other:
            runner.run(shell(FIGURES % 0), 60, tmp_path / "out.log")
            assert other.poll() is None
            other.communicate(b"\n")

    def test_a_command_that_hangs_is_killed_with_its_children(self, tmp_path: Path) -> None:
        """Also a grandchild in a session of its own, whose parent is gone."""
        note = tmp_path / "pid"
        script = (
            "import subprocess, sys, time\n"
            "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],"
            " start_new_session=True)\n"
            f"open({str(note)!r}, 'w').write(str(p.pid))\n"
            "time.sleep(600)"
        )
        code = (
            "from pathlib import Path\n"
            "from tests.prove import runner\n"
            "runner.END_SECONDS = 1\n"
            "runner.adopt_orphans()\n"
            f"found = runner.run({shell(script)!r}, 3, Path({str(tmp_path / 'out.log')!r}))\n"
            "assert (found.verdict, found.killed) == ('fails', 1), found"
        )
        done = runner.run([*shell(code)], 60, tmp_path / "outer.log")
        assert "it printed no figures" in done.why, done.tail
        assert not Path(f"/proc/{note.read_text()}").exists() or os.name != "posix"


class TestBars:
    """A figure that is out of bounds or missing fails a proof."""

    def test_bounds(self) -> None:
        assert Bar("lost", "at most", 0).broken_by([{"lost": 0}, {"other": 1}]) == []
        assert Bar("lost", "at most", 0).broken_by([{"lost": 2}]) == [
            "lost is 2, expected at most 0"
        ]
        assert Bar("recovery", "at least", 0.95).broken_by([{"recovery": 0.9}])
        assert zero("lost")[0].broken_by([{}]) == ["the figure lost is missing"]

    @pytest.mark.parametrize(("lost", "verdict"), [(0, "holds"), (1, "fails")])
    def test_a_proof(self, lost: int, verdict: str) -> None:
        assert prove(proof(FIGURES % lost, *zero("lost")), 1).outcome.verdict == verdict

    def test_a_part_that_does_not_exist(self) -> None:
        absent = Proof(name="x", shows="", minutes=1, command=lambda _: [], needs="tests.nowhere")
        assert prove(absent, 1).outcome.why == "tests.nowhere is not present"


class TestTable:
    """Every proof can be run, and the time of a whole run holds them all."""

    def test_a_whole_run(self) -> None:
        assert WHOLE - 10 <= sum(one.minutes for one in PROOFS) <= WHOLE
        assert SEEDS["queue"] + SEEDS["bus"] >= 20_000

    def test_overload_returns_to_normal(self) -> None:
        """Latency after the overload has bars, and one that could not be measured fails."""
        (overload,) = [one for one in PROOFS if one.name == "overload"]
        good = {"lost": 0, "doubled": 0, "without_retry_after": 0, "again_refused": 0,
                "again_p50_ratio": 1.1, "again_p99_ratio": 2.6}  # fmt: skip
        late = {**good, "again_p50_ratio": 2.1, "again_p99_ratio": None}
        assert not [fault for bar in overload.bars for fault in bar.broken_by([good])]
        assert len([fault for bar in overload.bars for fault in bar.broken_by([late])]) == 2

    def test_commands(self) -> None:
        for one in PROOFS:
            for factor in (0.02, 1.0):
                words = list(one.command(factor))
                assert words[:2] == [sys.executable, "-m"]
                module = words[2]
                assert one.needs or importlib.util.find_spec(module), module
                assert all(Path(runner.ROOT, w).exists() for w in words if w.startswith("tests/"))

    def test_names_are_unique(self) -> None:
        assert len({one.name for one in PROOFS}) == len(PROOFS)

    def test_list(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["--list", "--only", "chaos"]) == 0
        assert len(capsys.readouterr().out.splitlines()) == len(chaos.SCENARIOS) + 1


class TestReport:
    """The report says what failed, in words, without paths of the machine."""

    def test_words(self) -> None:
        tail = f"{runner.ROOT}/x.py\n/tmp/y"
        outcome = runner.Outcome(
            verdict="fails", seconds=61, figures=[{"lost": 1_234}], why="lost is 1234", tail=tail
        )
        line = report.Line(proof("", minutes=1), ["python", "-m", "x"], outcome, 0.25)
        run = report.Run(began=0.0, minutes=60, commit="c", machine="m", versions="v")
        text = report.markdown(run, [line])
        assert "| a proof | **fails** | 1.0 | 0.2 | lost 1,234 |" in text
        assert "0 of 1 hold; **fail**: a proof" in text
        assert "| began | 1970-01-01 00:00 UTC |" in text
        assert str(runner.ROOT) not in text
        assert "/tmp" not in text
        settings = [f"`{name}={value}`" for name, value in chaos.OPTIONS.items()]
        assert all(one in text for one in settings), "the server of the chaos proofs is described"

    def test_rules_of_documents(self) -> None:
        """Whatever the proofs print, the page keeps the rules that tests enforce on documents."""
        tail = f"Traceback\n  File {runner.ROOT}/x.py\nhttps://index.example/simple /tmp/a/b | c"
        lines = [
            report.Line(one, list(one.command(1.0)), runner.Outcome(
                verdict="fails", seconds=1, figures=[dict.fromkeys(one.shown, 1)], why="/tmp/x",
                tail=tail))
            for one in PROOFS
        ]  # fmt: skip
        text = report.markdown(report.this_run(0.0, 60), lines)
        assert words.uses("docs/operations/proof.md", text, retired.RULES) == []
        assert files.text_faults("docs/operations/proof.md", text) == []
        assert "index.example" not in text


class TestChaosAccount:
    """The account of a chaos scenario finds what is lost, doubled or partial."""

    HISTORY = "ask 1 \nok 1 \nask 2 \nunknown 2 StoreUnavailable\nask 3 \nok 3 \n"

    def test_exact(self) -> None:
        found = chaos_load.account(self.HISTORY, [("b1", 5, 5, 0, 0), ("b3", 5, 5, 0, 1)], 5)
        wrong = {name: found[name] for name in ("lost", "doubled", "partial", "unasked")}
        assert wrong == {"lost": 0, "doubled": 0, "partial": 0, "unasked": 0}
        assert (found["accepted"], found["retried"], found["unanswered_batches"]) == (10, 1, 1)
        assert found["errors"] == {"StoreUnavailable": 1}

    @pytest.mark.parametrize(
        ("rows", "name", "count"),
        [
            ([("b1", 5, 5, 0, 0)], "lost", 5),
            ([("b1", 5, 4, 0, 0), ("b3", 5, 5, 0, 0)], "lost", 1),
            ([("b1", 5, 5, 2, 0), ("b3", 5, 5, 0, 0)], "doubled", 2),
            ([("b1", 6, 6, 0, 0), ("b3", 5, 5, 0, 0)], "doubled", 1),
            ([("b1", 5, 5, 0, 0), ("b2", 3, 3, 0, 0), ("b3", 5, 5, 0, 0)], "partial", 1),
            ([("b1", 5, 5, 0, 0), ("b3", 5, 5, 0, 0), ("b9", 5, 5, 0, 0)], "unasked", 1),
        ],
    )
    def test_wrong(self, rows: list[tuple[str, int, int, int, int]], name: str, count: int) -> None:
        assert chaos_load.account(self.HISTORY, rows, 5)[name] == count

    def test_rates(self) -> None:
        samples = [(0.0, 0), (1.0, 100), (2.0, 200), (6.0, 200), (7.0, 300), (8.0, 400), (9.0, 500)]
        assert throughput.rates(samples, 0, 2) == [100, 100]
        assert throughput.mean_rate(samples, 2, 6) == 0
        stopped = [(0, 0), (1, 100), (2, 200), (17, 200)]
        assert throughput.baseline_rates(stopped, [0, 1, 2.5]) == [100, 100], "without the fault"
        assert throughput.recovery_seconds(samples, 6, 9, 100) == 0
        assert throughput.recovery_seconds(samples, 6, 9, 200) is None

    def test_bars(self) -> None:
        good = {"scenario": "idle-in-transaction", "lost": 0, "doubled": 0, "partial": 0,
                "unasked": 0, "recovery": 0.97, "during": 0.72}  # fmt: skip
        assert chaos.faults_of(good) == []
        assert len(chaos.faults_of({**good, "recovery": 0.9, "during": 0.6, "lost": 1})) == 3
        alone = {**good, "scenario": "idle-in-transaction-alone", "recovery": 0.9}
        assert chaos.faults_of(alone) == [], "the drift of the machine is in it"
        assert len(chaos.faults_of({**alone, "during": 0.69})) == 1


def test_only_and_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A failing proof does not stop the others, and the exit code tells."""
    table = (proof(FIGURES % 1, *zero("lost")), proof(FIGURES % 0, *zero("lost")))
    monkeypatch.setattr("tests.prove.__main__.PROOFS", table)
    monkeypatch.setattr(runner, "adopt_orphans", lambda: None)
    assert main(["--json", "--no-report"]) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["verdict"] for line in lines] == ["fails", "holds"]


class TestContinued:
    """A continued run repeats what failed, what changed and what ran on another commit."""

    def test_what_is_taken(self, tmp_path: Path) -> None:
        one, command = proof(FIGURES % 0), ["python", "-m", "x"]
        held = runner.Outcome(verdict="holds", seconds=61, figures=[{"lost": 0}])
        results.save(tmp_path, "c1", report.Line(one, command, held, 1.5))
        found = results.find(tmp_path, "c1", one, command)
        assert found == report.Line(one, command, held, 1.5)
        assert results.find(tmp_path, "c2", one, command) is None
        assert results.find(tmp_path, "c1", one, [*command, "--seeds", "9"]) is None
        failed = runner.Outcome(verdict="fails", seconds=1)
        results.save(tmp_path, "c1", report.Line(one, command, failed, 1.5))
        assert results.find(tmp_path, "c1", one, command) is None

    def test_a_continued_run(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        note = tmp_path / "count"
        script = f"open({str(note)!r}, 'a').write('x');" + FIGURES % 0
        monkeypatch.setattr("tests.prove.__main__.PROOFS", (proof(script, *zero("lost")),))
        monkeypatch.setattr("tests.prove.__main__.LOGS", tmp_path / "logs")
        monkeypatch.setattr(report, "this_commit", lambda: "c1")
        monkeypatch.setattr(runner, "adopt_orphans", lambda: None)
        path = tmp_path / "proof.md"
        for _ in range(2):
            assert main(["--continue", "--report", str(path)]) == 0
            os.utime(tmp_path / "logs" / "a-proof.json", (86_400, 86_400))
        assert note.read_text() == "x"
        assert "1 of 1 hold" in path.read_text()
        assert "| began | 1970-01-0" in path.read_text()  # when the result was stored, not found
        assert main(["--report", str(path)]) == 0
        assert note.read_text() == "xx"
        capsys.readouterr()

    def test_a_part_does_not_replace_the_report(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        table = (proof(FIGURES % 0, *zero("lost")),)
        monkeypatch.setattr("tests.prove.__main__.PROOFS", table)
        monkeypatch.setattr("tests.prove.__main__.LOGS", tmp_path / "logs")
        monkeypatch.setattr("tests.prove.__main__.REPORT", tmp_path / "proof.md")
        monkeypatch.setattr(runner, "adopt_orphans", lambda: None)
        assert main(["--only", "a proof"]) == 0
        assert not (tmp_path / "proof.md").exists()
        assert "1 of 1 hold" in (tmp_path / "logs" / "proof.md").read_text()
        assert main([]) == 0
        assert (tmp_path / "proof.md").exists()
        capsys.readouterr()


class TestUpgrade:
    """The proof of an upgrade says when it could not be run, and when it showed nothing."""

    GOOD: ClassVar[dict[str, int]] = {
        "failed": 0, "lost": 0, "doubled": 0, "migrations": 8, "accepted": 3_000,
        "old_on_new_schema": 300, "new_beside_old": 100,
    }  # fmt: skip

    def test_a_clone_without_the_previous_release(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(upgrade.Absent, match="not in this clone"):
            upgrade.unpack("0" * 40, tmp_path)
        assert upgrade.main(["--from", "0" * 40]) == 0
        assert "not in this clone" in json.loads(capsys.readouterr().out)["skipped"]

    def test_figures(self) -> None:
        assert upgrade.faults_of(self.GOOD) == []
        assert upgrade.faults_of({**self.GOOD, "lost": 2}) == ["lost is 2"]
        assert upgrade.faults_of({**self.GOOD, "old_on_new_schema": 0})
