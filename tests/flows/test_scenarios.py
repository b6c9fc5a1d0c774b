"""Six scenarios of an operator's morning, from the data to the screen, on both engines.

Each covers the gate's decision and what happened to the message, the alerts, the gate log, the
check log and the execution log, and what `explain` and `why` show and suggest. The rules alone are
tested in tests/flows/gates, more deadlocks in tests/flows/advance.
"""

from __future__ import annotations

import json
from typing import Any

from penstock import Pipeline, game_day_modes, historical, optional, same_day
from penstock.core.clock import HOUR, MINUTE, to_datetime
from penstock.core.ids import encode
from penstock.core.stored_json import loads
from penstock.db.store import Store
from penstock.flows.gates.records import OverrideRequest
from penstock.flows.gates.verdict import Decision
from penstock.runs import attempt_result
from penstock.runs.states import RunStatus
from penstock.runs.store.finish import run_end_many
from penstock.testing.clock import VirtualClock
from tests.flows.advance.test_gate_deadlocks import branches
from tests.kits.flows import DAY, Stage, work


class Morning:
    """`raw`, then `analytics` with these needs; `begin` completes `raw` and evaluates the gate."""

    def __init__(self, store: Store, clock: VirtualClock, mode: str, *needs: Any) -> None:
        made = Pipeline("nba", partition="day", warehouse="w", modes=game_day_modes())
        raw = made.phase("raw")
        raw.processor("box")(work)
        made.phase("analytics", after=raw).processor("players", needs=list(needs))(work)
        self.stage = Stage(store, clock, made)
        self.clock = clock
        self.mode = mode

    def begin(self) -> None:
        """Open the flow, complete `raw` and evaluate the gate."""
        self.opened = self.stage.open(mode=self.mode)
        self.stage.complete("box")
        self.stage.step()

    @property
    def decision(self) -> Decision:
        """The newest decision about `analytics`."""
        rows = self.stage.detail(self.opened).decisions
        return loads(Decision, next(row.decision for row in rows if row.phase == "analytics"))

    @property
    def outcome(self) -> tuple[str, str, str]:
        """Verdict, status and what happened to the message."""
        found = self.decision
        return str(found.verdict), str(found.status), str(found.acknowledgement)

    @property
    def messages(self) -> list[str]:
        """The messages of all alerts, oldest first."""
        return [row[0] for row in self.stage.sql("SELECT message FROM alerts ORDER BY alert_id")]

    @property
    def alerts(self) -> list[tuple[Any, ...]]:
        """(rule, severity, state) of all alerts, oldest first."""
        found = self.stage.sql("SELECT rule, severity, state FROM alerts ORDER BY alert_id")
        return [tuple(row) for row in found]

    def checks(self) -> list[tuple[Any, ...]]:
        """The rows of the check log: (table, found, status, verdict)."""
        rows = self.stage.sql(
            "SELECT required_table, found_rows, check_status, contributed_to_decision"
            " FROM dependency_check_log ORDER BY check_id"
        )
        return [tuple(row) for row in rows]

    def log(self) -> list[tuple[Any, ...]]:
        """The rows of the execution log about `players`."""
        rows = self.stage.sql(
            "SELECT status, dependency_check_result, dependency_failure_type, missing_dependencies,"
            " message_acknowledgment, parent_processor FROM execution_log"
            " WHERE processor = 'players' ORDER BY execution_id"
        )
        return [tuple(row) for row in rows]

    def finish(self) -> None:
        """Complete `players`."""
        assert self.stage.complete("players") == 1
        self.stage.step()

    def gate_log(self) -> list[tuple[Any, ...]]:
        """(verdict, status) of every decision about `analytics`, oldest first."""
        rows = self.stage.detail(self.opened).decisions
        return [(r.verdict, r.status) for r in reversed(rows) if r.phase == "analytics"]

    def why(self) -> list[str]:
        """Return every sentence of `why` about `analytics`, from the top."""
        proof = self.stage.client.diagnostics.why_flow(
            encode("flow", self.opened.flow.flow_id), "analytics"
        )
        return [cause.text for cause in proof.causes]

    def sentences(self) -> str:
        """Return the sentences of `explain` about `analytics` below its headline."""
        explained = self.stage.client.diagnostics.explain("nba", DAY, customer="acme")
        return " ".join(s for story in explained.phases if story.phase == "analytics"
                        for s in story.sentences)  # fmt: skip

    def shown(self) -> tuple[str, str, list[str]]:
        """Return what `explain` shows of `analytics`: state, headline and suggested commands."""
        explained = self.stage.client.diagnostics.explain("nba", DAY, customer="acme")
        (story,) = [s for s in explained.phases if s.phase == "analytics"]
        return story.word, story.headline, [offer.command for offer in explained.actions]


