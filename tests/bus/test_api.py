"""The bus over HTTP, on both engines: publish, pull, settle, dead letters and their replay."""

from __future__ import annotations

import base64
import threading
from typing import Any

import pytest

from tests.server.kit import ServedApi

READER = "/subscriptions/reader"


def b64(text: str) -> str:
    """Encode text as the data of a message."""
    return base64.b64encode(text.encode()).decode()


def made(served: ServedApi, **more: Any) -> None:
    """Create a topic with one subscription."""
    by = served.by("operator")
    assert by.post("/topics", {"name": "rosters"}).status == 201
    by.ok("POST", "/subscriptions", {"name": "reader", "topic": "rosters", **more})


def published(served: ServedApi, *texts: str, **more: Any) -> list[str]:
    """Publish messages; return their ids."""
    messages = [{"data": b64(text), **more} for text in texts]
    response = served.by("worker").ok("POST", "/topics/rosters/publish", {"messages": messages})
    found: list[str] = response["message_ids"]
    return found


def pulled(served: ServedApi, n: int = 10) -> list[dict[str, Any]]:
    """Pull messages."""
    response = served.by("worker").ok("POST", f"{READER}/pull", {"max_messages": n})
    found: list[dict[str, Any]] = response["received_messages"]
    return found


def test_message_lifecycle(served: ServedApi) -> None:
    """A message is published once, delivered, nacked, redelivered and acked; its state is shown."""
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
    served.harness.clock.advance(seconds=60)
    (two,) = pulled(served)
    assert two["delivery_attempt"] == 2
    response = [worker.ok("POST", f"{READER}/ack", {"ack_ids": [two["ack_id"]]}) for _ in range(2)]
    assert [one["outcomes"] for one in response] == [["done"], ["stale"]]
    (place,) = viewer.ok("GET", f"/messages/{first}")["deliveries"]
    assert place["state"] == "acked"
    sums = viewer.ok("GET", READER)["sums"]
    assert (sums["accepted"], sums["delivered"], sums["nacked"], sums["acked"]) == (1, 2, 1, 1)


def test_dead_letters(served: ServedApi) -> None:
    """Poison becomes a dead letter at once, is replayed as it is or edited, and finally refused."""
    made(served, replays_max=2)
    (message_id,) = published(served, "bad", attributes={"partition": "2025-12-31"})
    operator = served.by("operator")

    def die() -> str:
        (one,) = pulled(served)
        nack = {"ack_id": one["ack_id"], "kind": "poison", "error_type": "SCHEMA", "error": "no"}
        operator.ok("POST", f"{READER}/nack", {"nacks": [nack]})
        (dead_letter,) = operator.ok("GET", "/dead-letters?subscription=reader")["items"]
        assert (dead_letter["message_id"], dead_letter["error_kind"]) == (message_id, "poison")
        assert (dead_letter["topic"], dead_letter["partition"]) == ("rosters", "2025-12-31")
        found: str = dead_letter["dead_letter_id"]
        return found

    dead_letter = die()
    detail = operator.ok("GET", f"/dead-letters/{dead_letter}")
    assert (detail["message"]["text"], detail["run"]) == ("bad", None)
    assert detail["message"]["attributes"] == {"partition": "2025-12-31"}
    (group,) = operator.ok("GET", "/dead-letters/groups?kind=delivery")["items"]
    assert (group["subscription"], group["count"], group["latest"]) == ("reader", 1, dead_letter)
    response = operator.ok("POST", f"/dead-letters/{dead_letter}/replay")
    assert response["replayed_as"] == message_id
    assert operator.post(f"/dead-letters/{dead_letter}/replay", None).status == 409
    dead_letter = die()
    response = operator.ok("POST", f"/dead-letters/{dead_letter}/replay", {"data": b64("good")})
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


def test_a_replay_at_a_rate(served: ServedApi) -> None:
    """Several dead letters are replayed in one step; the rate sets their delivery times."""
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
        served.harness.clock.advance(seconds=10)
    assert seen == [1, 1, 1]


def test_built_in_topic(served: ServedApi) -> None:
    """A built-in topic is found even before it has subscriptions."""
    viewer = served.by("viewer")
    assert viewer.ok("GET", "/subscriptions?topic=penstock.alerts")["items"] == []
    assert viewer.ok("GET", "/topics/penstock.alerts")["subscriptions"] == []
    assert viewer.get("/subscriptions?topic=missing").status == 404


def test_purge_is_recorded(served: ServedApi) -> None:
    """The journal records who purged messages."""
    made(served)
    published(served, "one", "two")
    response = served.by("operator").ok("POST", f"{READER}/purge")
    assert response == {"purged": 2}
    found = served.harness.sql("SELECT actor, why FROM journal WHERE action = 'purged'")
    assert [row[1] for row in found] == ["2 messages of reader"]
    assert "operator" in found[0][0]


