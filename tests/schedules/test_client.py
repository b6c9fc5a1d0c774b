"""Use cases of configs on both engines: changes, the schedule row, the audit chain."""

import json
from typing import Any

import pytest

from penstock.core.clock import DAY, HOUR, MINUTE, SECOND, parse_iso
from penstock.core.errors import Conflict, InvalidInput, NotFound, StaleVersion
from penstock.core.ids import encode
from penstock.schedules.description import describe
from penstock.schedules.rows import Config
from penstock.schedules.store.configs import AuditRow, audit_verify
from tests.kits.desk import Harness


def audit_chain(desk: Harness, customer: str = "acme") -> list[AuditRow]:
    """Return the verified audit chain of a customer."""
    found = desk.client.configs.audit(customer)
    number = desk.column(f"SELECT customer FROM customers WHERE customer_id = '{customer}'")[0]
    assert desk.write(lambda tx: audit_verify(tx, number)) == (len(found), None)
    return found


def start_refused(desk: Harness, config: Config) -> str:
    with pytest.raises(Conflict) as caught:
        desk.client.configs.start(config.config_id)
    return caught.value.message


class TestCreate:
    """Creation of configs."""

    def test_a_new_config_is_scheduled(self, desk: Harness) -> None:
        """A config starts at its next occurrence, has version 1, and its values are audited."""
        config = desk.config(parameters={"days": 2}, provider="GCP", schedule_cron="30 * * * *")
        start = desk.clock.now()
        assert (config.version, config.is_active) == (1, True)
        assert config.next_run_time == start + 30 * MINUTE
        row = desk.schedule_row(config.config_id)
        assert row is not None
        assert row[1:] == (start + 30 * MINUTE, start)
        (entry,) = audit_chain(desk)
        assert (entry.action, entry.actor, entry.old_values) == ("CREATED", "tester", None)
        assert json.loads(entry.new_values or "") == describe(config)

    def test_an_interval_counts_from_its_creation(self, desk: Harness) -> None:
        """The first occurrence of an interval is one interval after the config's creation."""
        desk.clock.advance(123_457)
        config = desk.config(schedule_interval_minutes=7)
        assert config.next_run_time == desk.clock.now() + 7 * MINUTE

    def test_unscheduled_configs(self, desk: Harness) -> None:
        """Event-driven and inactive configs have no schedule row."""
        event = desk.config(event_topic="orders")
        off = desk.config(is_active=False)
        assert desk.counts("schedule") == {"schedule": 0}
        assert (event.next_run_time, off.next_run_time) == (None, None)
        assert "created disabled" in start_refused(desk, off)

    def test_many_are_all_or_none(self, desk: Harness) -> None:
        """Configs are created together and in order, or none is created."""
        good = {"pipeline_template": "nightly", "schedule_cron": "0 * * * *"}
        before = desk.counts()
        for customer, bad, field in (
            ("acme", {**good, "priority": 11}, "priority"),
            ("acme", {**good, "pipeline_template": "nightlie"}, "pipeline_template"),
            ("acme", {**good, "parameters": {"days": 99}}, "parameters.days"),
            ("no good", good, "customer_id"),
            (5, good, "customer_id"),
            ("acme", None, "config"),
        ):
            wanted: list[Any] = [("acme", good), (customer, bad), ("other", good)]
            with pytest.raises(InvalidInput) as caught:
                desk.client.configs.create_many(wanted)
            assert caught.value.field == field
        assert desk.counts() == before
        made = desk.client.configs.create_many([(f"c{i % 7}", good) for i in range(100)])
        assert [c.customer_id for c in made] == [f"c{i % 7}" for i in range(100)]
        assert len(audit_chain(desk, "c3")) == 14
        assert desk.client.configs.create_many([]) == []

    def test_a_dry_run_stores_nothing(self, desk: Harness) -> None:
        """Checking a config reports errors and writes nothing."""
        before = desk.counts()
        desk.client.configs.check({"pipeline_template": "nightly", "event_topic": "orders"})
        with pytest.raises(InvalidInput):
            desk.client.configs.check({"pipeline_template": "nightly"})
        assert desk.counts() == before

    def test_jitter_is_stable(self, desk: Harness) -> None:
        """A config's jitter offset is below the jitter, unique, and stable through changes."""
        made = [desk.config(jitter_seconds=60) for _ in range(8)]
        offsets = [config.offset_us for config in made]
        assert all(0 <= offset < 60 * SECOND for offset in offsets)
        assert len(set(offsets)) == 8
        changed = desk.client.configs.update(made[0].config_id, {"priority": 9})
        assert changed.offset_us == offsets[0]
        wider = desk.client.configs.update(made[0].config_id, {"jitter_seconds": 120})
        assert abs(wider.offset_us - 2 * offsets[0]) <= 1
        desk.clock.advance(HOUR)
        desk.tick()
        times = desk.column("SELECT scheduled_time FROM runs ORDER BY config_id")
        assert times[1:] == [desk.clock.now() + offset for offset in offsets[1:]]