def test_same_day(store: Store, clock: VirtualClock) -> None:
    """1. Today's table has not loaded: the gate waits without an alert and starts when it has."""
    day = Morning(store, clock, "overnight", same_day("t.box", expect=5))
    day.stage.rows["t.box"] = 0
    day.begin()
    assert day.outcome == ("WAIT", "waiting_same_day", "ack")
    assert day.alerts == []
    assert day.checks() == [("t.box", 0, "MISSING", "WAIT")]
    word, headline, offered = day.shown()
    assert (word, headline) == ("waiting", "since 00:00 for t.box, until 06:00")
    assert any(text.startswith("penstock override grant") for text in offered)
    assert day.why()[1:] == [
        "the gate of analytics has returned WAIT since 00:00: Waiting for t.box (0/5 rows (0 %)). "
        "The maximum wait is 6h.",
        "t.box 0/5 rows (0 %)",
    ]
    day.stage.rows["t.box"] = 5
    clock.advance(11 * MINUTE)
    day.stage.step()
    assert day.outcome == ("PROCEED", "ready", "ack")
    assert day.checks()[-1] == ("t.box", 5, "COMPLETE", "PROCEED")
    day.finish()
    assert day.gate_log() == [("WAIT", "waiting_same_day"), ("PROCEED", "ready")]
    assert day.log() == [("completed", "ready", None, None, None, "raw.box")]
    assert (day.alerts, day.shown()) == ([], ("complete", "00:11", []))


def test_historical(store: Store, clock: VirtualClock) -> None:
    """2. Three of ten days: three retries with nack, then an intervention with backfills."""
    day = Morning(store, clock, "overnight", historical("t.past", days=10, degraded_at=5))
    day.stage.days["t.past"] = 3
    day.begin()
    assert day.outcome == ("WAIT", "missing_historical", "nack")
    assert day.alerts == []
    for _ in range(3):
        clock.advance(HOUR)
        day.stage.step()
    assert day.outcome == ("FAIL", "missing_historical", "ack")
    assert day.alerts == [("gate_wait", "MEDIUM", "resolved"), ("gate_fail", "HIGH", "open")]
    assert day.checks() == [("t.past", 3, "MISSING", "WAIT")], "only changes are logged"
    ((status,),) = day.stage.sql("SELECT status FROM interventions")
    assert status == "open"
    assert day.gate_log() == [("WAIT", "missing_historical")] * 3 + [("FAIL", "missing_historical")]
    assert day.messages[1] == (
        "nba 2025-11-16 analytics must not start: Too little history: t.past (3/10 days, missing "
        "2025-11-06 to 2025-11-12). Backfill the missing days or approve an override."
    )
    details = day.stage.sql("SELECT detail FROM alerts")
    assert {tuple(json.loads(row[0])["queries"]) for row in details} == {
        ("SELECT day, count(*) FROM t.past WHERE day < '2025-11-16' GROUP BY 1 ORDER BY 1 DESC "
         "LIMIT 10",)
    }  # fmt: skip
    word, headline, offered = day.shown()
    assert word == "blocked"
    assert headline == "since 03:00: its gate failed, t.past missing; needs a person"
    assert any(text.startswith("penstock interventions resolve") for text in offered)
    assert "penstock trigger nba 2025-11-06 --mode backfill --customer acme" in offered
    assert "t.past (historical) 3/10 days, missing 2025-11-06 to 2025-11-12" in day.why()
    assert day.log() == [], "nothing was executed"


def test_optional(store: Store, clock: VirtualClock) -> None:
    """3. Optional odds are missing: the phase runs degraded, says so, and opens no alert."""
    day = Morning(store, clock, "same_day", same_day("t.box"), optional("t.odds"))
    day.stage.rows = {"t.box": 5, "t.odds": 0}
    day.begin()
    assert day.outcome == ("PROCEED_DEGRADED", "ready_degraded", "ack")
    assert day.alerts == []
    assert day.gate_log() == [("PROCEED_DEGRADED", "ready_degraded")]
    assert ("t.odds", 0, "MISSING", "PROCEED_DEGRADED") in day.checks()
    assert "t.odds (optional) 0/1 rows (0 %)" in day.sentences(), "also while it runs"
    day.finish()
    assert day.log() == [("completed", "ready_degraded", "optional", '["t.odds"]', None, "raw.box")]
    assert day.shown()[:2] == ("degraded", "00:00  t.odds missing (optional)")
    assert day.why() == ["analytics is degraded: 00:00  t.odds missing (optional)"]


