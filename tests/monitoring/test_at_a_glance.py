"""What pages show at a glance: outcomes of configs, causes of failures, retention."""

from __future__ import annotations

from datetime import timedelta

import pytest

from penstock.bus.message import NewMessage
from penstock.bus.records import Subscription, Topic
from penstock.core.clock import DAY, HOUR, to_datetime
from penstock.core.errors import InvalidInput
from penstock.core.ids import encode
from penstock.services.store import Retention, prune
from tests.kits.client_harness import Harness


def test_configs_say_how_they_went_and_what_is_next(harness: Harness) -> None:
    client = harness.client
    late = harness.config(schedule_cron="0 5 * * *")
    soon = harness.config(customer="other", schedule_cron="0 3 * * *")
    for ends in ("complete", "fail", "fail"):
        harness.start(late, trigger_source="scheduler")
        getattr(harness, ends)(harness.take())
    one = client.configs.get(encode("cfg", late.config_id))
    assert (one.outcomes, one.consecutive_failures) == ("cff", 2)
    assert one.failures_until_disabled is not None
    assert one.schedule_text == "every day at 05:00, UTC"
    failing = [found.config_id for found in client.configs.list(is_failing=True).items]
    assert failing == [one.config_id]

    first = client.configs.list(sort="next_run_time", limit=1)
    rest = client.configs.list(sort="next_run_time", limit=5, cursor=first.next_cursor)
    ids = [found.config_id for found in (*first.items, *rest.items)]
    by_time = sorted((soon, late), key=lambda row: row.next_run_time or 0)
    assert ids == [encode("cfg", row.config_id) for row in by_time]
    until = to_datetime((by_time[0].next_run_time or 0) + 1)
    assert [found.config_id for found in client.configs.list(due_before=until).items] == ids[:1]
    assert client.scoped("other").configs.list(is_failing=True).items == []
    with pytest.raises(InvalidInput, match="is_failing"):
        client.configs.list(is_failing=True, sort="next_run_time")


def test_outcomes_keep_the_last_fourteen(harness: Harness) -> None:
    config = harness.config()
    for number in range(16):
        harness.start(config)
        held = harness.take()
        harness.fail(held) if number == 15 else harness.complete(held)
    assert harness.client.configs.get(encode("cfg", config.config_id)).outcomes == "c" * 13 + "f"


def test_dead_runs_that_failed_alike(harness: Harness) -> None:
    client = harness.client
    harness.dead_run()
    harness.clock.advance(2 * DAY)
    alike = [harness.dead_run(), harness.dead_run(customer="other")]
    harness.clock.advance(HOUR)
    alike.append(harness.dead_run())
    found = client.runs.detail(encode("run", alike[0])).similar
    assert found is not None
    assert (found.runs, found.customers) == (3, 2)
    own = client.scoped("other").runs.detail(encode("run", alike[1])).similar
    assert own is not None
    assert (own.runs, own.customers, own.fingerprint) == (1, 1, found.fingerprint)
    (group,) = client.dead_letters.groups()
    assert (group.count, group.fingerprint, group.fingerprints) == (4, found.fingerprint, 1)
    assert (len(group.buckets), sum(group.buckets), group.buckets[-2:]) == (24, 3, [2, 1])
    assert client.runs.detail(encode("run", harness.submit())).similar is None


def test_until_when_it_is_kept(harness: Harness) -> None:
    client = harness.client
    run_id = encode("run", harness.dead_run())
    assert client.runs.detail(run_id).still_kept_until is None
    harness.write(lambda tx: prune(tx, Retention(history_us=30 * DAY, dead_letters_us=DAY)))
    run = client.runs.detail(run_id)
    assert run.run.finished_at is not None
    assert run.still_kept_until == run.run.finished_at + timedelta(days=30)
    assert client.dead_letters.get(run_id).still_kept_until == run.still_kept_until
    client.dead_letters.discard(run_id, "a test")
    until = client.dead_letters.get(run_id).still_kept_until
    assert until == to_datetime(harness.clock.now() + DAY)


def test_a_dry_run_of_seek_and_purge_counts(harness: Harness) -> None:
    client = harness.client
    client.topics.create(Topic(name="rosters"))
    client.subscriptions.declare(Subscription(name="reader", topic="rosters"))
    client.topics.publish("rosters", [NewMessage(data=b"1"), NewMessage(data=b"2")])
    harness.clock.advance(HOUR)
    first, _ = client.subscriptions.pull("reader")
    client.subscriptions.ack("reader", [first.ack_id])
    dry = client.dry_run().subscriptions
    back = to_datetime(harness.clock.now() - 2 * HOUR)
    sought = dry.seek("reader", back)
    assert (sought.delivered_again, sought.purged) == (1, 0)
    assert dry.seek("reader", to_datetime(harness.clock.now() + HOUR)).purged == 1
    assert dry.purge("reader") == 1
    assert client.subscriptions.purge("reader") == 1
    assert dry.purge("reader") == 0
    assert client.subscriptions.seek("reader", back).delivered_again == 2
