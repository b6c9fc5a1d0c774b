"""Pauses at every level, on both engines."""

from typing import Any

import pytest

from penstock.audit.store.journal import journal_for
from penstock.core.clock import HOUR, to_datetime
from penstock.core.errors import InvalidInput, NotFound
from penstock.core.ids import encode
from penstock.schedules.records import PauseScope
from penstock.schedules.rows import ConfigRow
from penstock.schedules.store.configs import audit_verify
from tests.kits.client_harness import Harness
from tests.kits.configs import cfg, config_row


def subjects(harness: Harness) -> list[tuple[PauseScope, str | None, int]]:
    """Return each scope with a subject that covers acme's config, and the subject's key."""
    config = first_config(harness)
    return [
        ("all", None, 0),
        ("customer", "acme", config.customer_key),
        ("pipeline", "nightly", config.pipeline_key),
        ("config", cfg(config), config.config_id),
    ]


def first_config(harness: Harness) -> ConfigRow:
    """Return the row of acme's first config."""
    return config_row(
        harness.client, harness.client.configs.list(customer="acme").items[0].config_id
    )


class TestLevels:
    """Pauses of a config, a customer, a pipeline and everything."""

    def test_a_pause_stops_what_it_covers(self, harness: Harness) -> None:
        """At every level, covered occurrences go to the ledger and covered runs wait."""
        config, free = (
            harness.config(),
            harness.config("free", pipeline_template="outside", overlap="allow"),
        )
        ann = harness.client.as_actor("ann")
        for scope, subject, _ in subjects(harness):
            assert ann.pauses.pause(scope, subject, reason="r").is_changed
            assert not harness.client.pauses.pause(scope, subject).is_changed
            (pause,) = harness.client.pauses.list()
            assert (pause.scope, pause.subject, pause.paused_by) == (scope, subject, "ann")
            harness.clock.advance(HOUR)
            tick = harness.tick()
            assert tick.paused == (2 if scope == "all" else 1)
            assert harness.ledger(config.config_id)[-1] == (
                harness.clock.now(), harness.clock.now(), 1, "paused",
            )  # fmt: skip
            assert harness.client.pauses.resume(scope, subject).is_changed
            assert not harness.client.pauses.resume(scope, subject).is_changed
            harness.clock.advance(HOUR)
            assert harness.tick().paused == 0
            assert harness.occurrences(config.config_id)[-1] == harness.clock.now()
            assert harness.drain() == 1
            harness.complete(*harness.claim(pool="external"))
        assert len(harness.ledger(config.config_id)) == 4
        assert len(harness.occurrences(config.config_id)) == 4
        assert len(harness.occurrences(free.config_id)) == 7

    def test_each_change_is_recorded(self, harness: Harness) -> None:
        """Each pause and resume is in the journal, and audited if it concerns a customer."""
        harness.config()
        for scope, subject, number in subjects(harness):
            harness.client.as_actor("ann").pauses.pause(scope, subject, reason="why")
            harness.client.as_actor("bob").pauses.resume(scope, subject)
            rows = harness.store.read(lambda tx, s=scope, n=number: journal_for(tx, s, n))  # type: ignore[misc]
            assert [(row.action, row.actor) for row in rows] == [
                ("paused", "ann"), ("resumed", "bob"),
            ]  # fmt: skip
            assert rows[0].why == "why"
        entries = harness.client.configs.audit("acme").items
        actions = [(a.action, a.config_id is None) for a in entries]
        assert actions == [
            ("CREATED", False), ("PAUSED", True), ("RESUMED", True), ("PAUSED", False),
            ("RESUMED", False),
        ]  # fmt: skip
        customer = first_config(harness).customer_key
        assert harness.write(lambda tx: audit_verify(tx, customer)) == (5, None)

    def test_ready_and_later_runs_stop(self, harness: Harness) -> None:
        """Runs that waited before the pause are claimed only after it is lifted."""
        ready, later = harness.submit(), harness.submit(at=to_datetime(harness.clock.now() + HOUR))
        other = harness.submit(customer="other")
        harness.client.pauses.pause("customer", "acme")
        assert [run.run_id for run in harness.claim()] == [other]
        harness.clock.advance(2 * HOUR)
        harness.admitter.run_once()
        assert harness.claim() == []
        fresh = harness.submit()
        harness.client.pauses.resume("customer", "acme")
        harness.admitter.run_once()
        assert sorted(run.run_id for run in harness.claim()) == [ready, later, fresh]

    def test_overlapping_pauses(self, harness: Harness) -> None:
        """A run waits until the last pause that covers it is lifted."""
        run_id = harness.submit()
        harness.client.pauses.pause("customer", "acme")
        harness.client.pauses.pause("pipeline", "nightly")
        harness.client.pauses.resume("customer", "acme")
        harness.admitter.run_once()
        assert harness.claim() == []
        harness.client.pauses.resume("pipeline", "nightly")
        harness.admitter.run_once()
        assert harness.take().run_id == run_id

    def test_running_runs_continue(self, harness: Harness) -> None:
        """A pause does not affect running runs, but their retries wait."""
        harness.submit()
        held = harness.take()
        harness.client.pauses.pause("all", None)
        (ended,) = harness.fail(held, error_type="TRANSIENT_NETWORK")
        harness.clock.advance(HOUR)
        harness.admitter.run_once()
        assert harness.claim() == []
        harness.client.pauses.resume("all", None)
        harness.admitter.run_once()
        assert harness.take().run_id == ended.retry_run_id


class TestSubjects:
    """Subjects that can be paused."""

    def test_bad_subjects_are_refused(self, harness: Harness) -> None:
        """Unknown scopes and subjects are refused and change nothing."""
        harness.config()
        before = harness.counts()
        bad: list[tuple[Any, Any, type[Exception]]] = [
            ("world", None, InvalidInput), ("customer", None, InvalidInput),
            ("customer", "", InvalidInput), ("customer", "unknown", NotFound),
            ("customer", "a b", InvalidInput), ("pipeline", "none", InvalidInput),
            ("config", "7", InvalidInput), ("config", encode("run", 1), InvalidInput),
            ("config", encode("cfg", 999), NotFound), (None, None, InvalidInput),
        ]  # fmt: skip
        for scope, subject, error in bad:
            with pytest.raises(error):
                harness.client.pauses.pause(scope, subject)
            with pytest.raises(error):
                harness.client.pauses.resume(scope, subject)
        assert harness.counts() == before

    def test_a_pause_outlives_its_config(self, harness: Harness) -> None:
        """Runs that wait under a pause of a deleted config can still be resumed."""
        config = harness.config(event_topic="orders")
        name = cfg(config)
        harness.client.pauses.pause("config", name)
        (run_id,) = harness.start(config)
        harness.client.configs.delete(cfg(config))
        with pytest.raises(NotFound):
            harness.client.pauses.pause("config", name)
        assert harness.client.pauses.resume("config", name).is_changed
        harness.admitter.run_once()
        assert harness.take().run_id == run_id
