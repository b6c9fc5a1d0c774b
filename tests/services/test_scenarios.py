"""Six mornings of an operator, from the data to the screen, on both engines.

Each: what the gate decided and what became of the message, who was alerted, what the log tables
say, and what `explain` tells and offers. The rules alone are tried in
tests/unit/core/test_gate_scenarios, rings in test_rings.
"""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Pipeline, historical, optional, same_day
from penstock.client.people import Approval
from penstock.core.clock import HOUR, MINUTE
from penstock.core.record import loads
from penstock.core.verdict import Decision
from penstock.store.api import Store
from penstock.testing.clock import VirtualClock
from tests.cascade_kit import DAY, Stage, work


class Morning:
    """`raw`, then `analytics` with these needs; `raw` is complete and the gate was asked."""

    def __init__(self, store: Store, clock: VirtualClock, mode: str, *needs: Any) -> None:
        made = Pipeline("nba", partition="day", warehouse="w")
        raw = made.phase("raw")
        raw.processor("box")(work)
        made.phase("analytics", after=raw).processor("players", needs=list(needs))(work)
        self.stage = Stage(store, clock, made)
        self.clock = clock
        self.mode = mode

    def begin(self) -> None:
        """The flow comes to the gate."""
        self.opened = self.stage.open(mode=self.mode)
        self.stage.complete("box")
        self.stage.step()

    @property
    def decision(self) -> Decision:
        """The newest decision about `analytics`."""
        rows = self.stage.detail(self.opened).decisions
        return loads(Decision, next(row.decision for row in rows if row.phase == "analytics"))

    @property
    def word(self) -> tuple[str, str, str]:
        """Verdict, status and what became of the message."""
        found = self.decision
        return str(found.verdict), str(found.status), str(found.acknowledgement)

    @property
    def alerts(self) -> list[tuple[Any, ...]]:
        """(rule, severity, state) of everything that was alerted, oldest first."""
        found = self.stage.sql("SELECT rule, severity, state FROM alerts ORDER BY alert_id")
        return [tuple(row) for row in found]

    def checks(self) -> list[tuple[Any, ...]]:
        """The newest line about each table: (table, found, status, verdict)."""
        rows = self.stage.sql(
            "SELECT required_table, found_rows, check_status, contributed_to_decision"
            " FROM dependency_check_log ORDER BY check_id"
        )
        return [tuple(row) for row in rows]

    def seen(self) -> tuple[str, str, list[str]]:
        """What the operator sees of `analytics`: word, headline, and the commands offered."""
        told = self.stage.client.explaining.explain("nba", DAY, customer="acme").explanation
        (story,) = [s for s in told.phases if s.phase == "analytics"]
        return story.word, story.headline, [offer.command for offer in told.offers]


def test_same_day(store: Store, clock: VirtualClock) -> None:
    """1. Today's table has not loaded: normal, waited for quietly, started when it comes."""
    day = Morning(store, clock, "overnight", same_day("t.box", expect=5))
    day.stage.rows["t.box"] = 0
    day.begin()
    assert day.word == ("WAIT", "waiting_same_day", "ack")
    assert day.alerts == []
    assert day.checks() == [("t.box", 0, "MISSING", "WAIT")]
    word, headline, offered = day.seen()
    assert (word, "t.box" in headline) == ("waiting", True)
    assert any(text.startswith("penstock override grant") for text in offered)
    day.stage.rows["t.box"] = 5
    clock.advance(11 * MINUTE)
    day.stage.step()
    assert day.word == ("PROCEED", "ready", "ack")
    assert day.checks()[-1] == ("t.box", 5, "COMPLETE", "PROCEED")


def test_historical(store: Store, clock: VirtualClock) -> None:
    """2. Three of ten days: three tries with nack, then a person's, with the days to backfill."""
    day = Morning(store, clock, "overnight", historical("t.past", days=10, degraded_at=5))
    day.stage.days["t.past"] = 3
    day.begin()
    assert day.word == ("WAIT", "missing_historical", "nack")
    assert day.alerts == []
    for _ in range(3):
        clock.advance(HOUR)
        day.stage.step()
    assert day.word == ("FAIL", "missing_historical", "ack")
    assert day.alerts == [("gate_wait", "MEDIUM", "resolved"), ("gate_fail", "HIGH", "open")]
    assert day.checks() == [("t.past", 3, "MISSING", "WAIT")], "only what changed is a line"
    ((status,),) = day.stage.sql("SELECT status FROM interventions")
    assert status == "open"
    word, headline, offered = day.seen()
    assert (word, "needs a person" in headline) == ("blocked", True)
    assert any(text.startswith("penstock interventions resolve") for text in offered)