def test_metrics(served: ServedApi) -> None:
    """Backlogs, dead letters and limits are exported to Prometheus."""
    made(served)
    published(served, "a", "b")
    (one,) = pulled(served, 1)
    nack = {"ack_id": one["ack_id"], "kind": "poison", "error_type": "SCHEMA"}
    served.by("operator").ok("POST", f"{READER}/nack", {"nacks": [nack]})
    served.by("operator").ok("POST", "/limits", {"name": "bq:t", "capacity": 4})
    served.harness.clock.advance(seconds=30)
    now = served.harness.clock.now()
    for waited in (0, 2_000_000):
        served.harness.sql(
            "INSERT INTO limit_history (limit_id, holder, weight, outcome, asked_at, since_at, at) "
            f"SELECT limit_id, 'h', 1, 'released', {now - waited}, {now}, {now} FROM limits"
        )
    text = served.by("viewer").call("GET", "/metrics").body.decode()
    for line in (
        'penstock_subscription_messages{state="ready",subscription="reader"} 1.0',
        'penstock_subscription_oldest_seconds{subscription="reader"} 30.0',
        'penstock_dead_letters{error_type="SCHEMA",origin="reader"} 1.0',
        'penstock_flows{state="blocked"} 0.0',
        'penstock_limit_capacity{limit="bq:t"} 4.0',
        'penstock_limit_wait_seconds{limit="bq:t",quantile="0.95"} 2.0',
        'penstock_limit_contention_ratio{limit="bq:t"} 0.5',
    ):
        assert line in text, text


def test_a_pull_waits(served: ServedApi) -> None:
    """A publish ends a long poll, which occupies no thread while it waits."""
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
    thread.join(60)
    assert not thread.is_alive()
    assert len(replies[0]["received_messages"]) == 1