def test_one_table_that_never_arrives(store: Store, clock: VirtualClock) -> None:
    """4. Blocked by one table: alerted while waiting, failed after max wait, alerted again."""
    day = Morning(store, clock, "overnight", same_day("t.box"))
    day.stage.rows["t.box"] = 0
    day.begin()
    clock.advance(2 * HOUR + 30 * MINUTE)
    day.stage.step()
    assert day.outcome == ("WAIT", "waiting_same_day", "ack")
    assert day.alerts == [("gate_wait", "MEDIUM", "open")]
    clock.advance(4 * HOUR)
    day.stage.step()
    assert day.outcome == ("FAIL", "missing_same_day", "ack")
    assert day.alerts == [("gate_wait", "MEDIUM", "resolved"), ("gate_fail", "HIGH", "open")]
    assert [verdict for verdict, _ in day.gate_log()] == ["WAIT", "WAIT", "FAIL"]
    assert day.checks() == [("t.box", 0, "MISSING", "WAIT")], "it did not change"
    assert day.messages[1].endswith(
        "must not start: Absent: t.box (0/1 rows (0 %)). Waited 6h30m; the maximum is 6h."
    )
    word, headline, offered = day.shown()
    assert (word, headline) == ("blocked", "since 06:30: its gate failed, t.box missing")
    assert any(text.startswith("penstock gate check") for text in offered)
    assert day.why()[-1] == "t.box 0/1 rows (0 %)"
    assert day.why()[1].startswith(
        "the gate of analytics has returned FAIL since 06:30: Absent: t.box"
    )
    day.stage.rows["t.box"] = 5
    day.stage.client.overrides.grant(
        OverrideRequest(
            pipeline="nba",
            partition=DAY,
            customer="acme",
            reason="it arrived",
            expires_at=to_datetime(clock.now() + HOUR),
        )
    )
    day.stage.step()
    assert [state for _, _, state in day.alerts] == ["resolved", "resolved"], "it started"
    day.finish()
    assert day.log() == [("completed", "ready", None, None, None, "raw.box")]


def test_a_deadlock(store: Store, clock: VirtualClock) -> None:
    """4. Two gates wait for each other's tables: both fail with the cycle, nothing executes."""
    stage = Stage(store, clock, branches())
    stage.rows = {"t.left": 0, "t.right": 0}
    opened = stage.open(mode="tomorrow")
    stage.complete("go")
    stage.step()
    row = next(row for row in stage.detail(opened).decisions if row.phase == "right")
    found = loads(Decision, row.decision)
    cycle = "right/r1 → left_end/l2 → left/l1 → right_end/r2 → right/r1"
    assert (row.verdict, row.status, str(found.acknowledgement)) == ("FAIL", "cycle", "ack")
    ((rule, severity, message),) = stage.sql("SELECT rule, severity, message FROM alerts")
    assert (rule, severity) == ("gate_fail", "HIGH")
    reason = f"These processors wait for each other and can never start: {cycle}."
    assert message == f"nba {DAY} right must not start: {reason}"
    explained = stage.client.diagnostics.explain("nba", DAY, customer="acme")
    (story,) = [s for s in explained.phases if s.phase == "right"]
    assert (story.word, any(cycle in text for text in story.sentences)) == ("blocked", True)
    checks = stage.sql("SELECT required_table, contributed_to_decision FROM dependency_check_log")
    assert ("t.left", "FAIL") in [tuple(row) for row in checks]
    assert stage.sql("SELECT DISTINCT processor FROM execution_log") == [("go",)]