def test_optional(store: Store, clock: VirtualClock) -> None:
    """3. The odds are missing: the work is done with less, says so, and wakes nobody."""
    day = Morning(store, clock, "same_day", same_day("t.box"), optional("t.odds"))
    day.stage.rows = {"t.box": 5, "t.odds": 0}
    day.begin()
    assert day.word == ("PROCEED_DEGRADED", "ready_degraded", "ack")
    assert day.alerts == []
    day.stage.complete("players")
    day.stage.step()
    logged = day.stage.sql(
        "SELECT status, dependency_check_result, missing_dependencies, dependency_failure_type"
        " FROM execution_log WHERE processor = 'players'"
    )
    assert [tuple(row) for row in logged] == [
        ("completed", "ready_degraded", '["t.odds"]', "optional")
    ]
    word, headline, _ = day.seen()
    assert (word, headline.endswith("t.odds missing (optional)")) == ("degraded", True)


def test_one_table_that_never_comes(store: Store, clock: VirtualClock) -> None:
    """4. Blocked by one table: alerted while it waits, given up after max wait, alerted louder."""
    day = Morning(store, clock, "overnight", same_day("t.box"))
    day.stage.rows["t.box"] = 0
    day.begin()
    clock.advance(2 * HOUR + 30 * MINUTE)
    day.stage.step()
    assert day.word == ("WAIT", "waiting_same_day", "ack")
    assert day.alerts == [("gate_wait", "MEDIUM", "open")]
    clock.advance(4 * HOUR)
    day.stage.step()
    assert day.word == ("FAIL", "missing_same_day", "ack")
    assert day.alerts == [("gate_wait", "MEDIUM", "resolved"), ("gate_fail", "HIGH", "open")]
    word, headline, offered = day.seen()
    assert (word, "t.box missing" in headline) == ("blocked", True)
    assert any(text.startswith("penstock gate check") for text in offered)
    day.stage.rows["t.box"] = 5
    day.stage.client.overrides.grant(
        Approval(
            pipeline="nba",
            partition=DAY,
            customer="acme",
            reason="it came",
            expires_at=clock.now() + HOUR,
        )
    )
    day.stage.step()
    assert [state for _, _, state in day.alerts] == ["resolved", "resolved"], "it started"


def test_validation(store: Store, clock: VirtualClock) -> None:
    """5. The data is there and wrong: no retry, a dead letter that can be run again."""
    day = Morning(store, clock, "same_day", same_day("t.box"))
    day.stage.rows["t.box"] = 5
    day.begin()
    assert day.word == ("PROCEED", "ready", "ack")
    day.stage.kill("players")
    day.stage.step()
    logged = day.stage.sql(
        "SELECT status, error_type, message_acknowledgment, alert_sent, alert_type, retry_count"
        " FROM execution_log WHERE processor = 'players'"
    )
    ((status, error, acked, alerted, kind, tries),) = logged
    assert (status, error, acked) == ("failed", "VALIDATION_ERROR", "ack")
    assert (bool(alerted), kind, tries) == (True, "dead_letter", 0)
    assert day.stage.sql("SELECT count(*) FROM dead_letters") == [(1,)]
    word, headline, offered = day.seen()
    assert (word, "without players" in headline) == ("failed", True)
    assert day.alerts == [("phase_incomplete", "HIGH", "open")]
    assert any(text.startswith("penstock runs retry") for text in offered)


@pytest.mark.parametrize(("days", "verdict"), [(10, "PROCEED"), (6, "PROCEED_DEGRADED")])
def test_partial_backfill(store: Store, clock: VirtualClock, days: int, verdict: str) -> None:
    """6. Some of the days are there: enough for degraded work, which is told what it lacks."""
    day = Morning(store, clock, "same_day", historical("t.past", days=10, degraded_at=5))
    day.stage.days["t.past"] = days
    day.begin()
    assert day.word[0] == verdict
    (held,) = day.stage.claim("players").values()
    assert held.flow_id == day.opened.flow.flow_id
    told = {row.phase: row.told for row in day.stage.detail(day.opened).phases}["analytics"]
    assert told.get("missing", []) == ([] if days == 10 else ["t.past"])
    assert day.checks()[-1][1:2] == (days,)
