"""Alerts, dead letters and idempotency keys."""

import json
import threading

import pytest

from penstock.access.store import registry
from penstock.audit.rows import AlertFilter, NewAlert
from penstock.audit.store import alerts, journal
from penstock.core.clock import DAY, MINUTE, SECOND
from penstock.core.errors import Conflict, DuplicateRequest
from penstock.db.store import Tx
from penstock.dead_letters.store import (
    DeadLetterRowFilter,
    dead_letter_find,
    dead_letter_get,
    dead_letter_resolve_many,
)
from penstock.services import store
from tests.conftest import OpenStore
from tests.kits.world import World


def alert(key: str = "k", **fields: object) -> NewAlert:
    """An alert about a config."""
    values = {
        "rule": "config_failing", "dedupe_key": key, "severity": "MEDIUM",
        "subject_kind": "config", "subject": 1, "message": "it fails",
    }  # fmt: skip
    return NewAlert(**{**values, **fields})  # type: ignore[arg-type]


class TestAlerts:
    """One row while it is open, however often its condition recurs."""

    def test_counts_while_open(self, world: World) -> None:
        """A repeated alert counts on the open row, with the newest text, and is announced once."""
        world.write(lambda tx: registry.topic_ensure(tx, "penstock.alerts"))
        one = world.write(lambda tx: alerts.alert_open(tx, alert(customer_key=world.customer)))
        opened_at = world.clock.now()
        world.clock.advance(SECOND)
        again = alert(
            message="still", severity="HIGH", detail={"n": 4}, customer_key=world.customer
        )
        assert world.write(lambda tx: alerts.alert_open(tx, again)) == one
        (row,) = world.read(alerts.alert_list)
        assert (row.alert_id, row.times, row.state) == (one, 2, "open")
        assert (row.message, row.severity, json.loads(row.detail)) == ("still", "HIGH", {"n": 4})
        assert (row.opened_at, row.last_at) == (opened_at, world.clock.now())
        assert (row.customer_id, row.closed_at) == ("acme", None)
        (message,) = world.write(lambda tx: journal.outbox_take(tx, 10))
        assert message.topic == "penstock.alerts"
        assert json.loads(message.payload)["alert_id"] == one

    def test_without_a_topic(self, world: World) -> None:
        """Without a topic, no announcement stays in the outbox."""
        world.write(lambda tx: alerts.alert_open(tx, alert(customer_key=world.customer)))
        assert world.write(lambda tx: journal.outbox_take(tx, 10)) == []

    def test_resolve_and_reopen(self, world: World) -> None:
        """A resolved alert stays unchanged; the next occurrence opens a new one."""
        one = world.write(lambda tx: alerts.alert_open(tx, alert()))
        assert world.write(lambda tx: alerts.alert_resolve(tx, "k", "ann"))
        assert not world.write(lambda tx: alerts.alert_resolve(tx, "k", "ann"))
        two = world.write(lambda tx: alerts.alert_open(tx, alert()))
        assert two > one
        rows = world.read(alerts.alert_list)
        assert [(row.alert_id, row.state, row.closed_by) for row in rows] == [
            (two, "open", None), (one, "resolved", "ann"),
        ]  # fmt: skip

    def test_filters(self, world: World) -> None:
        """Lists are newest first and filter by state and customer."""
        (beta,) = world.customers("beta")
        one = world.write(lambda tx: alerts.alert_open(tx, alert("1", customer_key=world.customer)))
        two = world.write(lambda tx: alerts.alert_open(tx, alert("2", customer_key=beta)))
        three = world.write(lambda tx: alerts.alert_open(tx, alert("3")))
        world.write(lambda tx: alerts.alert_resolve(tx, "1", "ann"))

        def ids(**fields: object) -> list[int]:
            limit = int(fields.pop("limit", 50))  # type: ignore[call-overload]
            wanted = AlertFilter(**fields)  # type: ignore[arg-type]
            rows = world.read(lambda tx: alerts.alert_list(tx, wanted, limit=limit))
            return [row.alert_id for row in rows]

        assert ids() == [three, two, one]
        assert ids(limit=1) == [three]
        assert ids(state="open") == [three, two]
        assert ids(customer_key=world.customer) == [one]
        assert ids(customer_key=world.customer, state="open") == []

    def test_severity_is_checked(self, world: World) -> None:
        """An unknown severity is refused and nothing is announced."""
        with pytest.raises(Exception, match=r"(?i)check"):
            world.write(lambda tx: alerts.alert_open(tx, alert(severity="DIRE")))
        assert world.read(journal.outbox_count)[0] == 0