def test_validation(store: Store, clock: VirtualClock) -> None:
    """5. The data is there and invalid: no retry, but a dead letter that can be retried."""
    day = Morning(store, clock, "same_day", same_day("t.box"))
    day.stage.rows["t.box"] = 5
    day.begin()
    assert day.outcome == ("PROCEED", "ready", "ack")
    day.stage.kill("players")
    day.stage.step()
    flow_id = encode("flow", day.opened.flow.flow_id)
    executed = day.stage.client.tracking.executions(flow_id).items
    (logged,) = (one for one in executed if one.processor == "players" and one.kind == "run")
    assert (logged.status, logged.error_type) == ("failed", "VALIDATION_ERROR")
    assert (logged.acknowledgment, logged.retry_count) == (None, 0)
    assert (logged.is_alert_sent, logged.alert_type) == (True, "phase_incomplete")
    assert day.stage.sql("SELECT count(*) FROM dead_letters") == [(1,)]
    word, headline, offered = day.shown()
    assert (word, "without players" in headline) == ("failed", True)
    assert day.alerts == [("phase_incomplete", "HIGH", "open")]
    assert any(text.startswith("penstock runs retry") for text in offered)
    assert day.gate_log() == [("PROCEED", "ready")], "the gate does not see the failure"
    assert day.log() == [("failed", "ready", None, None, None, "raw.box")]
    assert day.messages == ["nba 2025-11-16 analytics ended without players"]
    assert day.why()[1:] == ["players failed permanently at 00:00 (VALIDATION_ERROR)"]


def test_partial_backfill(store: Store, clock: VirtualClock) -> None:
    """6. Four days, then six of ten by a backfill: retried, then run degraded."""
    day = Morning(store, clock, "overnight", historical("t.past", days=10, degraded_at=5))
    day.stage.days["t.past"] = 4
    day.begin()
    assert day.outcome == ("WAIT", "missing_historical", "nack")
    assert day.checks() == [("t.past", 4, "MISSING", "WAIT")]
    day.stage.days["t.past"] = 6
    clock.advance(5 * MINUTE)
    day.stage.step()
    lacking = "t.past: 6/10 days, missing 2025-11-06 to 2025-11-09"
    assert day.outcome == ("PROCEED_DEGRADED", "ready_degraded", "ack")
    assert day.alerts == [("gate_proceed_degraded", "INFO", "open")]
    assert day.messages[0].startswith("nba 2025-11-16 analytics starts degraded: Enough data, but")
    assert day.messages[0].endswith(f"too little history in {lacking.replace(': ', ' (', 1)}).")
    (held,) = day.stage.claim("players").values()
    context = json.loads(held.gate_context or "{}")
    assert (context["is_degraded"], context["missing"]) == (True, ["t.past"]), "its run receives it"
    assert context["warnings"] == [lacking]
    assert lacking.replace(":", " (historical)") in day.sentences()
    end = attempt_result.completed_result(held, status=RunStatus.SUCCESS)
    day.stage.write(lambda tx: run_end_many(tx, [end]))
    day.stage.step()
    assert day.gate_log() == [
        ("WAIT", "missing_historical"), ("PROCEED_DEGRADED", "ready_degraded"),
    ]  # fmt: skip
    assert day.checks()[1:] == [("t.past", 6, "DEGRADED", "PROCEED_DEGRADED")]
    assert day.log() == [
        ("completed", "ready_degraded", "historical", '["t.past"]', None, "raw.box")
    ]
    assert day.shown()[:2] == ("degraded", f"00:05  {lacking}")
    assert day.why() == [f"analytics is degraded: 00:05  {lacking}"]
    flow = day.stage.detail(day.opened).flow
    assert (flow.state, json.loads(flow.missing)) == ("DEGRADED", ["t.past"])
    assert day.alerts == [("gate_proceed_degraded", "INFO", "resolved")]


def test_whole_backfill(store: Store, clock: VirtualClock) -> None:
    """6. All days arrive after an intervention was opened: it is resolved, nothing is missing."""
    day = Morning(store, clock, "same_day", historical("t.past", days=10, degraded_at=5))
    day.stage.days["t.past"] = 4
    day.begin()
    for _ in range(3):
        clock.advance(21 * MINUTE)
        day.stage.step()
    assert day.outcome == ("FAIL", "missing_historical", "ack")
    (item,) = day.stage.client.interventions.list().items
    day.stage.days["t.past"] = 10
    day.stage.client.interventions.resolve(item.intervention_id, "backfilled")
    day.stage.step()
    assert day.outcome == ("PROCEED", "ready", "ack")
    assert [state for _, _, state in day.alerts] == ["resolved", "resolved"]
    day.finish()
    assert day.log() == [("completed", "ready", None, None, None, "raw.box")]
    assert day.checks()[-1] == ("t.past", 10, "COMPLETE", "PROCEED")
    assert day.shown()[:2] == ("complete", "01:03")
