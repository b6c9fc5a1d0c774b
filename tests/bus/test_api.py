"""The bus over HTTP, on both engines: publish, pull, settle, dead letters and their replay."""

from __future__ import annotations

import base64
import threading
from typing import Any

from tests.server.kit import Served

READER = "/subscriptions/reader"


def b64(text: str) -> str:
    """Text as a message's data."""
    return base64.b64encode(text.encode()).decode()


def made(served: Served, **more: Any) -> None:
    """A topic with one reader."""
    by = served.by("operator")
    assert by.post("/topics", {"name": "rosters"}).status == 201
    by.ok("POST", "/subscriptions", {"name": "reader", "topic": "rosters", **more})


def published(served: Served, *texts: str, **more: Any) -> list[str]:
    """Publish messages; their ids."""
    messages = [{"data": b64(text), **more} for text in texts]
    told = served.by("worker").ok("POST", "/topics/rosters/publish", {"messages": messages})
    found: list[str] = told["message_ids"]
    return found


def pulled(served: Served, n: int = 10) -> list[dict[str, Any]]:
    """Take messages."""
    told = served.by("worker").ok("POST", f"{READER}/pull", {"max_messages": n})
    found: list[dict[str, Any]] = told["received_messages"]
    return found


def test_a_messages_life(served: Served) -> None:
    """Published once, delivered, given back, delivered again, acked; findable all along."""
    made(served)
    worker, viewer = served.by("worker"), served.by("viewer")
    body = {"messages": [{"data": b64("one"), "dedupe_id": "first"}]}
    (first,) = worker.ok("POST", "/topics/rosters/publish", body)["message_ids"]
    assert worker.ok("POST", "/topics/rosters/publish", body)["message_ids"] == [first]
    other = {"messages": [{"data": b64("two"), "dedupe_id": "first"}]}
    assert worker.post("/topics/rosters/publish", other).status == 422
    (one,) = pulled(served)
    assert base64.b64decode(one["message"]["data"]) == b"one"
    assert (one["message"]["message_id"], one["delivery_attempt"]) == (first, 1)
    assert pulled(served) == []
    nack = {"nacks": [{"ack_id": one["ack_id"], "error_type": "TIMEOUT", "error": "too slow"}]}
    assert worker.ok("POST", f"{READER}/nack", nack)["outcomes"] == ["done"]
    assert worker.ok("POST", f"{READER}/ack", {"ack_ids": [one["ack_id"]]})["outcomes"] == ["stale"]
    (place,) = viewer.ok("GET", f"/messages/{first}")["deliveries"]
    assert (place["state"], place["last_error"]) == ("delayed", "TIMEOUT: too slow")
    served.desk.clock.advance(seconds=60)
    (two,) = pulled(served)
    assert two["delivery_attempt"] == 2
    told = [worker.ok("POST", f"{READER}/ack", {"ack_ids": [two["ack_id"]]}) for _ in range(2)]
    assert [one["outcomes"] for one in told] == [["done"], ["stale"]]
    (place,) = viewer.ok("GET", f"/messages/{first}")["deliveries"]
    assert place["state"] == "acked"
    sums = viewer.ok("GET", READER)["sums"]
    assert (sums["accepted"], sums["delivered"], sums["nacked"], sums["acked"]) == (1, 2, 1, 1)