class TestUpdate:
    """Changes of configs."""

    def test_a_change_is_audited_with_both_values(self, desk: Harness) -> None:
        """The audit entry has only the changed fields, old and new, with actor and reason."""
        config = desk.config()
        changed = desk.client.configs.update(
            config.config_id, {"priority": 8, "provider": ""}, reason="urgent", actor="ann"
        )
        assert (changed.version, changed.priority) == (2, 8)
        entry = audit_chain(desk)[-1]
        assert (entry.action, entry.actor, entry.reason) == ("UPDATED", "ann", "urgent")
        assert json.loads(entry.old_values or "") == {"priority": 5}
        assert json.loads(entry.new_values or "") == {"priority": 8}

    def test_a_stale_version_changes_nothing(self, desk: Harness) -> None:
        """A change based on an old version is refused and writes nothing."""
        config = desk.config()
        desk.client.configs.update(config.config_id, {"priority": 6}, version=1)
        before = (desk.client.configs.get(config.config_id), desk.counts())
        with pytest.raises(StaleVersion, match="is now at version 2"):
            desk.client.configs.update(config.config_id, {"priority": 7}, version=1)
        bad: list[dict[str, Any]] = [
            {"priority": 0}, {"schedule_cron": "x"}, {"parameters": {"days": 0}}, {"nope": 1},
            {"pipeline_template": "pair"}, {"schedule_type": "INTERVAL"},
        ]  # fmt: skip
        for change in bad:
            with pytest.raises(InvalidInput):
                desk.client.configs.update(config.config_id, change)
        assert (desk.client.configs.get(config.config_id), desk.counts()) == before

    def test_an_unchanged_cadence_keeps_its_next_occurrence(self, desk: Harness) -> None:
        """Other changes do not move the next occurrence, even if it is overdue."""
        config = desk.config(schedule_interval_minutes=60)
        before = desk.schedule_row(config.config_id)
        desk.clock.advance(3 * HOUR + 17)
        change = {"priority": 2, "schedule_interval_minutes": 60.0, "catch_up": "all"}
        desk.client.configs.update(config.config_id, change)
        assert desk.schedule_row(config.config_id) == before
        assert desk.column("SELECT catch_up FROM schedule") == ["all"]

    def test_a_changed_cadence_counts_from_now(self, desk: Harness) -> None:
        """A new cadence starts from now; evaluated occurrences are not evaluated again."""
        config = desk.config()
        desk.clock.advance(HOUR)
        desk.tick()
        desk.clock.advance(10 * MINUTE)
        now = desk.clock.now()
        desk.client.configs.update(config.config_id, {"schedule_cron": "*/20 * * * *"})
        row = desk.schedule_row(config.config_id)
        assert row is not None
        assert row[1:] == (now + 10 * MINUTE, now)
        desk.client.configs.update(config.config_id, {"schedule_interval_minutes": 3})
        row = desk.schedule_row(config.config_id)
        assert row is not None
        assert row[1:] == (now + 3 * MINUTE, now)
        zone = {"schedule_cron": "0 2 * * *", "timezone": "Asia/Kolkata"}
        changed = desk.client.configs.update(config.config_id, zone)
        assert changed.next_run_time == parse_iso("2025-11-17T20:30:00Z")
        desk.client.configs.update(config.config_id, {"event_topic": "orders"})
        assert desk.schedule_row(config.config_id) is None
        assert len(audit_chain(desk)) == 5

    def test_an_occurrence_is_never_started_twice(self, desk: Harness) -> None:
        """Disabling and enabling, or changing the cadence and back, repeats no occurrence."""
        config = desk.config(overlap="allow")
        desk.clock.advance(HOUR)
        desk.tick()
        desk.client.configs.disable(config.config_id)
        desk.client.configs.enable(config.config_id)
        desk.client.configs.update(config.config_id, {"schedule_cron": "*/5 * * * *"})
        desk.client.configs.update(config.config_id, {"schedule_cron": "0 * * * *"})
        assert desk.tick().due == 0
        desk.clock.advance(HOUR)
        desk.tick()
        now = desk.clock.now()
        assert desk.occurrences(config.config_id) == [now - HOUR, now]


