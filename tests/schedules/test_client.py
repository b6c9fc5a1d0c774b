"""Use cases of configs on both engines: changes, the schedule row, the audit chain."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock.core.clock import DAY, HOUR, MINUTE, SECOND, parse_iso, to_datetime
from penstock.core.errors import Conflict, InvalidInput, NotFound, StaleVersion
from penstock.core.ids import encode
from penstock.core.records.record import Page, time_or_none
from penstock.schedules.description import describe
from penstock.schedules.records import AuditEntry, Config, ConfigChange
from penstock.schedules.rows import ConfigRow
from penstock.schedules.store.configs import audit_verify
from tests.kits.client_harness import Harness
from tests.kits.configs import cfg, change_of, config_row, new_configs


def audit_chain(harness: Harness, customer: str = "acme") -> list[AuditEntry]:
    """Return the verified audit chain of a customer."""
    found = harness.client.configs.audit(customer).items
    number = harness.column(f"SELECT customer FROM customers WHERE customer_id = '{customer}'")[0]
    assert harness.write(lambda tx: audit_verify(tx, number)) == (len(found), None)
    return found


def start_refused(harness: Harness, config: ConfigRow) -> str:
    with pytest.raises(Conflict) as caught:
        harness.start(config)
    return caught.value.message


class TestCreate:
    """Creation of configs."""

    def test_a_new_config_is_scheduled(self, harness: Harness) -> None:
        """A config starts at its next occurrence, has version 1, and its values are audited."""
        config = harness.config(parameters={"days": 2}, provider="GCP", schedule_cron="30 * * * *")
        start = harness.clock.now()
        assert (config.version, config.is_active) == (1, True)
        assert config.next_run_time == start + 30 * MINUTE
        row = harness.schedule_row(config.config_id)
        assert row is not None
        assert row[1:] == (start + 30 * MINUTE, start)
        (entry,) = audit_chain(harness)
        assert (entry.action, entry.changed_by, entry.old_values) == ("CREATED", "tester", None)
        assert entry.new_values == describe(config)

    def test_an_interval_counts_from_its_creation(self, harness: Harness) -> None:
        """The first occurrence of an interval is one interval after the config's creation."""
        harness.clock.advance(123_457)
        config = harness.config(schedule_interval_minutes=7)
        assert config.next_run_time == harness.clock.now() + 7 * MINUTE

    def test_unscheduled_configs(self, harness: Harness) -> None:
        """Event-driven and inactive configs have no schedule row."""
        event = harness.config(event_topic="orders")
        off = harness.config(is_active=False)
        assert harness.counts("schedule") == {"schedule": 0}
        assert (event.next_run_time, off.next_run_time) == (None, None)
        assert "created disabled" in start_refused(harness, off)

    def test_many_are_all_or_none(self, harness: Harness) -> None:
        """Configs are created together and in order, or none is created."""
        good = {"pipeline_template": "nightly", "schedule_cron": "0 * * * *"}
        before = harness.counts()
        for customer, bad, field in (
            ("acme", {**good, "priority": 11}, "priority"),
            ("acme", {**good, "pipeline_template": "nightlie"}, "pipeline"),
            ("acme", {**good, "parameters": {"days": 99}}, "parameters.days"),
            ("no good", good, "customer_id"),
            (5, good, "customer_id"),
        ):
            wanted: list[Any] = [("acme", good), (customer, bad), ("other", good)]
            with pytest.raises(InvalidInput) as caught:
                harness.client.configs.create_many(new_configs(wanted))
            assert caught.value.field == field
        unfit: Any = [None]
        with pytest.raises(InvalidInput, match="config: expected"):
            harness.client.configs.create_many(unfit)
        assert harness.counts() == before
        wanted = new_configs([(f"c{i % 7}", good) for i in range(100)])
        made = harness.client.configs.create_many(wanted)
        assert [c.customer for c in made] == [f"c{i % 7}" for i in range(100)]
        assert len(audit_chain(harness, "c3")) == 14
        assert harness.client.configs.create_many([]) == []

    def test_a_dry_run_stores_nothing(self, harness: Harness) -> None:
        """Checking a config reports errors and writes nothing."""
        before = harness.counts()
        harness.client.configs.check(Config(pipeline="nightly", event_topic="orders"))
        with pytest.raises(InvalidInput):
            harness.client.configs.check(Config(pipeline="nightly"))
        assert harness.counts() == before

    def test_jitter_is_stable(self, harness: Harness) -> None:
        """A config's jitter offset is below the jitter, unique, and stable through changes."""
        made = [harness.config(jitter_seconds=60) for _ in range(8)]
        offsets = [config.offset_us for config in made]
        assert all(0 <= offset < 60 * SECOND for offset in offsets)
        assert len(set(offsets)) == 8
        harness.client.configs.update(cfg(made[0]), ConfigChange(priority=9))
        assert config_row(harness.client, cfg(made[0])).offset_us == offsets[0]
        change = ConfigChange(jitter=timedelta(seconds=120))
        harness.client.configs.update(cfg(made[0]), change)
        wider = config_row(harness.client, cfg(made[0]))
        assert abs(wider.offset_us - 2 * offsets[0]) <= 1
        harness.clock.advance(HOUR)
        harness.tick()
        times = harness.column("SELECT scheduled_time FROM runs ORDER BY config_id")
        assert times[1:] == [harness.clock.now() + offset for offset in offsets[1:]]


