"""Pauses at every level, on both engines."""

from typing import Any

import pytest

from penstock.audit.store.journal import journal_for
from penstock.core.clock import HOUR
from penstock.core.errors import InvalidInput, NotFound
from penstock.core.ids import encode
from penstock.schedules.store.configs import audit_verify
from tests.kits.desk import Harness


def subjects(desk: Harness) -> list[tuple[str, str | None, int]]:
    """Return each scope with a subject that covers acme's config, and the subject's key."""
    config = desk.client.configs.page(customer="acme")[0]
    return [
        ("all", None, 0),
        ("customer", "acme", config.customer_key),
        ("pipeline", "nightly", config.pipeline_key),
        ("config", encode("cfg", config.config_id), config.config_id),
    ]


class TestLevels:
    """Pauses of a config, a customer, a pipeline and everything."""

    def test_a_pause_stops_what_it_covers(self, desk: Harness) -> None:
        """At every level, covered occurrences go to the ledger and covered runs wait."""
        config, free = (
            desk.config(),
            desk.config("free", pipeline_template="outside", overlap="allow"),
        )
        for scope, subject, number in subjects(desk):
            assert desk.client.pauses.pause(scope, subject, reason="r", actor="ann")
            assert not desk.client.pauses.pause(scope, subject)
            (pause,) = desk.client.pauses.in_force()
            assert (pause.scope, pause.subject, pause.paused_by) == (scope, number, "ann")
            desk.clock.advance(HOUR)
            tick = desk.tick()
            assert tick.paused == (2 if scope == "all" else 1)
            assert desk.ledger(config.config_id)[-1] == (
                desk.clock.now(), desk.clock.now(), 1, "paused",
            )  # fmt: skip
            assert desk.client.pauses.resume(scope, subject)
            assert not desk.client.pauses.resume(scope, subject)
            desk.clock.advance(HOUR)
            assert desk.tick().paused == 0
            assert desk.occurrences(config.config_id)[-1] == desk.clock.now()
            assert desk.drain() == 1
            desk.complete(*desk.claim(pool="external"))
        assert len(desk.ledger(config.config_id)) == 4
        assert len(desk.occurrences(config.config_id)) == 4
        assert len(desk.occurrences(free.config_id)) == 7

    def test_each_change_is_recorded(self, desk: Harness) -> None:
        """Each pause and resume is in the journal, and audited if it concerns a customer."""
        desk.config()
        for scope, subject, number in subjects(desk):
            desk.client.pauses.pause(scope, subject, reason="why", actor="ann")
            desk.client.pauses.resume(scope, subject, actor="bob")
            rows = desk.store.read(lambda tx, s=scope, n=number: journal_for(tx, s, n))  # type: ignore[misc]
            assert [(row.action, row.actor) for row in rows] == [
                ("paused", "ann"), ("resumed", "bob"),
            ]  # fmt: skip
            assert rows[0].why == "why"
        actions = [(a.action, a.config_id is None) for a in desk.client.configs.audit("acme")]
        assert actions == [
            ("CREATED", False), ("PAUSED", True), ("RESUMED", True), ("PAUSED", False),
            ("RESUMED", False),
        ]  # fmt: skip
        customer = desk.client.configs.page()[0].customer_key
        assert desk.write(lambda tx: audit_verify(tx, customer)) == (5, None)

    def test_ready_and_later_runs_stop(self, desk: Harness) -> None:
        """Runs that waited before the pause are claimed only after it is lifted."""
        ready, later = desk.submit(), desk.submit(at=desk.clock.now() + HOUR)
        other = desk.submit(customer="other")
        desk.client.pauses.pause("customer", "acme")
        assert [run.run_id for run in desk.claim()] == [other]
        desk.clock.advance(2 * HOUR)
        desk.admitter.run_once()
        assert desk.claim() == []
        fresh = desk.submit()
        desk.client.pauses.resume("customer", "acme")
        desk.admitter.run_once()
        assert sorted(run.run_id for run in desk.claim()) == [ready, later, fresh]

    def test_overlapping_pauses(self, desk: Harness) -> None:
        """A run waits until the last pause that covers it is lifted."""
        run_id = desk.submit()
        desk.client.pauses.pause("customer", "acme")
        desk.client.pauses.pause("pipeline", "nightly")
        desk.client.pauses.resume("customer", "acme")
        desk.admitter.run_once()
        assert desk.claim() == []
        desk.client.pauses.resume("pipeline", "nightly")
        desk.admitter.run_once()
        assert desk.take().run_id == run_id

    def test_running_runs_continue(self, desk: Harness) -> None:
        """A pause does not affect running runs, but their retries wait."""
        desk.submit()
        held = desk.take()
        desk.client.pauses.pause("all", None)
        (ended,) = desk.fail(held, error_type="TRANSIENT_NETWORK")
        desk.clock.advance(HOUR)
        desk.admitter.run_once()
        assert desk.claim() == []
        desk.client.pauses.resume("all", None)
        desk.admitter.run_once()
        assert desk.take().run_id == ended.retry_run_id


class TestSubjects:
    """Subjects that can be paused."""

    def test_bad_subjects_are_refused(self, desk: Harness) -> None:
        """Unknown scopes and subjects are refused and change nothing."""
        desk.config()
        before = desk.counts()
        bad: list[tuple[Any, Any, type[Exception]]] = [
            ("world", None, InvalidInput), ("customer", None, InvalidInput),
            ("customer", "", InvalidInput), ("customer", "unknown", NotFound),
            ("customer", "a b", InvalidInput), ("pipeline", "none", InvalidInput),
            ("config", "7", InvalidInput), ("config", encode("run", 1), InvalidInput),
            ("config", encode("cfg", 999), NotFound), (None, None, InvalidInput),
        ]  # fmt: skip
        for scope, subject, error in bad:
            with pytest.raises(error):
                desk.client.pauses.pause(scope, subject)
            with pytest.raises(error):
                desk.client.pauses.resume(scope, subject)
        assert desk.counts() == before

    def test_a_pause_outlives_its_config(self, desk: Harness) -> None:
        """Runs that wait under a pause of a deleted config can still be resumed."""
        config = desk.config(event_topic="orders")
        name = encode("cfg", config.config_id)
        desk.client.pauses.pause("config", name)
        (run_id,) = desk.client.configs.start(config.config_id)
        desk.client.configs.delete(config.config_id)
        with pytest.raises(NotFound):
            desk.client.pauses.pause("config", name)
        assert desk.client.pauses.resume("config", name)
        desk.admitter.run_once()
        assert desk.take().run_id == run_id