class TestSwitching:
    """Enabling, disabling and deleting."""

    def test_disable_and_enable(self, desk: Harness) -> None:
        """Disabling unschedules a config and keeps the reason; enabling schedules it from now."""
        config = desk.config()
        off = desk.client.configs.disable(config.config_id, reason="quiet week")
        assert (off.is_active, off.inactive_reason) == (False, "quiet week")
        assert desk.schedule_row(config.config_id) is None
        changed = desk.client.configs.update(config.config_id, {"priority": 9}, reason="tuning")
        assert changed.inactive_reason == "quiet week"
        desk.clock.advance(5 * HOUR)
        assert desk.tick().due == 0
        on = desk.client.configs.enable(config.config_id)
        assert (on.is_active, on.inactive_reason) == (True, None)
        assert on.next_run_time == desk.clock.now() + HOUR
        actions = [entry.action for entry in audit_chain(desk)]
        assert actions == ["CREATED", "DEACTIVATED", "UPDATED", "ACTIVATED"]
        assert desk.ledger(config.config_id) == []

    def test_deleting(self, desk: Harness) -> None:
        """No use case finds a deleted config; its history and audit trail remain."""
        config = desk.config()
        desk.clock.advance(HOUR)
        desk.tick()
        held = desk.take()
        desk.client.configs.delete(config.config_id, reason="contract ended")
        desk.complete(held)
        configs = desk.client.configs
        for call in (configs.get, configs.ledger, configs.preview, configs.start, configs.enable,
                     configs.delete):  # fmt: skip
            with pytest.raises(NotFound):
                call(config.config_id)
        assert configs.page() == []
        desk.clock.advance(DAY)
        assert desk.tick().due == 0
        entry = audit_chain(desk)[-1]
        assert (entry.action, entry.reason, entry.new_values) == ("DELETED", "contract ended", None)
        assert json.loads(entry.old_values or "")["schedule_cron"] == "0 * * * *"
        assert desk.client.runs.get(held.run_id).state == "COMPLETED"

    def test_deleting_resolves_alerts(self, desk: Harness) -> None:
        """Deleting a config resolves its alerts, and its dead runs open no new ones."""
        config = desk.config(overlap="allow")
        for _ in range(5):
            desk.client.configs.start(config.config_id)
        held = desk.claim()
        desk.fail(*held[:4])
        assert [a.rule for a in desk.client.views.alerts(state="open")] == ["config_failing"]
        desk.client.configs.delete(config.config_id)
        desk.fail(held[4])
        assert desk.client.views.alerts(state="open") == []

    def test_other_customers_see_nothing(self, desk: Harness) -> None:
        """No use case finds a config under another customer's name."""
        config = desk.config()
        desk.config("other")
        before = desk.counts()
        configs = desk.client.configs
        for call in (configs.get, configs.ledger, configs.preview, configs.start, configs.enable,
                     configs.disable, configs.delete):  # fmt: skip
            with pytest.raises(NotFound):
                call(config.config_id, customer="other")
        with pytest.raises(NotFound):
            configs.update(config.config_id, {}, customer="other")
        assert desk.counts() == before
        assert [c.config_id for c in configs.page(customer="acme")] == [config.config_id]