class TestUpdate:
    """Changes of configs."""

    def test_a_change_is_audited_with_both_values(self, harness: Harness) -> None:
        """The audit entry has only the changed fields, old and new, with actor and reason."""
        config = harness.config()
        changed = harness.client.as_actor("ann").configs.update(
            cfg(config), ConfigChange(priority=8, provider=""), reason="urgent"
        )
        assert (changed.version, changed.priority) == (2, 8)
        entry = audit_chain(harness)[-1]
        assert (entry.action, entry.changed_by, entry.reason) == ("UPDATED", "ann", "urgent")
        assert entry.old_values == {"priority": 5}
        assert entry.new_values == {"priority": 8}

    def test_a_stale_version_changes_nothing(self, harness: Harness) -> None:
        """A change based on an old version is refused and writes nothing."""
        config = harness.config()
        harness.client.configs.update(cfg(config), change_of({"priority": 6}), version=1)
        before = (harness.client.configs.get(cfg(config)), harness.counts())
        with pytest.raises(StaleVersion, match="is now at version 2"):
            harness.client.configs.update(cfg(config), change_of({"priority": 7}), version=1)
        bad: list[dict[str, Any]] = [
            {"priority": 0}, {"schedule_cron": "x"}, {"parameters": {"days": 0}}, {"nope": 1},
            {"pipeline_template": "pair"}, {"schedule_type": "INTERVAL"},
        ]  # fmt: skip
        for fields in bad:
            with pytest.raises(InvalidInput):
                harness.client.configs.update(cfg(config), change_of(fields))
        assert (harness.client.configs.get(cfg(config)), harness.counts()) == before

    def test_an_unchanged_cadence_keeps_its_next_occurrence(self, harness: Harness) -> None:
        """Other changes do not move the next occurrence, even if it is overdue."""
        config = harness.config(schedule_interval_minutes=60)
        before = harness.schedule_row(config.config_id)
        harness.clock.advance(3 * HOUR + 17)
        change = {"priority": 2, "schedule_interval_minutes": 60.0, "catch_up": "all"}
        harness.client.configs.update(cfg(config), change_of(change))
        assert harness.schedule_row(config.config_id) == before
        assert harness.column("SELECT catch_up FROM schedule") == ["all"]

    def test_a_changed_cadence_counts_from_now(self, harness: Harness) -> None:
        """A new cadence starts from now; evaluated occurrences are not evaluated again."""
        config = harness.config()
        harness.clock.advance(HOUR)
        harness.tick()
        harness.clock.advance(10 * MINUTE)
        now = harness.clock.now()
        harness.client.configs.update(cfg(config), change_of({"schedule_cron": "*/20 * * * *"}))
        row = harness.schedule_row(config.config_id)
        assert row is not None
        assert row[1:] == (now + 10 * MINUTE, now)
        harness.client.configs.update(cfg(config), change_of({"schedule_interval_minutes": 3}))
        row = harness.schedule_row(config.config_id)
        assert row is not None
        assert row[1:] == (now + 3 * MINUTE, now)
        zone = {"schedule_cron": "0 2 * * *", "timezone": "Asia/Kolkata"}
        changed = harness.client.configs.update(cfg(config), change_of(zone))
        assert changed.next_run_time == datetime(2025, 11, 17, 20, 30, tzinfo=UTC)
        harness.client.configs.update(cfg(config), change_of({"event_topic": "orders"}))
        assert harness.schedule_row(config.config_id) is None
        assert len(audit_chain(harness)) == 5

    def test_an_occurrence_is_never_started_twice(self, harness: Harness) -> None:
        """Disabling and enabling, or changing the cadence and back, repeats no occurrence."""
        config = harness.config(overlap="allow")
        harness.clock.advance(HOUR)
        harness.tick()
        harness.client.configs.disable(cfg(config))
        harness.client.configs.enable(cfg(config))
        harness.client.configs.update(cfg(config), change_of({"schedule_cron": "*/5 * * * *"}))
        harness.client.configs.update(cfg(config), change_of({"schedule_cron": "0 * * * *"}))
        assert harness.tick().due == 0
        harness.clock.advance(HOUR)
        harness.tick()
        now = harness.clock.now()
        assert harness.occurrences(config.config_id) == [now - HOUR, now]