def test_dead_letters(served: Served) -> None:
    """Poison dies at once, is shown in full, replayed as it is or edited, and at last refused."""
    made(served, replays_max=2)
    (message_id,) = published(served, "bad", attributes={"partition": "2025-12-31"})
    operator = served.by("operator")

    def die() -> str:
        (one,) = pulled(served)
        nack = {"ack_id": one["ack_id"], "kind": "poison", "error_type": "SCHEMA", "error": "no"}
        operator.ok("POST", f"{READER}/nack", {"nacks": [nack]})
        (letter,) = operator.ok("GET", "/dead-letters?subscription=reader")["items"]
        assert (letter["message_id"], letter["error_kind"]) == (message_id, "poison")
        assert (letter["topic"], letter["partition"]) == ("rosters", "2025-12-31")
        found: str = letter["dead_letter_id"]
        return found

    letter = die()
    detail = operator.ok("GET", f"/dead-letters/{letter}")
    assert (detail["message"]["text"], detail["run"]) == ("bad", None)
    assert detail["message"]["attributes"] == {"partition": "2025-12-31"}
    (group,) = operator.ok("GET", "/dead-letters/groups?kind=delivery")["items"]
    assert (group["subscription"], group["count"], group["latest"]) == ("reader", 1, letter)
    told = operator.ok("POST", f"/dead-letters/{letter}/replay")
    assert told["replayed_as"] == message_id
    assert operator.post(f"/dead-letters/{letter}/replay", None).status == 409
    letter = die()
    told = operator.ok("POST", f"/dead-letters/{letter}/replay", {"data": b64("good")})
    (one,) = pulled(served)
    assert base64.b64decode(one["message"]["data"]) == b"good"
    assert one["message"]["attributes"]["penstock-origin-message-id"] == message_id
    assert one["message"]["attributes"]["penstock-replays"] == "2"
    nack = {"ack_id": one["ack_id"], "kind": "poison"}
    operator.ok("POST", f"{READER}/nack", {"nacks": [nack]})
    (last,) = operator.ok("GET", "/dead-letters?kind=delivery")["items"]
    refused = operator.post(f"/dead-letters/{last['dead_letter_id']}/replay", None)
    assert (refused.status, "replays_max 2" in refused.json["detail"]) == (409, True)
    step = operator.ok("POST", "/dead-letters/replay", {"subscription": "reader"})
    assert (step["replayed"], len(step["refused"])) == ([], 1)
    for data in ("*", "é", "YQ", "a\u00adQ=="):
        bad = operator.post(f"/dead-letters/{last['dead_letter_id']}/replay", {"data": data})
        assert (bad.status, bad.json["errors"][0]["field"]) == (400, "data"), data


def test_a_replay_at_a_rate(served: Served) -> None:
    """Many are replayed in one step; the rate says when each may be delivered."""
    made(served)
    published(served, *"abc")
    operator = served.by("operator")
    nacks = [{"ack_id": one["ack_id"], "kind": "poison"} for one in pulled(served)]
    operator.ok("POST", f"{READER}/nack", {"nacks": nacks})
    step = operator.ok("POST", "/dead-letters/replay", {"subscription": "reader", "rate": 0.1})
    assert len(step["replayed"]) == 3
    seen = []
    for _ in range(3):
        seen.append(len(pulled(served)))
        served.desk.clock.advance(seconds=10)
    assert seen == [1, 1, 1]


def test_looking_at_a_built_in_topic(served: Served) -> None:
    """It is there for whoever asks, also before anybody subscribed to it."""
    viewer = served.by("viewer")
    assert viewer.ok("GET", "/subscriptions?topic=penstock.alerts")["items"] == []
    assert viewer.ok("GET", "/topics/penstock.alerts")["subscriptions"] == []
    assert viewer.get("/subscriptions?topic=nobodys").status == 404


def test_a_purge_is_on_record(served: Served) -> None:
    """Who dropped messages is in the journal."""
    made(served)
    published(served, "one", "two")
    told = served.by("operator").ok("POST", f"{READER}/purge")
    assert told == {"purged": 2}
    found = served.desk.sql("SELECT actor, why FROM journal WHERE action = 'purged'")
    assert [row[1] for row in found] == ["2 messages of reader"]
    assert "operator" in found[0][0]


def test_metrics(served: Served) -> None:
    """Backlogs, dead letters and limits are told to Prometheus."""
    made(served)
    published(served, "a", "b")
    (one,) = pulled(served, 1)
    nack = {"ack_id": one["ack_id"], "kind": "poison", "error_type": "SCHEMA"}
    served.by("operator").ok("POST", f"{READER}/nack", {"nacks": [nack]})
    served.by("operator").ok("POST", "/limits", {"name": "bq:t", "capacity": 4})
    served.desk.clock.advance(seconds=30)
    text = served.by("viewer").call("GET", "/metrics").body.decode()
    for line in (
        'penstock_subscription_messages{state="ready",subscription="reader"} 1.0',
        'penstock_subscription_oldest_seconds{subscription="reader"} 30.0',
        'penstock_dead_letters{error_type="SCHEMA",origin="reader"} 1.0',
        'penstock_limit_capacity{limit="bq:t"} 4.0',
    ):
        assert line in text, text


