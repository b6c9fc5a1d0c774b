"""Groups of dead letters: their names as a filter, and how many of them can be replayed."""

from __future__ import annotations

import pytest

from penstock.audit.store.kept import HISTORY, kept_record
from penstock.bus.message import ErrorKind, Nack, NewMessage
from penstock.bus.records import Subscription, Topic
from penstock.core.clock import DAY, HOUR, MINUTE, from_datetime
from penstock.core.errors import InvalidInput
from penstock.dead_letters import store as subject
from penstock.dead_letters.client import group_checks
from penstock.dead_letters.group_name import GroupKey, group_name, parse_group
from penstock.dead_letters.records import DeadLetterGroup, ReplayRequest
from penstock.flows.records import CompletionReport
from penstock.pipelines.declare.pipeline import Pipeline
from tests.dead_letters.test_reports import shop
from tests.kits.client_harness import Harness

RUNS = "run/nightly/main/work/VALIDATION_ERROR"
DELIVERIES = "delivery/reader/SCHEMA"


def kill_messages(harness: Harness, *payloads: bytes, error_type: str = "SCHEMA") -> None:
    """Publish messages that the subscription `reader` cannot read."""
    client = harness.client
    client.topics.create(Topic(name="rosters"))
    client.subscriptions.declare(Subscription(name="reader", topic="rosters"))
    client.topics.publish("rosters", [NewMessage(data=data) for data in payloads])
    refuse(harness, error_type)


def refuse(harness: Harness, error_type: str = "SCHEMA") -> None:
    """Refuse every message that `reader` gets."""
    nacks = [
        Nack(ack_id=one.ack_id, kind=ErrorKind.POISON, error_type=error_type)
        for one in harness.client.subscriptions.pull("reader")
    ]
    harness.client.subscriptions.nack("reader", nacks)


def found(harness: Harness, **filters: object) -> dict[str, DeadLetterGroup]:
    """Return the groups by name."""
    groups = harness.client.dead_letters.groups(**filters)  # type: ignore[arg-type]
    return {one.group: one for one in groups}


def whys(group: DeadLetterGroup) -> list[tuple[str, int]]:
    """Return the reasons of a group, the first words of each."""
    return [(one.why, one.count) for one in group.refused_reasons]


class TestNames:
    """A name is a key as text."""

    @pytest.mark.parametrize(
        ("key", "name"),
        [
            (GroupKey("run", "nba", "load", "scrape", None, "X"), "run/nba/load/scrape/X"),
            (GroupKey("delivery", None, None, None, "a/b", "5% ü"), "delivery/a%2Fb/5%25%20%C3%BC"),
            (GroupKey("delivery", "nba", None, None, "reader", "X"), "delivery/nba/reader/X"),
            (GroupKey("delivery", None, None, None, None, "X"), "delivery//X"),
            (GroupKey("run", None, None, None, None, "X"), "run////X"),
        ],
    )  # fmt: skip
    def test_there_and_back(self, key: GroupKey, name: str) -> None:
        """Every part survives, whatever characters it has."""
        assert group_name(key) == name
        assert parse_group(name) == key

    @pytest.mark.parametrize(
        "name", ["", "run", "run/nba/X", "flow/a/b/c/X", "delivery/a/", "/a/X"]
    )
    def test_other_texts(self, name: str) -> None:
        """Anything else is refused with an example."""
        with pytest.raises(InvalidInput, match="run/nightly"):
            parse_group(name)