class TestSwitching:
    """Enabling, disabling and deleting."""

    def test_disable_and_enable(self, harness: Harness) -> None:
        """Disabling unschedules a config and keeps the reason; enabling schedules it from now."""
        config = harness.config()
        off = harness.client.configs.disable(cfg(config), reason="quiet week")
        assert (off.is_active, off.inactive_reason) == (False, "quiet week")
        assert harness.schedule_row(config.config_id) is None
        changed = harness.client.configs.update(
            cfg(config), change_of({"priority": 9}), reason="tuning"
        )
        assert changed.inactive_reason == "quiet week"
        harness.clock.advance(5 * HOUR)
        assert harness.tick().due == 0
        on = harness.client.configs.enable(cfg(config))
        assert (on.is_active, on.inactive_reason) == (True, None)
        assert on.next_run_time == to_datetime(harness.clock.now() + HOUR)
        actions = [entry.action for entry in audit_chain(harness)]
        assert actions == ["CREATED", "DEACTIVATED", "UPDATED", "ACTIVATED"]
        assert harness.ledger(config.config_id) == []

    def test_deleting(self, harness: Harness) -> None:
        """No use case finds a deleted config; its history and audit trail remain."""
        config = harness.config()
        harness.clock.advance(HOUR)
        harness.tick()
        held = harness.take()
        harness.client.configs.delete(cfg(config), reason="contract ended")
        harness.complete(held)
        configs = harness.client.configs
        calls: list[Callable[[str], object]] = [
            configs.get, configs.occurrences, configs.preview, configs.start, configs.enable,
            configs.delete,
        ]  # fmt: skip
        for call in calls:
            with pytest.raises(NotFound):
                call(cfg(config))
        assert configs.list() == Page(items=[])
        harness.clock.advance(DAY)
        assert harness.tick().due == 0
        entry = audit_chain(harness)[-1]
        assert (entry.action, entry.reason, entry.new_values) == ("DELETED", "contract ended", None)
        assert entry.old_values["schedule_cron"] == "0 * * * *"
        assert harness.run(held.run_id).state == "COMPLETED"

    def test_deleting_resolves_alerts(self, harness: Harness) -> None:
        """Deleting a config resolves its alerts, and its dead runs open no new ones."""
        config = harness.config(overlap="allow")
        for _ in range(5):
            harness.start(config, trigger_source="scheduler")
        held = harness.claim()
        harness.fail(*held[:4])
        alerts = harness.client.alerts.list(state="open").items
        assert [alert.rule for alert in alerts] == ["config_failing"]
        harness.client.configs.delete(cfg(config))
        harness.fail(held[4])
        assert harness.client.alerts.list(state="open").items == []

    def test_other_customers_see_nothing(self, harness: Harness) -> None:
        """No use case finds a config under another customer's name."""
        config = harness.config()
        harness.config("other")
        before = harness.counts()
        configs = harness.client.scoped("other").configs
        calls: list[Callable[[str], object]] = [
            configs.get, configs.occurrences, configs.preview, configs.start, configs.enable,
            configs.disable, configs.delete, configs.audit_of,
        ]  # fmt: skip
        for call in calls:
            with pytest.raises(NotFound):
                call(cfg(config))
        with pytest.raises(NotFound):
            configs.update(cfg(config), ConfigChange())
        with pytest.raises(NotFound):
            configs.list(customer="acme")
        assert harness.counts() == before
        own = harness.client.configs.list(customer="acme").items
        assert [c.config_id for c in own] == [cfg(config)]


