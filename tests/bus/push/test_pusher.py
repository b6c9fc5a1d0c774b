"""The pusher against real receivers, on each engine: what is posted, and what answers change."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from penstock.access.secrets import Secrets
from penstock.audit.store.alerts import alert_list
from penstock.audit.telemetry import Event, Events, PushPosted
from penstock.bus.envelope import Pushed, decode
from penstock.bus.message import Outgoing, SubscriptionSpec, TopicSpec
from penstock.bus.push import webhook
from penstock.bus.push.push_config import Answered, OidcToken, Post, Poster, PushSpec, dump_push
from penstock.bus.push.pusher import Pusher, PusherOptions, Pushing
from penstock.bus.push.sender import posting
from penstock.bus.store.backlog import Backlog, backlog, delivery_sums, message_places
from penstock.bus.store.deliveries import delivery_due, delivery_lapse
from penstock.bus.store.messages import message_publish
from penstock.bus.store.topics import (
    Extras,
    Subscription,
    subscription_declare,
    subscription_get,
    subscription_pause,
    topic_declare,
)
from penstock.core.clock import MINUTE, SECOND, SystemClock
from penstock.core.errors import InvalidInput
from penstock.db.store import Store
from penstock.egress.http_client import Egress, Reply
from penstock.egress.oidc import Expected, SigningKey
from penstock.egress.policy import STRICT, EgressRules
from penstock.egress.tokens import Signer, Verifier, new_signing_key, public_jwk
from penstock.testing.clock import VirtualClock
from tests.kits.egress import Got, Receiver, Said, receiving

INSIDE = EgressRules(allow_http=True, allow_private=True)
SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
ISSUER = "https://penstock.example.com"


@cache
def signing_key() -> SigningKey:
    return new_signing_key()


class Office:
    """Push subscriptions of one store, and pushers over them."""

    def __init__(self, store: Store, clock: VirtualClock) -> None:
        self.store = store
        self.clock = clock
        self.events = Events()
        self.heard: list[Event] = []
        self.events.subscribe(self.heard.append)
        self.pushers: list[Pusher] = []
        self.key = signing_key()

    def declare(self, name: str, spec: PushSpec, **fields: Any) -> Subscription:
        """A topic and a push subscription of the same name."""
        given = SubscriptionSpec(name=name, topic=name, **fields)

        def body(tx: Any) -> Subscription:
            topic_declare(tx, TopicSpec(name=name))
            if given.dead_letter_topic is not None:
                topic_declare(tx, TopicSpec(name=given.dead_letter_topic))
            return subscription_declare(tx, given, extras=Extras(kind="push", push=dump_push(spec)))

        return self.store.write(body)

    def publish(self, topic: str, *messages: Outgoing) -> list[int]:
        return self.store.write(lambda tx: message_publish(tx, topic, messages)).message_ids

    def pusher(
        self, rules: EgressRules = INSIDE, post: Poster | None = None, **options: Any
    ) -> Pusher:
        egress = Egress(SystemClock(), rules, resolve=lambda *_: ["127.0.0.1"])
        made = Pusher(
            self.store,
            post or posting(egress),
            bearer=Signer(ISSUER, lambda: self.key, self.clock).token,
            secrets=Secrets({"hook": SECRET, "bad": "not a secret"}),
            clock=self.clock,
            jitter=lambda: 0.0,
            events=self.events,
            options=PusherOptions(**{"threads": 0, **options}),
        )
        self.pushers.append(made)
        return made

    def drain(self, pusher: Pusher, steps: int = 50) -> int:
        """Step until nothing is begun."""
        done = 0
        for _ in range(steps):
            begun = pusher.run_once().begun
            done += begun
            if not begun:
                break
        return done

    def later(self, us: int) -> None:
        """Let time pass; what became due is ready."""
        self.clock.advance(us)
        self.store.write(delivery_due)

    def waiting(self, sub: Subscription) -> Backlog:
        return self.store.read(lambda tx: backlog(tx, sub.subscription))

    def sums(self, sub: Subscription) -> Any:
        return self.store.read(lambda tx: delivery_sums(tx, sub.subscription))

    def alerts(self, state: str = "open") -> list[tuple[str, str]]:
        return [
            (a.rule, a.severity) for a in self.store.read(lambda tx: alert_list(tx, state=state))
        ]

    @property
    def posted(self) -> list[PushPosted]:
        return [event for event in self.heard if isinstance(event, PushPosted)]


@pytest.fixture
def office(store: Store, clock: VirtualClock) -> Iterator[Office]:
    made = Office(store, clock)
    yield made
    assert all(pusher.drain(20) for pusher in made.pushers)


def to(receiver: Receiver, **more: Any) -> PushSpec:
    return PushSpec(endpoint=f"http://hooks.example.com:{receiver.port}/in", **more)


def by_attribute(got: Got) -> Said:
    """Answer as the message asks."""
    attributes = got.json["message"].get("attributes", {})
    headers = {"Retry-After": attributes["after"]} if "after" in attributes else {}
    return Said(int(attributes.get("status", 204)), headers)


def asking(status: int, **more: str) -> Outgoing:
    return Outgoing(data=b"x", attributes={"status": str(status), **more})


class TestAnswers:
    """What an answer does to the message."""

    def test_a_message_arrives_and_is_acked(self, office: Office) -> None:
        """The envelope is Google's; nothing is left to do; nobody is told of an attempt."""
        with receiving() as receiver:
            sub = office.declare("orders", to(receiver))
            (number,) = office.publish(
                "orders", Outgoing(data=b"\x00hello\xff", attributes={"kind": "a"})
            )
            assert office.drain(office.pusher()) == 1
        (got,) = receiver.got
        assert (got.path, got.headers["content-type"]) == ("/in", "application/json")
        read = decode(got.body, subscription="orders")
        assert isinstance(read, Pushed)
        assert (read.message_id, read.data, read.attempt) == (str(number), b"\x00hello\xff", None)
        assert office.sums(sub)[:3] == (1, 1, 1)
        assert office.waiting(sub) == (0, 0, 0, 0, None)
        (event,) = office.posted
        assert (event.outcome, event.status, event.window) == ("ack", 204, 2)

    def test_statuses(self, office: Office) -> None:
        """102, 200, 201, 202 and 204 ack; redirects, errors and other successes nack."""
        acks, nacks = (102, 200, 201, 202, 204), (203, 206, 302, 307, 400, 404, 429, 500, 503)
        with receiving(by_attribute) as receiver:
            sub = office.declare("orders", to(receiver))
            office.publish("orders", *[asking(status) for status in (*acks, *nacks)])
            pusher = office.pusher()
            for _ in range(40):
                office.drain(pusher)
                office.clock.advance(MINUTE // 60)
        outcomes = {event.status: event.outcome for event in office.posted}
        assert outcomes == dict.fromkeys(acks, "ack") | dict.fromkeys(nacks, "nack")
        assert office.waiting(sub).delayed == len(nacks)
        assert len(receiver.got) == len(acks) + len(nacks), "nothing is posted before its time"

    def test_attempts_are_exact_and_end_in_the_dead_letters(self, office: Office) -> None:
        """Each attempt is told to an endpoint with a policy; the fifth failure is the last."""
        with receiving(lambda _: Said(500, {}, b"secret stack trace")) as receiver:
            sub = office.declare("orders", to(receiver), dead_letter_topic="orders.dlq")
            (number,) = office.publish("orders", Outgoing(data=b"x"))
            pusher = office.pusher()
            office.drain(pusher)
            (place,) = office.store.read(lambda tx: message_places(tx, number, sub.topic))
            assert place.last_error == "HTTP_500: answered 500", "nothing of the body is kept"
            for _ in range(7):
                office.later(10 * MINUTE)
                office.drain(pusher)
        assert [got.json["deliveryAttempt"] for got in receiver.got] == [1, 2, 3, 4, 5]
        sums = office.sums(sub)
        assert (sums.nacked, sums.dead_lettered) == (5, 1)

    def test_retry_after_is_honoured(self, office: Office) -> None:
        """Nothing is posted to that endpoint until the time it asked for, within bounds."""
        with receiving(by_attribute) as receiver:
            office.declare("orders", to(receiver), min_backoff_us=SECOND)
            office.publish("orders", asking(503, after="120"))
            pusher = office.pusher()
            office.drain(pusher)
            office.publish("orders", asking(200))
            step = pusher.run_once()
            assert (step.begun, (step.next_at or 0) - step.now) == (0, 120 * SECOND)
            office.later(119 * SECOND)
            assert office.drain(pusher) == 0
            office.later(2 * SECOND)
            receiver.answer = lambda _: Said(200)
            assert office.drain(pusher) == 2

    def test_gone_pauses_the_subscription(self, office: Office) -> None:
        """410: paused with an alert, in one go; resumed by a person; a success ends the alert."""
        with receiving(lambda _: Said(410)) as receiver:
            sub = office.declare("orders", to(receiver))
            office.publish("orders", Outgoing(data=b"1"), Outgoing(data=b"2"))
            pusher = office.pusher()
            office.drain(pusher)
            assert len(receiver.got) == 1
            assert office.store.read(lambda tx: subscription_get(tx, "orders")).is_paused
            assert office.alerts() == [("push_gone", "HIGH")]
            office.later(MINUTE)
            assert office.drain(pusher) == 0
            receiver.answer = lambda _: Said(200)
            office.store.write(lambda tx: subscription_pause(tx, "orders", is_paused=False))
            assert office.drain(pusher) == 2
        assert office.alerts() == []
        assert office.waiting(sub) == (0, 0, 0, 0, None)

    def test_an_endpoint_that_keeps_failing_is_told_once_and_not_hammered(
        self, office: Office
    ) -> None:
        """A down endpoint gets one try at a time, more and more rarely; others wait unspent."""
        down = Answered(failure="connection", error="refused")
        office.declare("orders", PushSpec(endpoint="https://hooks.example.com/"))
        office.publish("orders", *[Outgoing(data=b"x") for _ in range(100)])
        pusher = office.pusher(post=lambda _: down)
        for _ in range(60):
            pusher.run_once()
            office.clock.advance(SECOND)
        assert 10 <= len(office.posted) <= 25, "a minute of failures"
        assert office.alerts() == [("push_failing", "HIGH")]


class TestProof:
    """Who sends is proved; what cannot be proved or may not be sent is a configuration error."""

    def test_signatures_and_tokens(self, office: Office) -> None:
        """The receiver verifies both with what it was given, for the same body."""
        with receiving() as receiver:
            token = OidcToken(email="push@penstock.example.com")
            spec = to(receiver, oidc=token, signing_secrets=("hook",))
            office.declare("orders", spec)
            (number,) = office.publish("orders", Outgoing(data=b"x"))
            office.drain(office.pusher())
        (got,) = receiver.got
        keys = [webhook.key_of(SECRET)]
        assert webhook.verify(keys, got.headers, got.body, office.clock.now()) == str(number)
        assert webhook.verify(keys, got.headers, got.body + b" ", office.clock.now()) is None
        body = b'{"keys": [%s]}' % str(public_jwk(office.key)).replace("'", '"').encode()
        verifier = Verifier(lambda _: Reply(status=200, headers={}, body=body), office.clock)
        expected = Expected(issuer=ISSUER, audience=spec.endpoint, email=token.email)
        bearer = got.headers["authorization"].removeprefix("Bearer ")
        assert verifier.verify(bearer, expected, "https://x/").subject == token.email

    @pytest.mark.parametrize(
        "wrong", [Extras(kind="push"), Extras(push="{}"), Extras(kind="push", push="{}")]
    )
    def test_what_is_no_push_is_not_stored(self, office: Office, wrong: Extras) -> None:
        spec = SubscriptionSpec(name="orders", topic="orders")
        office.store.write(lambda tx: topic_declare(tx, TopicSpec(name="orders")))
        with pytest.raises(InvalidInput, match="push"):
            office.store.write(lambda tx: subscription_declare(tx, spec, extras=wrong))

    @pytest.mark.parametrize("trouble", ["no secret", "bad secret", "rules"])
    def test_configuration_errors(self, office: Office, trouble: str) -> None:
        """Nothing is sent, an alert is critical, the message is kept; mended, the alert ends."""
        names = {"no secret": ("missing",), "bad secret": ("bad",), "rules": ()}[trouble]
        rules = STRICT if trouble == "rules" else INSIDE
        with receiving() as receiver:
            sub = office.declare("orders", to(receiver, signing_secrets=names))
            office.publish("orders", Outgoing(data=b"x"))
            office.drain(office.pusher(rules))
            assert receiver.got == []
            assert office.alerts() == [("push_misconfigured", "CRITICAL")]
            assert office.waiting(sub).delayed == 1
            office.later(MINUTE)
            office.declare("orders", to(receiver, signing_secrets=("hook",)))
            assert office.drain(office.pusher()) == 1
        assert office.alerts() == []
        assert SECRET not in str(office.heard)

    def test_a_name_that_leads_inside_is_refused(self, office: Office) -> None:
        """The rules hold when the message is sent, whatever was allowed when it was declared."""
        with receiving() as receiver:
            spec = PushSpec(endpoint=f"https://127.0.0.1.nip.io:{receiver.port}/")
            office.declare("orders", spec)
            office.publish("orders", Outgoing(data=b"x"))
            office.drain(office.pusher(STRICT))
            assert receiver.got == []
        (event,) = office.posted
        assert event.failure == "refused"


class TestLeases:
    """Whoever posts holds the delivery only until its deadline."""

    def test_a_pusher_that_dies_loses_nothing(self, office: Office) -> None:
        """Its delivery lapses and another pusher posts it, as the second attempt."""

        def dying(_: Post) -> Answered:
            raise RuntimeError("killed")

        with receiving() as receiver:
            sub = office.declare("orders", to(receiver), dead_letter_topic="orders.dlq")
            office.publish("orders", Outgoing(data=b"x"))
            office.drain(office.pusher(post=dying), 1)
            assert office.waiting(sub).leased == 1
            office.clock.advance(61 * SECOND)
            office.store.write(lambda tx: delivery_lapse(tx, lambda: 0.0))
            office.later(MINUTE)
            assert office.drain(office.pusher()) == 1
        assert receiver.got[0].json["deliveryAttempt"] == 2
        assert office.sums(sub).acked == 1

    def test_an_answer_after_the_deadline_changes_nothing(self, office: Office) -> None:
        """The delivery lapsed meanwhile: the late 200 is stale, the message comes again."""

        def slow(post: Post) -> Answered:
            assert 50 < post.seconds < 60, "the ack deadline is the time-out"
            office.clock.advance(61 * SECOND)
            office.store.write(lambda tx: delivery_lapse(tx, lambda: 0.0))
            return Answered(status=200)

        sub = office.declare("orders", PushSpec(endpoint="https://hooks.example.com/"))
        office.publish("orders", Outgoing(data=b"x"))
        office.drain(office.pusher(post=slow), 1)
        assert [event.outcome for event in office.posted] == ["stale"]
        assert (office.sums(sub).acked, office.waiting(sub).delayed) == (0, 1)


class TestLanes:
    """Threads: many endpoints, many messages, bounded."""

    def run(self, pusher: Pusher, until: Callable[[], bool], seconds: float = 30.0) -> None:
        """Step like a loop does until something holds."""
        ended = threading.Event()
        for _ in range(int(seconds / 0.02)):
            pusher.run_once()
            if until():
                return
            ended.wait(0.02)
        raise AssertionError("not reached")

    def test_one_slow_endpoint_delays_no_other(self, office: Office) -> None:
        """An endpoint that never answers holds a share of the threads; the other gets its posts."""
        free = threading.Event()

        def hang(_: Got) -> Said:
            free.wait(60)
            return Said(200)

        with receiving(hang) as slow, receiving() as quick:
            office.declare("slow", to(slow))
            office.declare("quick", to(quick))
            office.publish("slow", *[Outgoing(data=b"s") for _ in range(20)])
            pusher = office.pusher(threads=4)
            pusher.run_once()
            slow.wait_for(1)
            office.publish("quick", *[Outgoing(data=b"q") for _ in range(40)])
            self.run(pusher, lambda: len(quick.got) == 40)
            assert 1 <= len(slow.got) <= 3
            free.set()
            self.run(pusher, lambda: len(slow.got) == 20)

    def test_the_window_grows_with_success(self, office: Office) -> None:
        """More and more requests at a time, never more than there are threads."""
        busy, most, lock = [0], [0], threading.Lock()

        def count(_: Got) -> Said:
            with lock:
                busy[0] += 1
                most[0] = max(most[0], busy[0])
            with lock:
                busy[0] -= 1
            return Said(200)

        with receiving(count) as receiver:
            sub = office.declare("orders", to(receiver))
            office.publish("orders", *[Outgoing(data=b"x") for _ in range(60)])
            pusher = office.pusher(threads=8)
            self.run(pusher, lambda: office.waiting(sub).ready == 0 and len(receiver.got) == 60)
            assert pusher.drain(20)
        assert pusher.windows()[sub.subscription] > 4
        assert most[0] <= 8
        assert office.sums(sub).acked == 60

    def test_keys_keep_their_order(self, office: Office) -> None:
        """Of each key in the order of publishing, one at a time; keys side by side."""
        under_way: set[str] = set()
        order: dict[str, list[int]] = {}
        overlaps: list[str] = []
        lock = threading.Lock()

        def note(got: Got) -> Said:
            message = got.json["message"]
            key, n = message["orderingKey"], int(message["attributes"]["n"])
            with lock:
                if key in under_way:
                    overlaps.append(key)
                under_way.add(key)
                order.setdefault(key, []).append(n)
            with lock:
                under_way.discard(key)
            return Said(200)

        with receiving(note) as receiver:
            sub = office.declare("orders", to(receiver), is_ordered=True)
            messages = [
                Outgoing(data=b"x", ordering_key=f"k{n % 4}", attributes={"n": str(n)})
                for n in range(40)
            ]
            office.publish("orders", *messages)
            pusher = office.pusher(threads=8)
            self.run(pusher, lambda: office.sums(sub).acked == 40)
        assert overlaps == []
        assert {key: got == sorted(got) for key, got in order.items()} == {
            f"k{n}": True for n in range(4)
        }

    def test_many_pushers_post_each_message_once(self, office: Office) -> None:
        """Two pushers share a backlog; nothing is posted twice, nothing is left."""
        with receiving() as receiver:
            sub = office.declare("orders", to(receiver))
            numbers = office.publish("orders", *[Outgoing(data=b"x") for _ in range(100)])
            pushers = [office.pusher(threads=4, holder=f"p{n}") for n in range(2)]

            def both() -> bool:
                pushers[1].run_once()
                return bool(office.sums(sub).acked == 100)

            self.run(pushers[0], both)
        assert sorted(int(got.json["message"]["messageId"]) for got in receiver.got) == numbers


def test_nothing_to_do_costs_nothing(office: Office) -> None:
    """Without push subscriptions, or with nothing ready, a step only looks."""
    assert office.pusher().run_once() == Pushing()
    office.declare("orders", PushSpec(endpoint="https://hooks.example.com/"))
    assert office.pusher().run_once().begun == 0
