"""Dead letters: the local and the remote client agree."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from penstock.bus.message import ErrorKind, Nack, NewMessage
from penstock.bus.records import Subscription, Topic
from penstock.core.errors import ApiError, Conflict, InvalidInput, NotFound
from penstock.core.ids import encode
from penstock.dead_letters.records import DeadLetterEdit, DiscardRequest, ReplayRequest
from penstock.remote.client import RemoteClient
from tests.remote.test_same_records import remote, same
from tests.server.kit import ServedApi

__all__ = ["remote"]


@pytest.fixture
def dead(served: ServedApi, remote: RemoteClient) -> RemoteClient:
    """Return a client of an API with a dead run and three dead messages."""
    served.harness.dead_run()
    remote.topics.create(Topic(name="rosters"))
    remote.subscriptions.declare(Subscription(name="reader", topic="rosters"))
    messages = [NewMessage(data=data) for data in (b"one", b"two", b"\xff")]
    remote.topics.publish("rosters", messages)
    pulled = remote.subscriptions.pull("reader")
    nacks = [Nack(ack_id=one.ack_id, kind=ErrorKind.POISON, error_type="SCHEMA") for one in pulled]
    remote.subscriptions.nack("reader", nacks)
    return remote


def test_reads(served: ServedApi, dead: RemoteClient) -> None:
    """Lists, pages, groups and details are equal."""
    same(served, dead, "dead_letters", "list", status="all", customer="acme")
    same(served, dead, "dead_letters", "groups")
    same(served, dead, "dead_letters", "groups", check=False)
    for group in dead.dead_letters.groups():
        assert group.checked == group.replayable == group.count
        same(served, dead, "dead_letters", "list", group=group.group)
    request = ReplayRequest(group="delivery/reader/SCHEMA", is_dry_run=True)
    same(served, dead, "dead_letters", "replay_matching", request)
    first = dead.dead_letters.list(limit=3)
    assert first.next_cursor is not None
    same(served, dead, "dead_letters", "list", limit=3, cursor=first.next_cursor)
    future = datetime(2200, 1, 1, tzinfo=UTC)
    assert dead.dead_letters.list(since=future).items == []
    same(served, dead, "dead_letters", "list", until=future, subscription="reader")
    for one in dead.dead_letters.list().items:
        same(served, dead, "dead_letters", "get", one.dead_letter_id)
    binary = dead.dead_letters.get(first.items[0].dead_letter_id).message
    assert binary is not None
    assert (binary.data, binary.text) == (b"\xff", None)
    (run,) = dead.dead_letters.list(kind="run").items
    assert run.run_id is not None
    same(served, dead, "dead_letters", "get", run.run_id)
    request = ReplayRequest(subscription="reader", is_dry_run=True)
    same(served, dead, "dead_letters", "replay_matching", request)


def test_replays(served: ServedApi, dead: RemoteClient) -> None:
    """One dead letter edited, and the others in steps."""
    newest, *_ = dead.dead_letters.list(kind="delivery").items
    done = dead.dead_letters.replay(newest.dead_letter_id, DeadLetterEdit(data=b"three"))
    assert (done.dead_letter_id, done.replayed_as) == (newest.dead_letter_id, newest.message_id)
    (again,) = dead.subscriptions.pull("reader")
    assert again.message.data == b"three"
    step = dead.dead_letters.replay_matching(ReplayRequest(kind="delivery", limit=1, rate=0.1))
    assert (step.matched, len(step.replayed), step.left) == (2, 1, 1)
    last = served.harness.client.dead_letters.replay_matching(
        ReplayRequest(kind="delivery", limit=1, before=step.next_before, start_at=step.next_at)
    )
    assert (last.matched, len(last.replayed)) == (1, 1)
    (run,) = dead.dead_letters.list(kind="run").items
    assert dead.dead_letters.replay(run.dead_letter_id).replayed_as.startswith("run_")


def test_discard_by_filter(served: ServedApi, dead: RemoteClient) -> None:
    """A dry run is equal on both; a step over the API discards."""
    would = DiscardRequest(subscription="reader", limit=2, reason="a test", is_dry_run=True)
    same(served, dead, "dead_letters", "discard_matching", would)
    step = dead.dead_letters.discard_matching(
        DiscardRequest(subscription="reader", limit=2, reason="a test")
    )
    assert (step.matched, len(step.discarded), step.left) == (3, 2, 1)
    assert served.harness.client.dead_letters.count(subscription="reader") == 1


def test_discard(served: ServedApi, dead: RemoteClient) -> None:
    """A dead letter is discarded by its id or by its run's, once."""
    (run,) = dead.dead_letters.list(kind="run").items
    assert run.run_id is not None
    dead.dead_letters.discard(run.run_id, "a test")
    detail = served.harness.client.dead_letters.get(run.dead_letter_id)
    assert (detail.dead_letter.status, detail.dead_letter.resolution) == ("discarded", "a test")
    with pytest.raises(Conflict, match="not an open dead letter"):
        dead.dead_letters.discard(run.run_id, "again")


def test_a_repeated_discard_has_the_same_response(served: ServedApi, dead: RemoteClient) -> None:
    """A request that returns no resource is stored under its idempotency key, too."""
    newest, *_ = dead.dead_letters.list().items
    path, body = f"/dead-letters/{newest.dead_letter_id}/discard", {"reason": "a test"}
    replies = [
        served.by("operator").call("POST", path, body, {"Idempotency-Key": "k"}) for _ in range(2)
    ]
    assert [reply.json for reply in replies] == [{"status": "done"}] * 2


def test_errors(dead: RemoteClient) -> None:
    """Errors have the class and the field of the local client; a count has no route."""
    with pytest.raises(NotFound, match="dead letter"):
        dead.dead_letters.get(encode("dl", 10**9))
    with pytest.raises(InvalidInput, match="before"):
        dead.dead_letters.replay_matching(ReplayRequest(before="dl_?"))
    with pytest.raises(InvalidInput, match="reason"):
        dead.dead_letters.discard(encode("dl", 1), "")
    with pytest.raises(ApiError, match="not part of the API"):
        dead.dead_letters.count()
