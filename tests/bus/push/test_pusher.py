"""The pusher against real receivers, on each engine: requests, and the effect of responses."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from penstock.access.secrets import Secrets
from penstock.audit.rows import AlertFilter
from penstock.audit.store.alerts import alert_list
from penstock.audit.telemetry import Event, Events, PushPosted
from penstock.bus.envelope import PushedMessage, decode
from penstock.bus.message import NewMessage, SubscriptionSpec, TopicSpec
from penstock.bus.push import webhook
from penstock.bus.push.push_config import (
    OidcToken,
    PushConfig,
    PushRequest,
    PushResponse,
    PushSender,
)
from penstock.bus.push.pusher import PushCounts, Pusher, PusherOptions
from penstock.bus.push.sender import push_sender
from penstock.bus.store.backlog import BacklogRow, backlog, delivery_counters, message_states
from penstock.bus.store.deliveries import delivery_due, delivery_lapse
from penstock.bus.store.messages import message_publish
from penstock.bus.store.topics import (
    SYSTEM,
    SubscriptionOptions,
    SubscriptionRow,
    subscription_declare,
    subscription_get,
    subscription_pause,
    topic_declare,
)
from penstock.core.clock import MINUTE, SECOND, SystemClock
from penstock.core.errors import InvalidInput
from penstock.core.naming import CustomerKey
from penstock.db.store import Store
from penstock.egress.http_client import HttpClient, HttpResponse
from penstock.egress.oidc import ExpectedClaims, SigningKey
from penstock.egress.policy import STRICT, EgressRules
from penstock.egress.tokens import Signer, Verifier, new_signing_key, public_jwk
from penstock.testing.clock import VirtualClock
from tests.kits.egress import ReceivedRequest, Receiver, ScriptedResponse, receiving
from tests.kits.push import serialize_push

INSIDE = EgressRules(allow_http=True, allow_private=True)
SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
ISSUER = "https://penstock.example.com"


@cache
def signing_key() -> SigningKey:
    return new_signing_key()


class PushWorld:
    """Push subscriptions of one store, and pushers over them."""

    def __init__(self, store: Store, clock: VirtualClock) -> None:
        self.store = store
        self.clock = clock
        self.events = Events()
        self.received: list[Event] = []
        self.events.subscribe(self.received.append)
        self.pushers: list[Pusher] = []
        self.key = signing_key()

    def declare(
        self, name: str, spec: PushConfig, customer: CustomerKey = SYSTEM, **fields: Any
    ) -> SubscriptionRow:
        """Create a topic and a push subscription of the same name."""
        given = SubscriptionSpec(name=name, topic=name, **fields)

        def body(tx: Any) -> SubscriptionRow:
            topic_declare(tx, TopicSpec(name=name), customer)
            if given.dead_letter_topic is not None:
                topic_declare(tx, TopicSpec(name=given.dead_letter_topic), customer)
            options = SubscriptionOptions(kind="push", push=serialize_push(spec))
            return subscription_declare(tx, given, customer, extras=options)

        return self.store.write(body)

    def publish(
        self, topic: str, *messages: NewMessage, customer: CustomerKey = SYSTEM
    ) -> list[int]:
        return self.store.write(
            lambda tx: message_publish(tx, topic, messages, customer)
        ).message_ids

    def pusher(
        self, rules: EgressRules = INSIDE, post: PushSender | None = None, **options: Any
    ) -> Pusher:
        egress = HttpClient(SystemClock(), rules, resolve=lambda *_: ["127.0.0.1"])
        made = Pusher(
            self.store,
            post or push_sender(egress),
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
        """Run steps until nothing is started; return the number of deliveries."""
        done = 0
        for _ in range(steps):
            begun = pusher.run_once().started
            done += begun
            if not begun:
                break
        return done

    def later(self, us: int) -> None:
        """Advance the clock and make due deliveries ready."""
        self.clock.advance(us)
        self.store.write(delivery_due)

    def waiting(self, sub: SubscriptionRow) -> BacklogRow:
        return self.store.read(lambda tx: backlog(tx, sub.subscription_key))

    def sums(self, sub: SubscriptionRow) -> Any:
        return self.store.read(lambda tx: delivery_counters(tx, sub.subscription_key))

    def alerts(self, state: str = "open") -> list[tuple[str, str]]:
        return [
            (a.rule, a.severity)
            for a in self.store.read(lambda tx: alert_list(tx, AlertFilter(state=state)))
        ]

    @property
    def posted(self) -> list[PushPosted]:
        return [event for event in self.received if isinstance(event, PushPosted)]


@pytest.fixture
def world(store: Store, clock: VirtualClock) -> Iterator[PushWorld]:
    made = PushWorld(store, clock)
    yield made
    assert all(pusher.drain(20) for pusher in made.pushers)


def to(receiver: Receiver, **more: Any) -> PushConfig:
    return PushConfig(endpoint=f"http://hooks.example.com:{receiver.port}/in", **more)


def by_attribute(got: ReceivedRequest) -> ScriptedResponse:
    """Respond as the message's attributes say."""
    attributes = got.json["message"].get("attributes", {})
    headers = {"Retry-After": attributes["after"]} if "after" in attributes else {}
    return ScriptedResponse(int(attributes.get("status", 204)), headers)