class TestDeadLetters:
    """Dead runs, until a person decides."""

    def die(self, world: World, n: int, **fields: object) -> list[int]:
        """End runs as dead. Return their ids."""
        held = [world.running(**fields) for _ in range(n)]
        world.fail(*held, is_dead=True)
        return [h.run_id for h in held]

    def test_pages_and_filters(self, world: World) -> None:
        """Dead letters are listed newest first, by customer and status, page by page."""
        (beta,) = world.customers("beta")
        own = self.die(world, 4)
        foreign = self.die(world, 1, customer_key=beta)

        def subjects(**fields: object) -> list[int]:
            wanted = DeadLetterRowFilter(**fields)  # type: ignore[arg-type]
            rows = world.read(lambda tx: dead_letter_find(tx, wanted))
            return [row.subject for row in rows]

        assert subjects() == [*foreign, *reversed(own)]
        assert subjects(customer=beta) == foreign
        assert subjects(status="replayed") == []
        page = world.read(lambda tx: dead_letter_find(tx, DeadLetterRowFilter(), limit=2))
        last = page[-1].dead_letter_id
        rest = world.read(lambda tx: dead_letter_find(tx, DeadLetterRowFilter(), before=last))
        assert [row.subject for row in page + rest] == subjects()

    @pytest.mark.parametrize(("status", "replays"), [("replayed", 1), ("discarded", 0)])
    def test_resolve_once(self, world: World, status: str, replays: int) -> None:
        """A dead letter is resolved once; a second decision changes nothing."""
        (run_id,) = self.die(world, 1)
        dead_letter = world.read(lambda tx: dead_letter_get(tx, run_id=run_id))
        assert dead_letter is not None

        def resolve(tx: Tx) -> set[int]:
            closed = [(dead_letter.dead_letter_id, "ok")]
            return dead_letter_resolve_many(tx, closed, status=status, actor="ann")

        assert world.write(resolve)
        before = world.dump("dead_letters")
        world.clock.advance(MINUTE)
        assert not world.write(resolve)
        assert world.dump("dead_letters") == before
        (row,) = world.read(lambda tx: dead_letter_find(tx, DeadLetterRowFilter(status=None)))
        assert (row.status, row.replays) == (status, replays)
        assert world.read(lambda tx: dead_letter_find(tx, DeadLetterRowFilter())) == []


class TestRequests:
    """A client can repeat a request safely."""

    def ask(self, world: World, key: str, body: bytes, response: object) -> object:
        """Handle a request: return the stored response, or do the work and store it."""

        def handle(tx: Tx) -> object:
            earlier = alerts.request_begin(tx, "acme:submit", key, body)
            if earlier is not None:
                return earlier
            alerts.request_finish(tx, "acme:submit", key, response)
            return response

        return world.write(handle)

    def test_same_body(self, world: World) -> None:
        """The same request gets the first response again."""
        assert self.ask(world, "k", b"x", {"run": 1}) == {"run": 1}
        assert self.ask(world, "k", b"x", {"run": 2}) == {"run": 1}
        assert self.ask(world, "other", b"x", {"run": 3}) == {"run": 3}

    def test_different_body(self, world: World) -> None:
        """The same key with another body is refused and changes nothing."""
        self.ask(world, "k", b"x", 1)
        before = world.dump("requests")
        with pytest.raises(DuplicateRequest):
            self.ask(world, "k", b"y", 2)
        assert world.dump("requests") == before

    def test_unanswered(self, world: World) -> None:
        """A key whose first request has not finished is in use."""
        world.write(lambda tx: alerts.request_begin(tx, "acme:submit", "k", b"x"))
        with pytest.raises(Conflict):
            self.ask(world, "k", b"x", 1)

    def test_failed_request_frees_its_key(self, world: World) -> None:
        """A request that rolled back leaves its key free."""

        def body(tx: Tx) -> None:
            alerts.request_begin(tx, "acme:submit", "k", b"x")
            raise RuntimeError("no")

        with pytest.raises(RuntimeError):
            world.write(body)
        assert self.ask(world, "k", b"y", 7) == 7

    def test_scopes_are_separate(self, world: World) -> None:
        """Two callers may use the same key."""
        self.ask(world, "k", b"x", 1)
        begin = alerts.request_begin
        assert world.write(lambda tx: begin(tx, "beta:submit", "k", b"y")) is None

    def test_expires_after_a_day(self, world: World) -> None:
        """A key can be used again once it has expired and was pruned."""
        self.ask(world, "k", b"x", 1)
        world.clock.advance(DAY)
        assert world.write(lambda tx: store.prune(tx, store.Retention()))["requests"] == 0
        assert self.ask(world, "k", b"x", 2) == 1
        world.clock.advance(1)
        assert world.write(lambda tx: store.prune(tx, store.Retention()))["requests"] == 1
        assert self.ask(world, "k", b"y", 2) == 2

    def test_racing(self, world: World, open_store: OpenStore) -> None:
        """Of many equal requests at once, one is executed, and all get its response."""
        worlds = [World(open_store(), world.clock) for _ in range(3)]
        responses: list[object] = []

        def race(number: int) -> None:
            for _ in range(10):
                try:
                    responses.append(self.ask(worlds[number], "k", b"x", number))
                except Conflict:
                    responses.append(None)

        threads = [threading.Thread(target=race, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(responses) == 30
        assert len({response for response in responses if response is not None}) == 1
