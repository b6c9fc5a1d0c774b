"""Invalid input to the bus over HTTP: both engines respond and store alike, never with 5xx."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.bus.incoming.inlet import NAME, Inlet, issuer_keys, token
from tests.bus.test_envelope import INVALID, VALID
from tests.kits.egress import Receiver
from tests.kits.served import Serve
from tests.server.kit import ServedApi
from tests.server.pair import Pair, verdict
from tests.server.test_corpus import NAMES

pytestmark = pytest.mark.postgres

TABLES = ("topics", "messages", "deliveries", "settled", "dead_letters", "journal", "audit")
PUBLISH = "/topics/corpus/publish"
READER = "/subscriptions/corpus-reader"

Stored = list[tuple[bytes, dict[str, str], str | None]]


class Buses(Pair):
    """The API over both engines, with one database each for the whole corpus."""

    def __init__(self, sqlite: ServedApi, postgres: ServedApi, keys: Receiver) -> None:
        self.inlets = [Inlet(served, keys) for served in (sqlite, postgres)]
        for inlet in self.inlets:
            for topic in ("orders", "orders.dlq", "corpus"):
                inlet.reads(topic)
        super().__init__(sqlite, postgres, *TABLES)

    def stored(self, topic: str) -> Stored:
        """Return what was published to a topic since the last call, equal on both engines."""
        both = [
            [(one.data, dict(one.attributes), one.ordering_key) for one in inlet.drained(topic)]
            for inlet in self.inlets
        ]
        assert both[0] == both[1]
        return both[0]


@pytest.fixture(scope="module")
def buses(serve: Serve) -> Iterator[Buses]:
    """Return two served databases that accept pushes and publish requests."""
    with issuer_keys() as keys, serve("sqlite") as sqlite, serve("postgres") as postgres:
        yield Buses(sqlite, postgres, keys)


# -- pushed in ------------------------------------------------------------------------------------


def addressed(whole: bytes, message_id: str = "7") -> bytes:
    """Return an envelope of the table for the served subscription, with a unique id."""
    whole = whole.replace(b"subscriptions/s", f"subscriptions/{NAME}".encode())
    return whole.replace(b'"7"', f'"{message_id}"'.encode())


GOOD_SENT = {
    name: addressed(whole, f"id-{place}") for place, (name, (whole, _)) in enumerate(VALID.items())
}
NO_SUBSCRIPTION = GOOD_SENT.pop("no subscription")
POISON = {name: addressed(whole) for name, (whole, _) in INVALID.items()} | {
    "no subscription": NO_SUBSCRIPTION,
    "unwrapped": b'{"a": 1}',
}


LARGEST = ("million names", "ten megabytes of lists", "deep", "deep lists")


@pytest.mark.parametrize("dead_letters", [True, False], ids=["dlq", "no-dlq"])
def test_envelopes(buses: Buses, dead_letters: bool) -> None:
    """Poison is refused, or stored as a dead letter, by policy; valid envelopes are stored."""
    for inlet in buses.inlets:
        inlet.install(dead_letters=dead_letters)
    bearer = f"Bearer {token()}"

    def push(body: bytes) -> tuple[int, str, tuple[str, ...]]:
        path = f"/pubsub/push/{NAME}"
        return verdict(buses.ask("POST", path, body, role=None, Authorization=bearer))

    # The largest are refused before the policy applies; one of them is stored nevertheless.
    poison = {name: body for name, body in POISON.items() if dead_letters or name not in LARGEST}
    for name, body in poison.items():
        status, _, fields = push(body)
        assert status == (400 if dead_letters else 204), name
        assert bool(fields) == dead_letters, (name, "a refusal names the field")
    for name, body in GOOD_SENT.items():
        assert push(body)[0] == 204, name
    kept = sorted(data for data, _, _ in buses.stored("orders.dlq"))
    assert kept == ([] if dead_letters else sorted(set(poison.values())))
    # Under the second policy every valid message exists already.
    expected = [data for name, (_, data) in VALID.items() if name in GOOD_SENT]
    assert [data for data, _, _ in buses.stored("orders")] == (expected if dead_letters else [])


# -- published ------------------------------------------------------------------------------------


def message(**fields: Any) -> bytes:
    """Return a request that publishes one message."""
    return json.dumps({"messages": [{"data": "aGk=", **fields}]}).encode()


def valued(text: str) -> bytes:
    """Return a request whose only attribute has this JSON value."""
    return f'{{"messages": [{{"data": "aGk=", "attributes": {{"k": {text}}}}}]}}'.encode()


REFUSED: dict[str, tuple[bytes, int]] = {
    "nothing": (b"", 400), "white space": (b" \n", 400), "null": (b"null", 400),
    "a list": (b"[" + message() + b"]", 400), "a number": (b"7", 400),
    "no messages": (b"{}", 400), "none": (b'{"messages": []}', 400),
    "messages null": (b'{"messages": null}', 400), "one message": (b'{"messages": {}}', 400),
    "unknown names": (message(data_base64="aGk="), 400),
    "bom": (b"\xef\xbb\xbf" + message(), 400), "trailing garbage": (message() + b"x", 400),
    "utf-16": (message().decode().encode("utf-16"), 400), "two documents": (message() * 2, 400),
    "names twice": (b'{"messages": [], "messages": [{"data": "aGk="}]}', 400),
    "names equal after NFC": (message(attributes={"é": "1", "e\u0301": "2"}), 400),
    "NaN": (valued("NaN"), 400), "Infinity": (valued("-Infinity"), 400),
    "1e999": (valued("1e999"), 400), "-0": (valued("-0"), 400), "a boolean": (valued("true"), 400),
    "5000 digits": (valued("9" * 5_000), 400), "2^53 + 1": (valued("9007199254740993"), 400),
    "value null": (valued("null"), 400), "nested": (valued("{}"), 400),
    "NUL": (valued('"\\u0000"'), 400), "lone surrogate": (valued('"\\ud800"'), 400),
    "half a pair": (valued('"\\udc00\\ud800"'), 400), "not utf-8": (b'{"messages": "\xff"}', 400),
    "depth 100,000": (valued("[" * 100_000), 400), "objects": (b'{"messages":' * 80_000, 400),
    "90,000 names": (b"{" + b",".join(b'"%d":0' % n for n in range(90_000)) + b"}", 400),
    "1001 messages": (json.dumps({"messages": [{"data": "aGk="}] * 1_001}).encode(), 400),
    "data null": (message(data=None), 400), "data a number": (message(data=7), 400),
    "bad base64": (message(data="!!!"), 400), "no padding": (message(data="YQ"), 400),
    "url-safe": (message(data="_-8="), 400), "line breaks": (message(data="YWJj\nYWJj"), 400),
    "not ascii": (message(data="ÿÿÿÿ"), 400), "neither": (message(data=""), 400),
    "attributes list": (message(attributes=["k"]), 400),
    "101 attributes": (message(attributes={f"k{n}": "v" for n in range(101)}), 400),
    "name of 257 bytes": (message(attributes={"k" * 257: "v"}), 400),
    "no name": (message(attributes={"": "v"}), 400),
    "value of 1026 bytes": (message(attributes={"k": "é" * 513}), 400),
    "spoofed": (message(attributes={"CloudPubSubDeadLetterSourceDeliveryCount": "5"}), 400),
    "spoofed, ours": (message(attributes={"Penstock-Replays": "0"}), 400),
    "spoofed, client": (message(attributes={"googclient_deliveryattempt": "5"}), 400),
    "key of 1026 bytes": (message(ordering_key="é" * 513), 400),
    "key a number": (message(ordering_key=7), 400), "no dedupe id": (message(dedupe_id=""), 400),
    "dedupe id of 256 bytes": (message(dedupe_id="x" * 256), 400),
    "a megabyte": (message(data="aaaa" * 300_000), 413),
}  # fmt: skip
TAKEN: dict[str, dict[str, Any]] = {
    "every byte": {"data": base64.b64encode(bytes(range(256)) * 3).decode()},
    "a hundred attributes": {"attributes": {f"k{n}": "v" for n in range(100)}},
    "longest": {"attributes": {"k" * 256: "v" * 1_024}, "ordering_key": "é" * 512},
    "no data": {"data": "", "attributes": {"k": ""}},
    "empty key": {"ordering_key": ""},
    "brackets": {"attributes": {"k": "[{" * 500}},
    "a pair": {"attributes": {"\U0001f600": "\u202e\u200b\ufeff"}},
    "longest dedupe id": {"dedupe_id": "x" * 255},
}


class TestPublishing:
    """`POST /topics/{topic}/publish`."""

    def test_refused(self, buses: Buses) -> None:
        """Each document of the table is refused alike and stores nothing."""
        for name, (body, status) in REFUSED.items():
            reply = buses.ask("POST", PUBLISH, body, role="worker")
            assert reply.status == status, (name, reply.body)
        assert buses.stored("corpus") == []

    def test_accepted(self, buses: Buses) -> None:
        """Unusual but valid messages are delivered unchanged."""
        for name, fields in TAKEN.items():
            reply = buses.ask("POST", PUBLISH, message(**fields), role="worker")
            assert reply.status == 200, (name, reply.body)
        assert buses.stored("corpus") == [as_stored(fields) for fields in TAKEN.values()]

    def test_names(self, buses: Buses) -> None:
        """Hostile text in every field is stored unchanged or refused alike."""
        taken = []
        for name in NAMES:
            whole = {"attributes": {"k": name}, "ordering_key": name, "dedupe_id": name}
            for fields in ({"attributes": {name: "v"}}, whole):
                reply = buses.ask("POST", PUBLISH, message(**fields), role="worker")
                assert reply.status in (200, 400), (fields, reply.body)
                if reply.status == 200:
                    taken.append(as_stored(fields))
            for path, body in (
                ("/topics", {"name": name}),
                ("/subscriptions", {"name": "filtered", "topic": "corpus", "filter": name}),
            ):
                reply = buses.ask("POST", path, body, role="operator")
                assert reply.status in (200, 201, 400), (path, body, reply.body)
        assert len(taken) > len(NAMES)
        assert buses.stored("corpus") == taken


def as_stored(fields: dict[str, Any]) -> tuple[bytes, dict[str, str], str | None]:
    """Return a published message as a subscriber receives it."""
    data = base64.b64decode(fields.get("data", "aGk="))
    return data, fields.get("attributes", {}), fields.get("ordering_key") or None


# -- settled --------------------------------------------------------------------------------------


def abuse(served: ServedApi) -> list[Any]:
    """Misuse a delivery in every way; return the status and outcome of each."""
    by, outcomes = served.by("operator"), []
    by.ok("POST", "/topics", {"name": "abused"})
    for name in ("mine", "yours"):
        asked = {"name": name, "topic": "abused", "ack_deadline_seconds": 10, "replays_max": 1}
        by.ok("POST", "/subscriptions", asked)

    def say(verb: str, body: dict[str, Any], name: str = "mine") -> None:
        reply = by.post(f"/subscriptions/{name}/{verb}", body)
        outcomes.append((verb, *verdict(reply)[:2], (reply.json.get("outcomes") or [""])[0]))

    def held() -> str:
        by.ok("POST", "/topics/abused/publish", {"messages": [{"data": "aGk="}]})
        (one,) = by.ok("POST", "/subscriptions/mine/pull", {})["received_messages"]
        return str(one["ack_id"])

    untried = held()
    for _ in range(2):
        say("release", {"ack_ids": [untried]})
    say("ack", {"ack_ids": [untried]})
    (again,) = by.ok("POST", "/subscriptions/mine/pull", {})["received_messages"]
    assert (again["ack_id"] != untried, again["delivery_attempt"]) == (True, 1)
    by.ok("POST", "/subscriptions/mine/ack", {"ack_ids": [again["ack_id"]]})
    acked = held()
    for verb in ("ack", "ack"):
        say(verb, {"ack_ids": [acked]})
    say("nack", {"nacks": [{"ack_id": acked}]})
    say("extend", {"ack_ids": [acked], "ack_deadline_seconds": 60})
    say("release", {"ack_ids": [acked]})
    foreign = held()
    for verb, body in (
        ("ack", {"ack_ids": [foreign]}),
        ("nack", {"nacks": [{"ack_id": foreign, "kind": "poison"}]}),
        ("extend", {"ack_ids": [foreign], "ack_deadline_seconds": 60}),
        ("release", {"ack_ids": [foreign]}),
    ):
        say(verb, body, "yours")
    for seconds in (601, -1, 0.5, "60", None, 0):
        say("extend", {"ack_ids": [foreign], "ack_deadline_seconds": seconds})
    expired = held()
    served.harness.clock.advance(seconds=60)
    while by.ok("POST", "/subscriptions/mine/pull", {})["received_messages"]:
        pass  # returned deliveries come first; an empty pull ends lapsed ones
    say("ack", {"ack_ids": [expired]})
    for forged in ("", "x", "\u0000", acked[:-1], acked + "0", acked.upper() + "é", "0" * 5_000):
        say("ack", {"ack_ids": [forged]})
    say("ack", {"ack_ids": [acked] * 1_001})
    return outcomes


def replayed(served: ServedApi) -> list[Any]:
    """Replay a dead letter, replay it again, then discard it."""
    by, outcomes = served.by("operator"), []
    by.ok("POST", "/topics/abused/publish", {"messages": [{"data": "aGk="}]})
    dead_letter = ""
    for _ in range(2):
        (one,) = by.ok("POST", "/subscriptions/yours/pull", {"max_messages": 1})[
            "received_messages"
        ]  # fmt: skip
        poison = {"ack_id": one["ack_id"], "kind": "poison"}
        by.ok("POST", "/subscriptions/yours/nack", {"nacks": [poison]})
        (found, *_) = by.ok("GET", "/dead-letters?subscription=yours")["items"]
        dead_letter = found["dead_letter_id"]
        for _ in range(2):
            reply = by.post(f"/dead-letters/{dead_letter}/replay", None)
            outcomes.append(verdict(reply)[:2])
    reply = by.post(f"/dead-letters/{dead_letter}/discard", {"reason": "x"})
    outcomes.append(verdict(reply)[:2])
    reply = by.post(f"/dead-letters/{dead_letter}/replay", None)
    outcomes.append(verdict(reply)[:2])
    return outcomes


ABUSED = [
    ("release", 200, "", "done"), ("release", 200, "", "stale"), ("ack", 200, "", "stale"),
    ("ack", 200, "", "done"), ("ack", 200, "", "stale"), ("nack", 200, "", "stale"),
    ("extend", 200, "", "stale"), ("release", 200, "", "stale"),  # acked
    ("ack", 200, "", "stale"), ("nack", 200, "", "stale"), ("extend", 200, "", "stale"),
    ("release", 200, "", "stale"),  # foreign
    *[("extend", 400, "input.invalid", "")] * 5, ("extend", 200, "", "done"),  # 601 … 0
    ("ack", 200, "", "stale"),  # expired
    *[("ack", 400, "input.invalid", "")] * 8,  # forged, too many
]  # fmt: skip
REPLAYED = [
    (200, ""), (409, "conflict"),  # twice
    (409, "conflict"), (409, "conflict"),  # of a replay, beyond the maximum
    (200, ""), (409, "conflict"),  # discarded
]  # fmt: skip


def test_state_abuse(buses: Buses) -> None:
    """Repeated, foreign, late and forged requests get the same responses on both engines."""
    for served in buses.each:
        assert abuse(served) == ABUSED
        assert replayed(served) == REPLAYED