def expecting(status: int, **more: str) -> NewMessage:
    return NewMessage(data=b"x", attributes={"status": str(status), **more})


class TestResponses:
    """The effect of a response on the message."""

    def test_a_message_arrives_and_is_acked(self, world: PushWorld) -> None:
        """The envelope is Google's; nothing is left to do; no attempt number is sent."""
        with receiving() as receiver:
            sub = world.declare("orders", to(receiver))
            (number,) = world.publish(
                "orders", NewMessage(data=b"\x00hello\xff", attributes={"kind": "a"})
            )
            assert world.drain(world.pusher()) == 1
        (got,) = receiver.got
        assert (got.path, got.headers["content-type"]) == ("/in", "application/json")
        read = decode(got.body, subscription="orders")
        assert isinstance(read, PushedMessage)
        assert (read.message_id, read.data, read.attempt) == (str(number), b"\x00hello\xff", None)
        assert world.sums(sub)[:3] == (1, 1, 1)
        assert world.waiting(sub) == (0, 0, 0, 0, None)
        (event,) = world.posted
        assert (event.outcome, event.status, event.window) == ("ack", 204, 2)

    def test_statuses(self, world: PushWorld) -> None:
        """102, 200, 201, 202 and 204 ack; redirects, errors and other successes nack."""
        acks, nacks = (102, 200, 201, 202, 204), (203, 206, 302, 307, 400, 404, 429, 500, 503)
        with receiving(by_attribute) as receiver:
            sub = world.declare("orders", to(receiver))
            world.publish("orders", *[expecting(status) for status in (*acks, *nacks)])
            pusher = world.pusher()
            for _ in range(40):
                world.drain(pusher)
                world.clock.advance(MINUTE // 60)
        outcomes = {event.status: event.outcome for event in world.posted}
        assert outcomes == dict.fromkeys(acks, "ack") | dict.fromkeys(nacks, "nack")
        assert world.waiting(sub).delayed == len(nacks)
        assert len(receiver.got) == len(acks) + len(nacks), "no delivery is posted before it is due"

    def test_attempts_are_exact_and_end_in_the_dead_letters(self, world: PushWorld) -> None:
        """Each attempt is numbered for an endpoint with a policy; the fifth failure is final."""
        with receiving(lambda _: ScriptedResponse(500, {}, b"secret stack trace")) as receiver:
            sub = world.declare("orders", to(receiver), dead_letter_topic="orders.dlq")
            (number,) = world.publish("orders", NewMessage(data=b"x"))
            pusher = world.pusher()
            world.drain(pusher)
            (place,) = world.store.read(lambda tx: message_states(tx, number, sub.topic_key))
            assert place.last_error == "HTTP_500: the endpoint responded 500", (
                "the body is not stored"
            )
            for _ in range(7):
                world.later(10 * MINUTE)
                world.drain(pusher)
        assert [got.json["deliveryAttempt"] for got in receiver.got] == [1, 2, 3, 4, 5]
        sums = world.sums(sub)
        assert (sums.nacked, sums.dead_lettered) == (5, 1)

    def test_retry_after_is_respected(self, world: PushWorld) -> None:
        """Nothing is posted to the endpoint until its Retry-After has passed."""
        with receiving(by_attribute) as receiver:
            world.declare("orders", to(receiver), min_backoff_us=SECOND)
            world.publish("orders", expecting(503, after="120"))
            pusher = world.pusher()
            world.drain(pusher)
            world.publish("orders", expecting(200))
            step = pusher.run_once()
            assert (step.started, (step.next_at or 0) - step.now) == (0, 120 * SECOND)
            world.later(119 * SECOND)
            assert world.drain(pusher) == 0
            world.later(2 * SECOND)
            receiver.respond = lambda _: ScriptedResponse(200)
            assert world.drain(pusher) == 2

    @pytest.mark.parametrize("status", [400, 422, 404])
    def test_poison_does_not_slow_the_subscription(self, world: PushWorld, status: int) -> None:
        """What the endpoint refuses is that message's own failure: good ones arrive at once."""
        good = expecting(200)
        poison = expecting(status, after="120")
        with receiving(by_attribute) as receiver:
            sub = world.declare("orders", to(receiver))
            world.publish("orders", *[poison] * 20, *([good] * 8 + [poison]) * 10)
            pusher = world.pusher()
            world.drain(pusher)
        assert len(receiver.got) == 20 + 90, "without any time passing"
        assert world.waiting(sub)[:4] == (0, 0, 30, 0)
        assert pusher.endpoint_concurrency() == {sub.subscription_key: 111}
        assert world.sums(sub).acked == 80

    def test_an_overloaded_endpoint_is_slowed_among_poison(self, world: PushWorld) -> None:
        """429 and 5xx pause the endpoint; a refused message in between does not lengthen it."""
        with receiving(by_attribute) as receiver:
            world.declare("orders", to(receiver))
            world.publish("orders", *[expecting(status) for status in (503, 422, 429, 500, 503)])
            pusher = world.pusher()
            world.drain(pusher)
            world.publish("orders", expecting(200))
            assert world.drain(pusher) == 0, "three failures in a row pause it"
            world.clock.advance(SECOND // 10)
            assert world.drain(pusher) == 1
        assert len(receiver.got) == 6

    def test_gone_pauses_the_subscription(self, world: PushWorld) -> None:
        """410 pauses with an alert, in one transaction; after resuming, a success resolves it."""
        with receiving(lambda _: ScriptedResponse(410)) as receiver:
            sub = world.declare("orders", to(receiver))
            world.publish("orders", NewMessage(data=b"1"), NewMessage(data=b"2"))
            pusher = world.pusher()
            world.drain(pusher)
            assert len(receiver.got) == 1
            assert world.store.read(lambda tx: subscription_get(tx, "orders")).is_paused
            assert world.alerts() == [("push_gone", "HIGH")]
            world.later(MINUTE)
            assert world.drain(pusher) == 0
            receiver.respond = lambda _: ScriptedResponse(200)
            world.store.write(lambda tx: subscription_pause(tx, "orders", is_paused=False))
            assert world.drain(pusher) == 2
        assert world.alerts() == []
        assert world.waiting(sub) == (0, 0, 0, 0, None)

    def test_a_failing_endpoint_is_alerted_once_and_tried_rarely(self, world: PushWorld) -> None:
        """A down endpoint gets single requests, more and more rarely; the rest wait uncounted."""
        down = PushResponse(failure="connection", error="refused")
        world.declare("orders", PushConfig(endpoint="https://hooks.example.com/"))
        world.publish("orders", *[NewMessage(data=b"x") for _ in range(100)])
        pusher = world.pusher(post=lambda _: down)
        for _ in range(60):
            pusher.run_once()
            world.clock.advance(SECOND)
        assert 10 <= len(world.posted) <= 25, "a minute of failures"
        assert world.alerts() == [("push_failing", "HIGH")]


class TestAuthentication:
    """Requests are authenticated; one that cannot be, or is not allowed, is a config error."""

    def test_signatures_and_tokens(self, world: PushWorld) -> None:
        """The receiver can verify the signature and the token for the same body."""
        with receiving() as receiver:
            token = OidcToken(email="push@penstock.example.com")
            spec = to(receiver, oidc=token, signing_secrets=("hook",))
            world.declare("orders", spec)
            (number,) = world.publish("orders", NewMessage(data=b"x"))
            world.drain(world.pusher())
        (got,) = receiver.got
        keys = [webhook.parse_secret(SECRET)]
        assert webhook.verify(keys, got.headers, got.body, world.clock.now()) == str(number)
        assert webhook.verify(keys, got.headers, got.body + b" ", world.clock.now()) is None
        body = b'{"keys": [%s]}' % str(public_jwk(world.key)).replace("'", '"').encode()
        verifier = Verifier(lambda _: HttpResponse(status=200, headers={}, body=body), world.clock)
        expected = ExpectedClaims(issuer=ISSUER, audience=spec.endpoint, email=token.email)
        bearer = got.headers["authorization"].removeprefix("Bearer ")
        assert verifier.verify(bearer, expected, "https://x/").subject == token.email

    @pytest.mark.parametrize(
        "wrong",
        [
            SubscriptionOptions(kind="push"),
            SubscriptionOptions(push="{}"),
            SubscriptionOptions(kind="push", push="{}"),
        ],
    )
    def test_invalid_push_options_are_refused(
        self, world: PushWorld, wrong: SubscriptionOptions
    ) -> None:
        spec = SubscriptionSpec(name="orders", topic="orders")
        world.store.write(lambda tx: topic_declare(tx, TopicSpec(name="orders")))
        with pytest.raises(InvalidInput, match="push"):
            world.store.write(lambda tx: subscription_declare(tx, spec, extras=wrong))

    @pytest.mark.parametrize("fault", ["no secret", "bad secret", "rules"])
    def test_configuration_errors(self, world: PushWorld, fault: str) -> None:
        """Nothing is sent, the alert is critical, the message is kept; fixing it resolves it."""
        names = {"no secret": ("missing",), "bad secret": ("bad",), "rules": ()}[fault]
        rules = STRICT if fault == "rules" else INSIDE
        with receiving() as receiver:
            sub = world.declare("orders", to(receiver, signing_secrets=names))
            world.publish("orders", NewMessage(data=b"x"))
            world.drain(world.pusher(rules))
            assert receiver.got == []
            assert world.alerts() == [("push_misconfigured", "CRITICAL")]
            assert world.waiting(sub).delayed == 1
            world.later(MINUTE)
            world.declare("orders", to(receiver, signing_secrets=("hook",)))
            assert world.drain(world.pusher()) == 1
        assert world.alerts() == []
        assert SECRET not in str(world.received)

    def test_a_name_of_a_private_address_is_refused(self, world: PushWorld) -> None:
        """The rules apply when a message is sent, whatever they were at declaration."""
        with receiving() as receiver:
            spec = PushConfig(endpoint=f"https://127.0.0.1.nip.io:{receiver.port}/")
            world.declare("orders", spec)
            world.publish("orders", NewMessage(data=b"x"))
            world.drain(world.pusher(STRICT))
            assert receiver.got == []
        (event,) = world.posted
        assert event.failure == "refused"


class TestLeases:
    """A pusher holds a delivery only until its deadline."""

    def test_a_pusher_that_dies_loses_nothing(self, world: PushWorld) -> None:
        """Its delivery lapses, and another pusher posts it as the second attempt."""

        def crashing(_: PushRequest) -> PushResponse:
            raise RuntimeError("killed")

        with receiving() as receiver:
            sub = world.declare("orders", to(receiver), dead_letter_topic="orders.dlq")
            world.publish("orders", NewMessage(data=b"x"))
            world.drain(world.pusher(post=crashing), 1)
            assert world.waiting(sub).leased == 1
            world.clock.advance(61 * SECOND)
            world.store.write(lambda tx: delivery_lapse(tx, lambda: 0.0))
            world.later(MINUTE)
            assert world.drain(world.pusher()) == 1
        assert receiver.got[0].json["deliveryAttempt"] == 2
        assert world.sums(sub).acked == 1

    def test_a_response_after_the_deadline_changes_nothing(self, world: PushWorld) -> None:
        """The delivery has lapsed: the late 200 is stale, and the message is posted again."""

        def slow(post: PushRequest) -> PushResponse:
            assert 50 < post.timeout_s < 60, "the ack deadline is the timeout"
            world.clock.advance(61 * SECOND)
            world.store.write(lambda tx: delivery_lapse(tx, lambda: 0.0))
            return PushResponse(status=200)

        sub = world.declare("orders", PushConfig(endpoint="https://hooks.example.com/"))
        world.publish("orders", NewMessage(data=b"x"))
        world.drain(world.pusher(post=slow), 1)
        assert [event.outcome for event in world.posted] == ["stale"]
        assert (world.sums(sub).acked, world.waiting(sub).delayed) == (0, 1)


class TestThreads:
    """Threads: many endpoints and messages, with bounded concurrency."""

    def run(self, pusher: Pusher, until: Callable[[], bool], seconds: float = 90.0) -> None:
        """Run steps like a loop until a condition holds."""
        ended = threading.Event()
        for _ in range(int(seconds / 0.02)):
            pusher.run_once()
            if until():
                return
            ended.wait(0.02)
        raise AssertionError("not reached")

    def test_one_slow_endpoint_delays_no_other(self, world: PushWorld) -> None:
        """A hanging endpoint uses only a share of the threads; the other one is served."""
        free = threading.Event()

        def hang(_: ReceivedRequest) -> ScriptedResponse:
            free.wait(60)
            return ScriptedResponse(200)

        with receiving(hang) as slow, receiving() as quick:
            world.declare("slow", to(slow))
            world.declare("quick", to(quick))
            world.publish("slow", *[NewMessage(data=b"s") for _ in range(20)])
            pusher = world.pusher(threads=4)
            pusher.run_once()
            slow.wait_for(1)
            world.publish("quick", *[NewMessage(data=b"q") for _ in range(40)])
            self.run(pusher, lambda: len(quick.got) == 40)
            assert 1 <= len(slow.got) <= 3
            free.set()
            self.run(pusher, lambda: len(slow.got) == 20)

    def test_slow_endpoints_of_one_customer_delay_no_other(self, world: PushWorld) -> None:
        """More hanging endpoints than threads: another customer's endpoint is still served."""
        free = threading.Event()
        mean, other = CustomerKey(7), CustomerKey(8)

        def hang(_: ReceivedRequest) -> ScriptedResponse:
            free.wait(60)
            return ScriptedResponse(200)

        with receiving(hang) as slow, receiving() as quick:
            for n in range(12):
                world.declare(f"slow-{n}", to(slow), mean)
                world.publish(f"slow-{n}", NewMessage(data=b"s"), customer=mean)
            pusher = world.pusher(threads=4)
            pusher.run_once()
            slow.wait_for(3)
            world.declare("quick", to(quick), other)
            world.publish("quick", *[NewMessage(data=b"q")] * 10, customer=other)
            self.run(pusher, lambda: len(quick.got) == 10)
            assert len(slow.got) == 3, "three of four threads are one customer's share"
            free.set()
            self.run(pusher, lambda: len(slow.got) == 12)

    def test_the_window_grows_with_success(self, world: PushWorld) -> None:
        """Concurrency grows with successes, up to the number of threads."""
        busy, most, lock = [0], [0], threading.Lock()

        def count(_: ReceivedRequest) -> ScriptedResponse:
            with lock:
                busy[0] += 1
                most[0] = max(most[0], busy[0])
            with lock:
                busy[0] -= 1
            return ScriptedResponse(200)

        with receiving(count) as receiver:
            sub = world.declare("orders", to(receiver))
            world.publish("orders", *[NewMessage(data=b"x") for _ in range(60)])
            pusher = world.pusher(threads=8)
            # The last ack is stored after its response was sent.
            self.run(pusher, lambda: world.sums(sub).acked == 60)
            assert pusher.drain(20)
        assert pusher.endpoint_concurrency()[sub.subscription_key] > 4
        assert most[0] <= 8

    def test_keys_keep_their_order(self, world: PushWorld) -> None:
        """Messages of a key arrive in order, one at a time; keys are independent."""
        in_progress: set[str] = set()
        order: dict[str, list[int]] = {}
        overlaps: list[str] = []
        lock = threading.Lock()

        def note(got: ReceivedRequest) -> ScriptedResponse:
            message = got.json["message"]
            key, n = message["orderingKey"], int(message["attributes"]["n"])
            with lock:
                if key in in_progress:
                    overlaps.append(key)
                in_progress.add(key)
                order.setdefault(key, []).append(n)
            with lock:
                in_progress.discard(key)
            return ScriptedResponse(200)

        with receiving(note) as receiver:
            sub = world.declare("orders", to(receiver), is_ordered=True)
            messages = [
                NewMessage(data=b"x", ordering_key=f"k{n % 4}", attributes={"n": str(n)})
                for n in range(40)
            ]
            world.publish("orders", *messages)
            pusher = world.pusher(threads=8)
            self.run(pusher, lambda: world.sums(sub).acked == 40)
        assert overlaps == []
        assert {key: got == sorted(got) for key, got in order.items()} == {
            f"k{n}": True for n in range(4)
        }

    def test_many_pushers_post_each_message_once(self, world: PushWorld) -> None:
        """Two pushers share a backlog; no message is posted twice or left behind."""
        with receiving() as receiver:
            sub = world.declare("orders", to(receiver))
            numbers = world.publish("orders", *[NewMessage(data=b"x") for _ in range(100)])
            pushers = [world.pusher(threads=4, holder=f"p{n}") for n in range(2)]

            def both() -> bool:
                pushers[1].run_once()
                return bool(world.sums(sub).acked == 100)

            self.run(pushers[0], both)
        assert sorted(int(got.json["message"]["messageId"]) for got in receiver.got) == numbers


def test_nothing_to_do(world: PushWorld) -> None:
    """Without ready deliveries a step only reads."""
    assert world.pusher().run_once() == PushCounts()
    world.declare("orders", PushConfig(endpoint="https://hooks.example.com/"))
    assert world.pusher().run_once().started == 0
