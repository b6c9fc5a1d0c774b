"""The daily checks, the weekly report, `penstock top` and `penstock status --watch`."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from penstock.analytics.histogram import bucket_of, middle_of, quantile_of
from penstock.analytics.records import (
    Acknowledgments,
    ConsumerHour,
    DependencyHealth,
    FailingProcessor,
    GateKindHealth,
    KindDay,
    KindHealth,
    OverrideUsage,
    RunPoint,
    RunSeries,
    TableDay,
)
from penstock.analytics.review import checks
from penstock.analytics.review.markdown import markdown
from penstock.analytics.review.page import html_page
from penstock.analytics.review.records import WeeklyReview
from penstock.analytics.review.svg import nice_top
from penstock.cli.root import cli
from penstock.client import Client
from penstock.db.sqlite.store import SqliteStore
from penstock.runs.records import Submission
from tests.kits.client_harness import pipelines

MONDAY = datetime(2025, 11, 10, tzinfo=UTC)
HOSTILE = "<script>alert(1)</script>|[red]"


def acks(*counts: tuple[str, int, int]) -> Acknowledgments:
    """Acks and nacks of one hour."""
    return Acknowledgments(
        as_of=MONDAY, since=MONDAY,
        hours=[ConsumerHour(at=MONDAY, kind="processor", pipeline="p", name=name, acks=a, nacks=n)
               for name, a, n in counts],
    )  # fmt: skip


def health(same_day: int = 0, historical: int = 0, optional: int = 0, used: int = 0) -> Any:
    """Failures of one gate, and executions under overrides."""
    kinds = {"same_day": same_day, "historical": historical, "optional": optional}
    return DependencyHealth(
        as_of=MONDAY, since=MONDAY,
        kinds=[KindHealth(kind=kind, checks=200, failures=n, degraded=0, failure_rate=n / 200,
                          text="") for kind, n in kinds.items()],
        gates=[GateKindHealth(pipeline="nba", phase="analytics", processor=HOSTILE, kind=kind,
                              checks=200, failures=n, failure_rate=n / 200)
               for kind, n in kinds.items()],
        days=[KindDay(day=MONDAY, kind=kind, failures=n, gates=1) for kind, n in kinds.items()],
        problems=[], optional=[],
        overrides=[OverrideUsage(pipeline="nba", phase="analytics", processor=HOSTILE,
                                 executions=used, partitions=1, reason=HOSTILE, first_at=MONDAY,
                                 last_at=MONDAY)] if used else [],
    )  # fmt: skip


def series(completed: int, failed: int, late: int = 0) -> RunSeries:
    """Runs of one hour."""
    point = RunPoint(at=MONDAY, completed=completed, failed=failed, cancelled=0, started_late=late)
    return RunSeries(as_of=MONDAY, since=MONDAY, bucket=timedelta(hours=1), points=[point])


def two_days(historical: int) -> DependencyHealth:
    """Failures of today, and a failure of another kind yesterday."""
    other = KindDay(day=MONDAY - timedelta(days=1), kind="same_day", failures=1, gates=1)
    made: DependencyHealth = health(historical=historical)
    return structs.replace(made, days=[other, *made.days])


@pytest.mark.parametrize(
    ("check", "verdict"),
    [
        (checks.nack_check(acks(("a", 91, 9), ("b", 1, 8))), "OK"),
        (checks.nack_check(acks(("a", 100, 0), ("b", 90, 10))), "FAIL"),
        (checks.nack_check(acks()), "OK"),
        (checks.stuck_check([checks.Waiting("t", 1.9, "penstock detect")]), "OK"),
        (checks.stuck_check([checks.Waiting("t", 2.0, "penstock detect")]), "FAIL"),
        (checks.stuck_check([]), "OK"),
        (checks.historical_check(health(historical=8), health(historical=4)), "OK"),
        (checks.historical_check(health(historical=5), health(historical=5)), "FAIL"),
        (checks.historical_check(health(historical=5), health()), "FAIL"),
        (checks.historical_check(two_days(historical=8), health(historical=8)), "FAIL"),
        (checks.override_check(health(used=2).overrides), "OK"),
        (checks.override_check(health(used=3).overrides), "FAIL"),
        (checks.failure_check(series(96, 4)), "OK"),
        (checks.failure_check(series(95, 5)), "FAIL"),
        (checks.failure_check(series(0, 0)), "OK"),
        (checks.late_check(series(1, 0, 9)), "OK"),
        (checks.late_check(series(1, 0, 10)), "FAIL"),
        (checks.dead_letter_check(10), "OK"),
        (checks.dead_letter_check(11), "FAIL"),
    ],
)
def test_limits(check: Any, verdict: str) -> None:
    """Each check fails from its limit on, and then names a command."""
    assert check.verdict == verdict, check
    assert (check.command is None) == (verdict == "OK")


def test_thresholds() -> None:
    """Actions are what is above the thresholds of a week, not what reaches them."""
    at = checks.actions_of(checks.reviewed(health(100, 10, 50, 5), []))
    assert at == []
    above = checks.actions_of(checks.reviewed(health(101, 11, 51, 6), []))
    assert [(one.kind, one.count, one.threshold) for one in above] == [
        ("same_day", 101, 100), ("historical", 11, 10), ("optional", 51, 50), ("overrides", 6, 5),
    ]  # fmt: skip


def review(**counts: int) -> WeeklyReview:
    """A week with hostile names."""
    found = health(**counts)
    failing = [
        FailingProcessor(
            pipeline="nba", phase="raw", processor="box", runs=10, failures=2, failure_rate=0.2,
            failures_before=1, failure_rate_before=0.1,
        )
    ]  # fmt: skip
    rows = checks.reviewed(found, failing)
    table = TableDay(day=MONDAY, pipeline="nba", table=HOSTILE, completeness=92.0, band="usable",
                     gates=1)  # fmt: skip
    return WeeklyReview(
        as_of=MONDAY, since=MONDAY, days=7, pipeline=None, customer=HOSTILE,
        actions=checks.actions_of(rows), runs=series(5, 1).points, processors=rows,
        kinds=found.kinds, kind_days=found.days, problems=[], optional=[],
        overrides=found.overrides, reasons=[], failing=failing, slow=[], phases=[], tables=[table],
        end_to_end=[],
    )  # fmt: skip


def test_report() -> None:
    """The HTML is self-contained, well formed and escaped; Markdown tables keep their columns."""
    page = html_page(review(same_day=120, historical=12, used=6))
    assert "<script" not in page
    assert not re.search(r"(?:src|href)=|url\(|@import|https?://", page)
    body = page[page.index("<main>") : page.index("</main>") + len("</main>")]
    tree = ElementTree.fromstring(body.replace("<br>", "<br/>"))
    assert len(list(tree.iter("svg"))) == 3, "runs, missing tables, completeness"
    assert "120 same-day failures" in page
    text = markdown(review(same_day=120))
    assert "threshold 100" in text
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(widths) == 1, block
    assert "Nothing: no count" in html_page(review())


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=50), st.sampled_from([0.5, 0.95]))
def test_quantiles(durations: list[int], share: float) -> None:
    """A quantile of a histogram is within six percent of the exact one, or below a millisecond."""
    buckets: dict[int, int] = {}
    for one in durations:
        buckets[bucket_of(one)] = buckets.get(bucket_of(one), 0) + 1
    exact = sorted(durations)[max(1, -(-len(durations) * round(share * 100) // 100)) - 1]
    found = quantile_of(buckets, share)
    assert found is not None
    assert exact <= 1_000 or abs(found / exact - 1) < 0.06
    assert middle_of(bucket_of(exact)) == found


@given(st.floats(0, 1e9))
def test_scale(value: float) -> None:
    """The top of a scale is at or above the value, and not far above."""
    assert value <= nice_top(value) <= max(1, 2 * value)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with three runs that wait."""
    file = tmp_path_factory.mktemp("review") / "penstock.db"
    store = SqliteStore(file)
    store.migrate()
    client = Client(store)
    client.register(pipelines())
    for _ in range(3):
        client.runs.submit(Submission(pipeline="nightly", customer="acme"))
    store.close()
    return file