class TestFilter:
    """The name of a group selects exactly its dead letters."""

    def test_lists_counts_and_replays(self, harness: Harness) -> None:
        """Lists, counts, groups and replays take it, alone or with other filters."""
        for _ in range(2):
            harness.dead_run()
        harness.dead_run(pipeline="pair", processor="left")
        kill_messages(harness, b"one", b"two", b"three")
        inbox = harness.client.dead_letters
        groups = found(harness)
        other = "run/pair/entry/left/VALIDATION_ERROR"
        assert {name: one.count for name, one in groups.items()} == {
            RUNS: 2,
            other: 1,
            DELIVERIES: 3,
        }
        for name, group in groups.items():
            listed = inbox.list(group=name).items
            assert len(listed) == inbox.count(group=name) == group.count
            assert listed[0].dead_letter_id == group.latest
            assert [one.group for one in inbox.groups(group=name)] == [name]
            assert inbox.count(group=name, status="all") == group.count
            assert inbox.count(group=name, error_type="OTHER") == 0
            assert inbox.count(group=name, customer="acme") == (
                0 if name == DELIVERIES else group.count
            )
        assert inbox.count(group=RUNS, processor="left") == 0
        for unknown in ("run/nightly/other/work/VALIDATION_ERROR", "delivery/x/SCHEMA",
                        "delivery//SCHEMA", "delivery/nightly/reader/SCHEMA",
                        "run/nightly/main/work/OTHER"):  # fmt: skip
            assert inbox.count(group=unknown) == 0
            assert inbox.list(group=unknown).items == []
        with pytest.raises(InvalidInput, match="group"):
            inbox.list(group="?")
        step = inbox.replay_matching(ReplayRequest(group=DELIVERIES))
        assert (step.matched, len(step.replayed), inbox.count()) == (3, 3, 3)

    def test_another_customer_sees_none(self, harness: Harness) -> None:
        """The filter does not reach beyond the caller's customer."""
        harness.dead_run()
        harness.submit(customer="other")
        other = harness.client.scoped("other").dead_letters
        assert (other.list(group=RUNS).items, other.groups()) == ([], [])

    def test_the_rest_of_an_origin_is_not_visited(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One page finds a dead letter behind many of the same subscription with another error."""
        monkeypatch.setattr(subject, "VISITED_FIRST", 2)
        monkeypatch.setattr(subject, "VISITED_MAX", 4)
        kill_messages(harness, b"rare", error_type="RARE")
        harness.client.topics.publish("rosters", [NewMessage(data=b"x") for _ in range(9)])
        refuse(harness)
        page = harness.client.dead_letters.list(group="delivery/reader/RARE", limit=5)
        assert (len(page.items), page.next_cursor) == (1, None)


class TestChecks:
    """How many a replay would accept, and why not the others."""

    def test_what_can_be_replayed(self, harness: Harness) -> None:
        """Without an obstacle all of them; the reasons name each obstacle."""
        harness.dead_run()
        kill_messages(harness, b"one", b"two")
        groups = found(harness)
        for one in groups.values():
            assert (one.checked, one.replayable, one.refused_reasons) == (one.count, one.count, [])
        (plain, *_) = harness.client.dead_letters.groups(check=False)
        assert (plain.checked, plain.replayable) == (None, None)
        assert found(harness, status="replayed") == {}
        other = Pipeline("nightly")
        other.phase("main").external("something_else")
        harness.client.register([other])
        harness.clock.advance(seconds=5)
        harness.client.subscriptions.delete("reader")
        groups = found(harness)
        assert whys(groups[RUNS]) == [("the processor is no longer declared", 1)]
        assert whys(groups[DELIVERIES]) == [("the subscription is deleted", 2)]
        assert groups[RUNS].replayable == groups[DELIVERIES].replayable == 0
        refused = harness.client.dead_letters.replay_matching(
            ReplayRequest(is_dry_run=True)
        ).refused
        assert len(refused) == 3, "the replay itself agrees"

    def test_replayed_three_times(self, harness: Harness) -> None:
        """A run that was replayed three times by filter is refused; newer ones are not."""
        harness.dead_run()
        inbox = harness.client.dead_letters
        for _ in range(3):
            assert found(harness)[RUNS].replayable == 1
            harness.clock.advance(HOUR)
            assert len(inbox.replay_matching(ReplayRequest()).replayed) == 1
            harness.fail(harness.take())
        harness.dead_run()
        group = found(harness)[RUNS]
        assert (group.count, group.checked, group.replayable) == (2, 2, 1)
        ((why, n),) = whys(group)
        assert (why.startswith("already replayed 3 times"), n) == (True, 1)
        assert len(inbox.replay_matching(ReplayRequest(is_dry_run=True)).refused) == 1

    def test_messages_replayed_as_often_as_allowed(self, harness: Harness) -> None:
        """The subscription's maximum counts; a message under delivery is no obstacle of others."""
        kill_messages(harness, b"one")
        inbox = harness.client.dead_letters
        for _ in range(3):
            assert found(harness)[DELIVERIES].replayable == 1
            inbox.replay_matching(ReplayRequest())
            refuse(harness)
            harness.clock.advance(MINUTE)
        group = found(harness)[DELIVERIES]
        assert (group.replayable, group.checked) == (0, 1)
        assert whys(group) == [
            ("already replayed as often as the subscription allows (replays_max)", 1)
        ]

    def test_reports(self, harness: Harness) -> None:
        """A report of an unknown processor can be replayed once it is registered."""
        harness.client.register([shop("orders")])
        report = CompletionReport(
            pipeline="shop", processor="stock", partition="2025-11-17", customer="acme"
        )
        assert harness.client.flows.complete(report).outcome == "dead"
        name = "delivery//UNKNOWN_PROCESSOR"
        assert whys(found(harness)[name]) == [("the reported processor is not registered", 1)]
        harness.client.register([shop("orders", "stock")])
        harness.clock.advance(seconds=5)
        assert found(harness)[name].replayable == 1

    def test_a_sample_of_many(self, harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of a large group the newest are checked; every group gets its share."""
        monkeypatch.setattr(group_checks, "CHECKED_EACH", 3)
        monkeypatch.setattr(group_checks, "CHECKED_MAX", 4)
        for _ in range(5):
            harness.dead_run()
        kill_messages(harness, b"one", b"two")
        groups = found(harness)
        assert (groups[RUNS].count, groups[RUNS].checked) == (5, 2)
        assert (groups[DELIVERIES].count, groups[DELIVERIES].checked) == (2, 2)

    def test_kept_until(self, harness: Harness) -> None:
        """The oldest open one is kept as long as history."""
        harness.dead_run()
        assert found(harness)[RUNS].keeps_until is None, "no retention was applied yet"
        harness.store.write(lambda tx: kept_record(tx, {HISTORY: 30 * DAY}))
        harness.clock.advance(HOUR)
        harness.dead_run()
        group = found(harness)[RUNS]
        assert group.keeps_until is not None
        assert from_datetime(group.keeps_until) == from_datetime(group.first_at) + 30 * DAY
        assert found(harness, status="all")[RUNS].keeps_until is None
