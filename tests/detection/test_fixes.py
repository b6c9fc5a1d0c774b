"""The command that an alert prints does what the alert says: executed on the same database."""

from __future__ import annotations

import json

from penstock import PermanentError, Pipeline, game_day_modes, historical
from penstock.core.clock import HOUR, MINUTE
from penstock.db.store import Store
from penstock.recovery.records import BackfillRequest
from penstock.testing.clock import VirtualClock
from tests.detection.test_monitor import Watch, needy
from tests.kits.commands import execute, printed_commands
from tests.kits.flows import chain
from tests.kits.flows import work as done
from tests.recovery.kit import Services, Work


def fix_of(watch: Watch, rule: str) -> str:
    """The command of the one open alert of a rule."""
    rows = watch.stage.sql(f"SELECT detail FROM alerts WHERE state = 'open' AND rule = '{rule}'")
    ((detail,),) = rows
    return str(json.loads(detail)["fix"])


def test_an_untriggered_phase_is_triggered(store: Store, clock: VirtualClock) -> None:
    """`penstock trigger` starts the phase, and the alert closes."""
    watch = Watch(store, clock, chain("raw", "analytics"))
    watch.stage.open()
    watch.stage.complete("raw_job")
    watch.stage.sql("DELETE FROM nudges")
    watch.stage.sql("UPDATE flow_phases SET state = 'COMPLETE', ended_at = since_at"
                    " WHERE phase = 'raw'")  # fmt: skip
    assert watch.observe(8 * MINUTE) == [("phase_untriggered", "HIGH")]
    line = fix_of(watch, "phase_untriggered")
    assert line == "penstock trigger nba 2025-11-16 analytics --customer acme"
    execute(watch.stage.client, line)
    assert list(watch.stage.claim()) == ["analytics_job"]
    assert watch.observe(MINUTE) == []


def test_a_stalled_flow_is_checked_again(store: Store, clock: VirtualClock) -> None:
    """`penstock gate recheck` finds data that came, and the flow continues."""
    watch = Watch(store, clock, needy("t.box"))
    watch.stage.rows["t.box"] = 0
    watch.stage.open(mode="manual")
    watch.stage.complete("box")
    watch.stage.step()
    assert ("flow_stalled", "HIGH") in watch.observe(80 * MINUTE)
    watch.stage.rows["t.box"] = 5
    execute(watch.stage.client, fix_of(watch, "flow_stalled"))
    watch.stage.step()
    assert list(watch.stage.claim()) == ["p0"]
    assert watch.observe() == [("dependency_late", "MEDIUM")]


def test_a_missing_table_is_overridden(store: Store, clock: VirtualClock) -> None:
    """`penstock override grant` lets the gate pass without the table, with a reason on record."""
    watch = Watch(store, clock, needy("t.box"))
    watch.stage.rows["t.box"] = 0
    watch.stage.open(mode="overnight")
    watch.stage.complete("box")
    watch.stage.step()
    assert watch.observe(65 * MINUTE) == [("dependency_missing", "MEDIUM")]
    execute(watch.stage.client, fix_of(watch, "dependency_missing"))
    watch.stage.step()
    assert list(watch.stage.claim()) == ["p0"]
    (granted,) = watch.stage.client.overrides.list().items
    assert (granted.reason, granted.partition) == ("t.box does not arrive", "2025-11-16")


def test_stale_and_stuck(store: Store, clock: VirtualClock) -> None:
    """`penstock why` names the phase and its run; `penstock runs cancel --force` ends the run."""
    watch = Watch(store, clock, chain("raw", "analytics"))
    watch.stage.open()
    (held,) = watch.stage.claim().values()
    watch.observe(63 * MINUTE)
    found = watch.observe(HOUR)
    assert found == [("phase_stuck", "CRITICAL"), ("runs_stale", "HIGH")]
    assert "raw" in execute(watch.stage.client, fix_of(watch, "phase_stuck"))
    execute(watch.stage.client, fix_of(watch, "runs_stale"))
    assert watch.stage.sql(f"SELECT final_state FROM history WHERE run_id = {held.run_id}") == [
        ("FAILED",)
    ]
    assert ("runs_stale", "HIGH") not in watch.observe()


def test_an_intervention_is_resolved(store: Store, clock: VirtualClock) -> None:
    """Both commands that `interventions show` prints run; the second evaluates the gate again."""
    made = Pipeline("nba", partition="day", warehouse="w", modes=game_day_modes())
    made.phase("raw").processor("box")(done)
    made.phase("next", after="raw").processor("p0", needs=[historical("t.past", days=10)])(done)
    watch = Watch(store, clock, made)
    watch.stage.days["t.past"] = 2
    watch.stage.open(mode="backfill")
    watch.stage.complete("box")
    watch.stage.step()
    client = watch.stage.client
    (item,) = client.interventions.list().items
    asks, resolves = printed_commands(
        execute(client, f"penstock interventions show {item.intervention_id}")
    )
    assert "t.past" in execute(client, asks)
    watch.stage.days["t.past"] = 10
    assert resolves == item.command
    execute(client, resolves)
    watch.stage.step()
    assert list(watch.stage.claim()) == ["p0"]
    assert client.interventions.list().items == []
    assert client.interventions.get(item.intervention_id).status == "resolved"


def test_a_failed_backfill_is_repeated(store: Store, clock: VirtualClock) -> None:
    """The commands of backfill_paused and backfill_failed continue, and repeat what failed."""
    work = Work()
    work.fails = lambda _, day: PermanentError("bug") if day == "2025-01-02" else None
    services = Services(store, clock, work.pipeline)
    request = BackfillRequest(
        pipeline="nba", first="2025-01-01", last="2025-01-04", parallelism=1, failures_max=1
    )
    services.client.backfills.start(request)
    services.work()
    for rule, complete in (("backfill_paused", 3), ("backfill_failed", 4)):
        (alert,) = [one for one in services.client.alerts.list().items if one.rule == rule]
        (line,) = printed_commands(alert.message)
        execute(services.client, line)
        services.work()
        (backfill,) = services.client.backfills.list().items
        assert backfill.counts["COMPLETE"] == complete, (line, backfill.counts)
        work.fails = lambda *_: None
    assert backfill.state == "COMPLETE"