def test_commands(database: Path, tmp_path: Path) -> None:
    """Health exits with its verdict; the report is written; without a terminal there is a frame."""
    call = CliRunner().invoke
    words = ["--database-url", f"sqlite:{database}"]
    good = call(cli, [*words, "health"])
    assert good.exit_code == 0, good.output
    assert "9 checks, 0 failures." in good.output
    assert json.loads(call(cli, [*words, "health", "--json"]).stdout)["is_healthy"]
    made = call(cli, [*words, "report", "--week", "--file", str(tmp_path / "week.html")])
    assert made.exit_code == 0, made.output
    assert (tmp_path / "week.html").read_text().startswith("<!doctype html>")
    assert call(cli, [*words, "report", "--days", "3"]).stdout.startswith("# Report for 3 days")
    refused = call(cli, [*words, "report", "--file", str(tmp_path / "no" / "x.md")])
    assert refused.exit_code == 2
    shown = call(cli, [*words, "top"])
    assert shown.exit_code == 0, shown.output
    assert "3 ready" in shown.stdout
    assert "No run is in progress" in shown.stdout
    assert json.loads(call(cli, [*words, "top", "--json"]).stdout)["ready_runs"] == 3
    assert "ready" in call(cli, [*words, "status", "--watch"]).stdout


@pytest.mark.parametrize("command", ["top", "status --watch"])
def test_live(database: Path, command: str) -> None:
    """On a terminal it refreshes until q, and leaves the terminal as it was."""
    master, slave = pty.openpty()
    words = [sys.executable, "-m", "penstock", "--database-url", f"sqlite:{database}"]
    with subprocess.Popen(
        [*words, *command.split(), "--interval", "0.5"], stdin=slave, stdout=slave, stderr=slave,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"},
    ) as shown:  # fmt: skip
        os.close(slave)
        seen = b""
        while seen.count(b"ready") < 2:
            assert select.select([master], [], [], 60)[0], seen
            seen += os.read(master, 65536)
        os.write(master, b"c")
        os.write(master, b"q")
        while shown.poll() is None:
            if select.select([master], [], [], 0.05)[0]:
                try:
                    seen += os.read(master, 65536)
                except OSError:
                    break
        assert shown.wait(60) == 0
    os.close(master)
    assert b"\x1b[?1049l" in seen, "the alternate screen was left"
