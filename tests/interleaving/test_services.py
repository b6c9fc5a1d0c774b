"""Schedulers, config changes, pauses, the outbox, the audit chain and seals against each other."""

from collections.abc import Sequence

import pytest

from penstock.audit.rows import Entry, OutboxMessage
from penstock.audit.store.journal import journal_append_many, outbox_put, seals_verify
from penstock.client import Client
from penstock.core.clock import MINUTE
from penstock.core.naming import CustomerKey
from penstock.db.store import Store, Tx
from penstock.runs.sweeper import Sweeper
from penstock.schedules.scheduler import Scheduler, SchedulerOptions
from penstock.schedules.store.configs import Change, audit_append, audit_verify
from penstock.services.upkeep import OutboxPublisher, seal_block
from tests.harness.interleaving import Act, Outcome, exhaust, explore
from tests.interleaving.stage import Stage, claim_act, finish_act, submit_act
from tests.kits.configs import cfg, change_of

pytestmark = pytest.mark.postgres


def tick(store: Store) -> object:
    return Scheduler(store, SchedulerOptions(batch=2)).run_once()


def slots_once(stage: Stage) -> None:
    """Check that no occurrence of a config started twice, in the queue or in history."""
    twice = stage.sql(
        "SELECT config_id, slot FROM (SELECT config_id, slot, processor FROM runs"
        " WHERE trigger_source = 'scheduler' UNION ALL SELECT config_id, slot, processor"
        " FROM history WHERE trigger_source = 'scheduler') AS r"
        " GROUP BY config_id, slot, processor HAVING count(*) > 1"
    )
    assert not twice, f"occurrences started twice: {twice}"


def ledger_and_runs(stage: Stage, config_id: int) -> int:
    """Return how many occurrences of a config are accounted for."""
    runs = stage.value("SELECT count(*) FROM runs WHERE config_id = %s", config_id)
    done = stage.value("SELECT count(*) FROM history WHERE config_id = %s", config_id)
    other = stage.value(
        "SELECT coalesce(sum(slots), 0)::bigint FROM ledger WHERE config_id = %s", config_id
    )
    return int(runs + done + other)


@pytest.mark.parametrize("overlap", ["skip", "queue", "allow"])
def test_two_schedulers_start_each_occurrence_once(stage: Stage, overlap: str) -> None:
    def scene():  # type: ignore[no-untyped-def]
        stage.empty()
        ids = [stage.config(overlap=overlap) for _ in range(3)]
        stage.clock.advance(5 * MINUTE)
        tick(stage.store)
        stage.clock.advance(5 * MINUTE)

        def check(_: list[Outcome]) -> None:
            tick(stage.store)
            slots_once(stage)
            for config_id in ids:
                assert ledger_and_runs(stage, config_id) == 2
            free = stage.value("SELECT max(n) FROM (SELECT count(*) AS n FROM runs"
                               " WHERE admission <> 3 GROUP BY config_id) AS r")  # fmt: skip
            assert free == (2 if overlap == "allow" else 1)

        return [tick, tick], check

    assert explore(stage.arena, scene, range(12)) > 3


def test_a_tick_against_the_end_of_the_run_before(stage: Stage) -> None:
    def scene():  # type: ignore[no-untyped-def]
        stage.empty()
        config_id = stage.config(overlap="queue")
        stage.clock.advance(5 * MINUTE)
        tick(stage.store)
        held = stage.claim(stage.session())
        stage.clock.advance(5 * MINUTE)

        def check(_: list[Outcome]) -> None:
            Sweeper(stage.store, jitter=lambda: 0.0).run_once()
            slots_once(stage)
            assert ledger_and_runs(stage, config_id) == 2
            stuck = stage.value("SELECT count(*) FROM runs WHERE admission = 3")
            assert stuck == 0, "the next run is stuck behind nothing"

        return [tick, finish_act(held)], check

    assert explore(stage.arena, scene, range(20)) > 3


def test_a_tick_against_a_change_of_the_config(stage: Stage) -> None:
    for change in ({"schedule_interval_minutes": 7}, {"is_active": False}, {"priority": 9}):

        def scene(change=change):  # type: ignore[no-untyped-def]
            stage.empty()
            config_id = stage.config()
            stage.clock.advance(5 * MINUTE)

            def update(store: Store) -> None:
                client = Client(store)
                client._names._cache.declared = stage.client._names._cache.declared
                client.configs.update(cfg(config_id), change_of(change))

            def check(_: list[Outcome]) -> None:
                slots_once(stage)
                clock = stage.sql("SELECT next_run_time, evaluated_to FROM schedule")
                if "is_active" in change:
                    assert clock == []
                    return
                tick(stage.store)
                assert ledger_and_runs(stage, config_id) == 1
                problem = stage.store.write(lambda tx: audit_verify(tx, CustomerKey(_acme(stage))))[
                    1
                ]
                assert problem is None

            return [tick, update], check

        assert explore(stage.arena, scene, range(10)) > 2