def test_invalid_fields_are_named(served: ServedApi) -> None:
    """Invalid input is a 4xx that names the field, and nothing is written."""
    made(served)
    worker, operator = served.by("worker"), served.by("operator")
    before = served.harness.counts("messages", "deliveries", "topics", "subscriptions")
    publish = "/topics/rosters/publish"
    cases: list[tuple[str, Any, int, str]] = [
        (publish, {"messages": []}, 400, "messages"),
        (publish, {"messages": [{"data": "not base64"}]}, 400, "messages.0.data"),
        (publish, {"messages": [{"data": 1}]}, 400, "messages.0.data"),
        (publish, {"messages": [{"attributes": {"googclient": "x"}}]}, 400, "googclient"),
        (
            publish,
            {"messages": [{"data": "aGk=", "ordering_key": "k" * 1025}]},
            400,
            "ordering_key",
        ),
        ("/topics/unknown/publish", {"messages": [{"data": "aGk="}]}, 404, ""),
        (f"{READER}/ack", {"ack_ids": ["forged"]}, 400, "ack_ids[0]"),
        (f"{READER}/extend", {"ack_ids": ["x"], "ack_deadline_seconds": 601}, 400, "seconds"),
        (f"{READER}/extend", {"ack_ids": ["x"], "ack_deadline_seconds": -1}, 400, "seconds"),
        (f"{READER}/pull", {"max_messages": 0}, 400, "max_messages"),
        ("/subscriptions/unknown/pull", {}, 404, ""),
        ("/subscriptions/unknown/pull", {"wait_seconds": 5}, 404, ""),
    ]
    for path, body, status, field in cases:
        reply = worker.post(path, body)
        assert reply.status == status, (path, body, reply.body)
        named = " ".join(one["field"] for one in reply.json.get("errors") or ())
        assert field in named, (path, body, reply.body)
    declared: list[tuple[dict[str, Any], int, str]] = [
        ({"topic": "unknown"}, 404, ""),
        ({"filter": "attributes.x ="}, 400, "filter"),
        ({"max_delivery_attempts": 0}, 400, "max_delivery_attempts"),
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
    after = served.harness.counts("messages", "deliveries", "topics", "subscriptions")
    assert after == before


def test_suggestions(served: ServedApi) -> None:
    """A misspelled field gets a suggestion; a forbidden key gets the roles that are allowed."""
    made(served)
    reply = served.by("worker").post(f"{READER}/pull", {"maxMessages": 5})
    (wrong,) = reply.json["errors"]
    assert (wrong["field"], wrong["fix"]) == ("maxMessages", "Did you mean max_messages?")
    (wrong,) = served.by("worker").post(f"{READER}/pull", {"colour": 5}).json["errors"]
    assert wrong["fix"] == "Check its spelling."
    reply = served.by("viewer").post("/topics", {"name": "orders"})
    assert reply.status == 403
    assert reply.json["detail"].endswith("may not do this; it requires operator or admin.")


def test_a_topic_without_subscriptions(served: ServedApi) -> None:
    """The response says how many subscriptions a topic has, so that none is noticed."""
    by = served.by("admin")
    by.ok("POST", "/topics", {"name": "lonely"})
    message = {"messages": [{"data": "MQ=="}]}
    assert by.ok("POST", "/topics/lonely/publish", message)["subscriptions"] == 0
    by.ok("POST", "/subscriptions", {"name": "reads", "topic": "lonely"})
    assert by.ok("POST", "/topics/lonely/publish", message)["subscriptions"] == 1
    assert by.post("/topics/lonely/publish", {"messages": []}).status == 400


def test_what_a_consumer_reports(served: ServedApi) -> None:
    """An ack and a nack may say who handled what, how and for how long; that is checked."""
    made(served, min_backoff_seconds=0, max_backoff_seconds=1)
    worker, viewer = served.by("worker"), served.by("viewer")
    (message_id,) = published(served, "one")
    by = {"service": "rosters", "revision": "r42"}
    (one,) = pulled(served)
    report = {"outcome": "retry", "duration_seconds": 1.5}
    nack = {"nacks": [{"ack_id": one["ack_id"], "handled": report}], **by}
    assert worker.ok("POST", f"{READER}/nack", nack)["outcomes"] == ["done"]
    (two,) = pulled(served)
    ack = {"ack_ids": [two["ack_id"]], "handled": [{"outcome": "applied"}], **by}
    for wrong, field in (
        ({"handled": [{"outcome": "applied"}] * 2}, "handled"),
        ({"handled": [{"outcome": "eaten"}]}, "handled"),
        ({"handled": [{"outcome": "applied", "duration_seconds": -1}]}, "duration_seconds"),
        ({"service": ""}, "service"),
    ):
        refused = worker.post(f"{READER}/ack", {**ack, **wrong})
        assert (refused.status, field in refused.body.decode()) == (400, True), wrong
    assert worker.ok("POST", f"{READER}/ack", ack)["outcomes"] == ["done"]
    found = viewer.ok("GET", f"/executions?cause={message_id}")["items"]
    first, second = sorted(found, key=lambda one: int(one["retry_count"]))
    assert (first["outcome"], first["duration_seconds"], first["service"]) == (
        "retry", 1.5, "rosters",
    )  # fmt: skip
    assert (second["outcome"], second["revision"], second["retry_count"]) == ("applied", "r42", 1)


def test_one_attempt_and_no_backoff(served: ServedApi) -> None:
    """A subscription may have a single attempt, and redeliver at once."""
    by = served.by("admin")
    by.ok("POST", "/topics", {"name": "rosters"})
    once = {"name": "once", "topic": "rosters", "max_delivery_attempts": 1}
    at_once = {"name": "at-once", "topic": "rosters", "min_backoff_seconds": 0}
    for wanted in (once, at_once):
        by.ok("POST", "/subscriptions", wanted)
    by.ok("POST", "/topics/rosters/publish", {"messages": [{"data": "MQ=="}]})
    attempts = []
    for name in ("once", "at-once", "at-once"):
        for one in by.ok("POST", f"/subscriptions/{name}/pull", {})["received_messages"]:
            attempts.append((name, one["delivery_attempt"]))
            nack = {"nacks": [{"ack_id": one["ack_id"]}]}
            by.ok("POST", f"/subscriptions/{name}/nack", nack)
    assert attempts == [("once", 1), ("at-once", 1), ("at-once", 2)]
    assert by.ok("GET", "/dead-letters")["items"][0]["subscription"] == "once"


def test_seek_into_the_future(served: ServedApi) -> None:
    """Everything published until now is purged; later messages are delivered."""
    by = served.by("admin")
    by.ok("POST", "/topics", {"name": "rosters"})
    by.ok("POST", "/subscriptions", {"name": "reads", "topic": "rosters"})
    message = {"messages": [{"data": "MQ=="}]}
    by.ok("POST", "/topics/rosters/publish", message)
    served.harness.clock.advance(seconds=1)
    sought = by.ok("POST", "/subscriptions/reads/seek", {"time": "2999-01-01T00:00:00Z"})
    assert (sought["purged"], sought["delivered_again"]) == (1, 0)
    by.ok("POST", "/topics/rosters/publish", message)
    assert len(by.ok("POST", "/subscriptions/reads/pull", {})["received_messages"]) == 1


@pytest.mark.parametrize("url", ["http://consumer.example/", "https://10.0.0.8/healthz"])
def test_health_urls_are_judged_at_declaration(served: ServedApi, url: str) -> None:
    """A health check that the egress rules refuse is refused when it is declared."""
    by = served.by("admin")
    by.ok("POST", "/topics", {"name": "rosters"})
    wanted = {"name": "reads", "topic": "rosters", "auto_replay": {"health_url": url}}
    refused = by.post("/subscriptions", wanted)
    assert refused.status == 400
    assert "health_url" in refused.json["detail"]
    assert by.get("/subscriptions/reads").status == 404