class TestStart:
    """Starts outside the schedule."""

    def test_an_event_driven_config_starts_by_a_call(self, desk: Harness) -> None:
        """A call starts a config with its parameters, its limits and the message id."""
        config = desk.config(event_topic="orders", parameters={"days": 3}, priority=7)
        (run_id,) = desk.client.configs.start(
            config.config_id, message_id="m1", trigger_source="message"
        )
        held = desk.take()
        assert (held.run_id, held.parameters, held.priority) == (run_id, '{"days": 3}', 7)
        assert (held.trigger_source, held.trigger_message_id) == ("message", "m1")
        assert (held.max_execution_us, held.sla_us) == (HOUR, 30 * MINUTE)

    def test_skip_refuses_a_second_run(self, desk: Harness) -> None:
        """With `skip`, no run starts while a scheduled or manual run is live."""
        config = desk.config()
        desk.clock.advance(HOUR)
        desk.tick()
        before = desk.counts()
        message = start_refused(desk, config)
        assert "overlap is skip" in message
        assert encode("run", desk.column("SELECT run_id FROM runs")[0]) in message
        held = desk.take()
        start_refused(desk, config)
        assert desk.counts() == before
        desk.complete(held)
        assert desk.client.configs.start(config.config_id)
        desk.clock.advance(HOUR)
        assert desk.tick().overlapped == 1

    def test_queue_lets_one_wait(self, desk: Harness) -> None:
        """With `queue`, one run waits for the live one; a third is refused."""
        config = desk.config(overlap="queue", event_topic="orders")
        first = desk.client.configs.start(config.config_id)
        second = desk.client.configs.start(config.config_id)
        assert "already waiting" in start_refused(desk, config)
        held = desk.take()
        assert [held.run_id] == first
        assert desk.claim() == []
        desk.complete(held)
        desk.admitter.run_once()
        assert [desk.take().run_id] == second
        assert desk.client.configs.start(config.config_id)

    def test_allow_runs_concurrently(self, desk: Harness) -> None:
        """With `allow`, every start runs, even several at once and at a scheduled time."""
        config = desk.config(overlap="allow")
        desk.clock.advance(HOUR)
        for _ in range(3):
            assert len(desk.client.configs.start(config.config_id)) == 1
        assert desk.tick().runs == 1
        assert len(desk.client.configs.start(config.config_id)) == 1
        occurrences = desk.occurrences(config.config_id)
        assert len(set(occurrences)) == 5
        assert desk.clock.now() in occurrences
        assert len(desk.claim()) == 5

    def test_both_entries_start_together(self, desk: Harness) -> None:
        """A start of a pipeline with two entry processors starts both of them."""
        config = desk.config(pipeline_template="pair", event_topic="orders", overlap="queue")
        ids = desk.client.configs.start(config.config_id)
        assert len(ids) == 2
        assert [held.run_id for held in desk.claim()] == ids

    def test_a_paused_config_starts_later(self, desk: Harness) -> None:
        """A run started during a pause waits until the pause is lifted."""
        config = desk.config(event_topic="orders")
        desk.client.pauses.pause("config", encode("cfg", config.config_id))
        ids = desk.client.configs.start(config.config_id)
        assert desk.claim() == []
        desk.client.pauses.resume("config", encode("cfg", config.config_id))
        desk.admitter.run_once()
        assert [desk.take().run_id] == ids


class TestReading:
    """Reading of configs."""

    def test_pages(self, desk: Harness) -> None:
        """Pages are ordered by id and filtered; `after` continues after the last id."""
        made = [desk.config(f"c{i % 2}").config_id for i in range(5)]
        desk.client.configs.disable(made[0])
        configs = desk.client.configs
        assert [c.config_id for c in configs.page(limit=2)] == made[:2]
        assert [c.config_id for c in configs.page(after=made[1])] == made[2:]
        assert [c.config_id for c in configs.page(is_active=False)] == made[:1]
        assert [c.config_id for c in configs.page(customer="c1")] == made[1::2]
        assert configs.page(pipeline="pair") == []
        with pytest.raises(InvalidInput, match="pipeline"):
            configs.page(pipeline="none")
        with pytest.raises(InvalidInput, match="limit"):
            configs.page(limit=-1)
        with pytest.raises(NotFound):
            configs.audit("unknown")

    def test_preview_notes_daylight_saving(self, desk: Harness) -> None:
        """A preview lists the next occurrences, with a note where clocks go forward."""
        desk.clock.advance_to(parse_iso("2026-03-27T12:00:00Z"))
        config = desk.config(schedule_cron="30 2 * * *", timezone="Europe/Paris")
        occurrences = desk.client.configs.preview(config.config_id, 3)
        assert [occurrence.local[:16] for occurrence in occurrences] == [
            "2026-03-28T02:30", "2026-03-29T03:00", "2026-03-30T02:30",
        ]  # fmt: skip
        assert [occurrence.note is None for occurrence in occurrences] == [True, False, True]
        assert "does not exist" in (occurrences[1].note or "")
        assert occurrences[0].at == config.next_run_time
        n: Any
        for n in (0, 1001, True, "5", 1.5, None):
            with pytest.raises(InvalidInput, match="n: expected"):
                desk.client.configs.preview(config.config_id, n)

    def test_preview_of_an_interval_keeps_its_phase(self, desk: Harness) -> None:
        """The preview matches the actual occurrences, even if the scheduler is behind."""
        config = desk.config(schedule_interval_minutes=45)
        desk.clock.advance(DAY + 123)
        occurrences = desk.client.configs.preview(config.config_id, 2)
        desk.tick()
        assert desk.client.configs.get(config.config_id).next_run_time == occurrences[0].at
        event = desk.config(event_topic="orders")
        assert desk.client.configs.preview(event.config_id) == []