def _acme(stage: Stage) -> int:
    return int(stage.value("SELECT customer FROM customers WHERE customer_id = 'acme'"))


def test_a_pause_against_inserts_covers_all_after_a_sweep(stage: Stage) -> None:
    def scene():  # type: ignore[no-untyped-def]
        stage.empty()
        stage.submit(1)

        def pause(store: Store) -> None:
            Client(store).pauses.pause("customer", "acme", reason="race")

        def check(_: list[Outcome]) -> None:
            Sweeper(stage.store, jitter=lambda: 0.0).run_once()
            assert stage.value("SELECT count(*) FROM runs WHERE admission <> 2") == 0

        return [pause, submit_act(stage), submit_act(stage, n=2)], check

    assert explore(stage.arena, scene, range(20)) > 5


def test_the_outbox_publisher_never_misses_a_slow_producer(stage: Stage) -> None:
    def scene():  # type: ignore[no-untyped-def]
        stage.empty()
        seen: list[str] = []

        def produce(name: str) -> Act:
            def body(tx: Tx) -> None:
                outbox_put(tx, "t", f"{name}1")
                outbox_put(tx, "t", f"{name}2")

            return lambda store: store.write(body)

        def publish(store: Store) -> None:
            publish_outbox(seen, store)

        def check(_: list[Outcome]) -> None:
            publish(stage.store)
            assert sorted(seen) == ['"a1"', '"a2"', '"b1"', '"b2"']

        return [produce("a"), produce("b"), publish], check

    assert explore(stage.arena, scene, range(20)) > 5


def publish_outbox(seen: list[str], store: Store) -> None:
    """Run the outbox publisher once, with a subscriber that records its messages."""

    def subscriber(tx: Tx, messages: Sequence[OutboxMessage]) -> None:
        got = [message.payload for message in messages]
        tx.after_commit(lambda: seen.extend(got))

    made = OutboxPublisher(store, batch=10)
    made.subscribe(subscriber)
    made.run_once()


def test_audit_links_follow_each_other(stage: Stage) -> None:
    def scene():  # type: ignore[no-untyped-def]
        stage.empty()
        stage.submit(1)
        customer = _acme(stage)

        def append(name: str) -> Act:
            changes = [
                Change(CustomerKey(customer), name, None, "me"),
                Change(CustomerKey(customer), f"{name}2", None, "me"),
            ]
            return lambda store: store.write(lambda tx: audit_append(tx, changes))

        def check(_: list[Outcome]) -> None:
            assert stage.store.write(lambda tx: audit_verify(tx, CustomerKey(customer))) == (
                6,
                None,
            )

        return [append("a"), append("b"), append("c")], check

    assert exhaust(stage.arena, scene, 60) > 3


def test_seals_wait_for_slow_writers(stage: Stage) -> None:
    def scene():  # type: ignore[no-untyped-def]
        stage.empty()

        def note(n: int) -> Act:
            def body(tx: Tx) -> None:
                journal_append_many(tx, [Entry("test", n, None, "first", "me")])
                journal_append_many(tx, [Entry("test", n, None, "second", "me")])

            return lambda store: store.write(body)

        def seal(store: Store) -> None:
            for _ in range(2):
                seal_block(store, 10)

        def check(_: list[Outcome]) -> None:
            seal_block(stage.store, 10)
            assert stage.store.read(seals_verify)[1:] == (4, None)

        return [note(1), note(2), seal, seal], check

    assert explore(stage.arena, scene, range(20)) > 5


def test_a_claim_against_a_tick_and_an_insert(stage: Stage) -> None:
    def scene():  # type: ignore[no-untyped-def]
        stage.empty()
        stage.config()
        stage.submit(1)
        stage.clock.advance(5 * MINUTE)
        session_id = stage.session()

        def check(outcomes: list[Outcome]) -> None:
            taken = [run.run_id for run in outcomes[2].value]
            assert len(taken) == len(set(taken))
            assert stage.value("SELECT count(*) FROM runs") == 3
            assert stage.value("SELECT count(*) FROM runs WHERE admission = 9") == len(taken)

        return [tick, submit_act(stage), claim_act(stage, session_id)], check

    assert explore(stage.arena, scene, range(15)) > 5