class TestStart:
    """Starts outside the schedule."""

    def test_an_event_driven_config_starts_by_a_call(self, harness: Harness) -> None:
        """A call starts a config with its parameters, its limits and the message id."""
        config = harness.config(event_topic="orders", parameters={"days": 3}, priority=7)
        (run_id,) = harness.start(config, message_id="m1", trigger_source="message")
        held = harness.take()
        assert (held.run_id, held.parameters, held.priority) == (run_id, '{"days": 3}', 7)
        assert (held.trigger_source, held.trigger_message_id) == ("message", "m1")
        assert (held.max_execution_us, held.sla_us) == (HOUR, 30 * MINUTE)

    def test_skip_refuses_a_second_run(self, harness: Harness) -> None:
        """With `skip`, no run starts while a scheduled or manual run is live."""
        config = harness.config()
        harness.clock.advance(HOUR)
        harness.tick()
        before = harness.counts()
        message = start_refused(harness, config)
        assert "overlap is skip" in message
        assert encode("run", harness.column("SELECT run_id FROM runs")[0]) in message
        held = harness.take()
        start_refused(harness, config)
        assert harness.counts() == before
        harness.complete(held)
        assert harness.start(config)
        harness.clock.advance(HOUR)
        assert harness.tick().overlapped == 1

    def test_queue_lets_one_wait(self, harness: Harness) -> None:
        """With `queue`, one run waits for the live one; a third is refused."""
        config = harness.config(overlap="queue", event_topic="orders")
        first = harness.start(config)
        second = harness.start(config)
        assert "already waiting" in start_refused(harness, config)
        held = harness.take()
        assert [held.run_id] == first
        assert harness.claim() == []
        harness.complete(held)
        harness.admitter.run_once()
        assert [harness.take().run_id] == second
        assert harness.start(config)

    def test_allow_runs_concurrently(self, harness: Harness) -> None:
        """With `allow`, every start runs, even several at once and at a scheduled time."""
        config = harness.config(overlap="allow")
        harness.clock.advance(HOUR)
        for _ in range(3):
            assert len(harness.start(config)) == 1
        assert harness.tick().runs == 1
        assert len(harness.start(config)) == 1
        occurrences = harness.occurrences(config.config_id)
        assert len(set(occurrences)) == 5
        assert harness.clock.now() in occurrences
        assert len(harness.claim()) == 5

    def test_both_entries_start_together(self, harness: Harness) -> None:
        """A start of a pipeline with two entry processors starts both of them."""
        config = harness.config(pipeline_template="pair", event_topic="orders", overlap="queue")
        ids = harness.start(config)
        assert len(ids) == 2
        assert [held.run_id for held in harness.claim()] == ids

    def test_a_paused_config_starts_later(self, harness: Harness) -> None:
        """A run started during a pause waits until the pause is lifted."""
        config = harness.config(event_topic="orders")
        harness.client.pauses.pause("config", encode("cfg", config.config_id))
        ids = harness.start(config)
        assert harness.claim() == []
        harness.client.pauses.resume("config", encode("cfg", config.config_id))
        harness.admitter.run_once()
        assert [harness.take().run_id] == ids


class TestReading:
    """Reading of configs."""

    def test_pages(self, harness: Harness) -> None:
        """Pages are ordered by id and filtered; `after` continues after the last id."""
        made = [cfg(harness.config(f"c{i % 2}")) for i in range(5)]
        harness.client.configs.disable(made[0])
        configs = harness.client.configs
        assert [c.config_id for c in configs.list(limit=2).items] == made[:2]
        assert [c.config_id for c in configs.list(after=made[1]).items] == made[2:]
        assert [c.config_id for c in configs.list(is_active=False).items] == made[:1]
        assert [c.config_id for c in configs.list(customer="c1").items] == made[1::2]
        assert configs.list_of("c1") == configs.list(customer="c1")
        assert [c.config_id for c in configs.list(offset=3).items] == made[3:]
        first = configs.list(limit=2)
        assert [c.config_id for c in configs.list(cursor=first.next_cursor).items] == made[2:]
        assert configs.list(pipeline="pair") == Page(items=[])
        with pytest.raises(InvalidInput, match="pipeline"):
            configs.list(pipeline="none")
        with pytest.raises(InvalidInput, match="limit"):
            configs.list(limit=-1)
        with pytest.raises(NotFound):
            configs.audit("unknown")

    def test_preview_notes_daylight_saving(self, harness: Harness) -> None:
        """A preview lists the next occurrences, with a note where clocks go forward."""
        harness.clock.advance_to(parse_iso("2026-03-27T12:00:00Z"))
        config = harness.config(schedule_cron="30 2 * * *", timezone="Europe/Paris")
        occurrences = harness.client.configs.preview(cfg(config), 3).occurrences
        assert [occurrence.local[:16] for occurrence in occurrences] == [
            "2026-03-28T02:30", "2026-03-29T03:00", "2026-03-30T02:30",
        ]  # fmt: skip
        assert [occurrence.note is None for occurrence in occurrences] == [True, False, True]
        assert "does not exist" in (occurrences[1].note or "")
        assert occurrences[0].at == time_or_none(config.next_run_time)
        n: Any
        for n in (0, 1001, True, "5", 1.5, None):
            with pytest.raises(InvalidInput, match="n: expected"):
                harness.client.configs.preview(cfg(config), n)

    def test_preview_of_an_interval_keeps_its_phase(self, harness: Harness) -> None:
        """The preview matches the actual occurrences, even if the scheduler is behind."""
        config = harness.config(schedule_interval_minutes=45)
        harness.clock.advance(DAY + 123)
        occurrences = harness.client.configs.preview(cfg(config), 2).occurrences
        harness.tick()
        assert harness.client.configs.get(cfg(config)).next_run_time == occurrences[0].at
        event = harness.config(event_topic="orders")
        assert harness.client.configs.preview(cfg(event)).occurrences == []