def test_a_pull_waits(served: Served) -> None:
    """A long poll is answered by the publish, without a thread or a place meanwhile."""
    made(served)
    replies: list[Any] = []

    def poll() -> None:
        replies.append(served.by("worker").ok("POST", f"{READER}/pull", {"wait_seconds": 50}))

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    gate = threading.Event()
    while served.api.waiting.count == 0 and thread.is_alive():
        gate.wait(0.01)
    published(served, "late")
    thread.join(20)
    assert not thread.is_alive()
    assert len(replies[0]["received_messages"]) == 1


def test_what_is_wrong_is_named(served: Served) -> None:
    """Bad input is a 4xx that names the field, and nothing is written."""
    made(served)
    worker, operator = served.by("worker"), served.by("operator")
    before = served.desk.counts("messages", "deliveries", "topics", "subscriptions")
    publish = "/topics/rosters/publish"
    cases: list[tuple[str, Any, int, str]] = [
        (publish, {"messages": []}, 400, "messages"),
        (publish, {"messages": [{"data": "not base64"}]}, 400, "messages[0].data"),
        (publish, {"messages": [{"data": 1}]}, 400, "messages.0.data"),
        (publish, {"messages": [{"attributes": {"googclient": "x"}}]}, 400, "googclient"),
        (
            publish,
            {"messages": [{"data": "aGk=", "ordering_key": "k" * 1025}]},
            400,
            "ordering_key",
        ),
        ("/topics/nobody/publish", {"messages": [{"data": "aGk="}]}, 404, ""),
        (f"{READER}/ack", {"ack_ids": ["forged"]}, 400, "ack_ids[0]"),
        (f"{READER}/extend", {"ack_ids": ["x"], "ack_deadline_seconds": 601}, 400, "seconds"),
        (f"{READER}/extend", {"ack_ids": ["x"], "ack_deadline_seconds": -1}, 400, "seconds"),
        (f"{READER}/pull", {"max_messages": 0}, 400, "max_messages"),
        ("/subscriptions/nobody/pull", {}, 404, ""),
        ("/subscriptions/nobody/pull", {"wait_seconds": 5}, 404, ""),
    ]
    for path, body, status, field in cases:
        reply = worker.post(path, body)
        assert reply.status == status, (path, body, reply.body)
        named = " ".join(one["field"] for one in reply.json.get("errors") or ())
        assert field in named, (path, body, reply.body)
    declared: list[tuple[dict[str, Any], int, str]] = [
        ({"topic": "nobody"}, 404, ""),
        ({"filter": "attributes.x ="}, 400, "filter"),
        ({"max_delivery_attempts": 4}, 400, "max_delivery_attempts"),
        ({"name": "no/slash"}, 400, "subscription"),
        ({"name": "reader", "topic": "other"}, 404, ""),
        ({"name": "reader", "version": 99}, 409, ""),
        ({"dead_letters": False, "dead_letter_topic": "x-y-z"}, 400, "dead_letter_topic"),
    ]
    for fields, status, field in declared:
        reply = operator.post("/subscriptions", {"name": "another", "topic": "rosters", **fields})
        assert reply.status == status, (fields, reply.body)
        named = " ".join(one["field"] for one in reply.json.get("errors") or ())
        assert field in named, (fields, reply.body)
    after = served.desk.counts("messages", "deliveries", "topics", "subscriptions")
    assert after == before


def test_what_was_probably_meant(served: Served) -> None:
    """A misspelled field is answered with its name; a key that may not, with the roles that may."""
    made(served)
    reply = served.by("worker").post(f"{READER}/pull", {"maxMessages": 5})
    (wrong,) = reply.json["errors"]
    assert (wrong["field"], wrong["fix"]) == ("maxMessages", "Did you mean max_messages?")
    (wrong,) = served.by("worker").post(f"{READER}/pull", {"colour": 5}).json["errors"]
    assert wrong["fix"] == "Check its spelling."
    reply = served.by("viewer").post("/topics", {"name": "orders"})
    assert reply.status == 403
    assert reply.json["detail"].endswith("may not do this; it takes operator or admin.")
