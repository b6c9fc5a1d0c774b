"""The cache of keys: how long a key is believed, and who waits for lookups."""

import asyncio
import threading
from typing import Any

import pytest

from penstock.access.api_keys import Role, format_key
from penstock.core.errors import InvalidInput
from penstock.server import auth
from penstock.server.auth import KeyCache
from penstock.server.overload.admission_queue import STUCK_SECONDS, AdmissionQueue
from penstock.server.problems import Refused
from penstock.testing.clock import VirtualClock
from tests.kits.client_harness import Harness
from tests.server.kit import ServedApi
from tests.server.test_long_poll import Poll, waiting


def test_belief_ends_at_expiry(harness: Harness) -> None:
    """A cached key is refused as soon as it has expired."""
    clock = VirtualClock(0)
    keys = KeyCache(harness.client, clock=clock, rate=10)
    text = str(harness.client.keys.create("short", Role.VIEWER, expires="10s").key)
    assert keys.look_up(text).caller is not None
    for step, is_believed in ((9, True), (2, False)):
        clock.advance(seconds=step)
        harness.clock.advance(seconds=step)
        assert (keys.cached(text) is not None) is is_believed
    assert keys.look_up(text).caller is None


def test_belief_in_a_replaced_secret(harness: Harness) -> None:
    """The old secret of a rotated key is believed until its overlap ends."""
    clock = VirtualClock(0)
    keys = KeyCache(harness.client, clock=clock, rate=10)
    made = harness.client.keys.create("rotated", Role.VIEWER)
    harness.client.keys.rotate(made.info.key_id, overlap="10s")
    assert keys.look_up(str(made.key)).caller is not None
    clock.advance(seconds=11)
    assert keys.cached(str(made.key)) is None


@pytest.mark.parametrize("route", ["claim", "pull"])
def test_revoked_while_it_waits(
    served: ServedApi, monkeypatch: pytest.MonkeyPatch, route: str
) -> None:
    """A key that is revoked during a long poll is refused; the run or message stays for others."""
    monkeypatch.setattr(auth, "CHECK_AGAIN_SECONDS", 0.0)
    client = served.harness.client
    made = client.keys.create("leaver", Role.WORKER)
    served.keys["leaver"] = str(made.key)
    served.by("operator").ok("POST", "/topics", {"name": "orders"})
    served.by("operator").ok("POST", "/subscriptions", {"name": "mine", "topic": "orders"})
    replies: list[Any] = []
    path = "/scheduler/claim-runs" if route == "claim" else "/subscriptions/mine/pull"
    body: dict[str, Any] = {"wait_seconds": 50}
    if route == "claim":
        body["worker_id"] = "w1"

    def poll() -> None:
        replies.append(served.by("leaver").post(path, body))

    checking, go_on = threading.Event(), threading.Event()
    check = KeyCache.check_again

    def check_later(keys: KeyCache, text: str) -> None:
        checking.set()
        assert go_on.wait(60)
        check(keys, text)

    monkeypatch.setattr(KeyCache, "check_again", check_later)
    thread = threading.Thread(target=poll)
    thread.start()
    assert checking.wait(60)  # nothing was found at first, and the next attempt begins
    client.keys.revoke(made.info.key_id)
    if route == "claim":
        served.harness.submit("outside")
    else:
        served.by("operator").ok("POST", "/topics/orders/publish", {"messages": [{"data": "eA=="}]})
    go_on.set()
    thread.join(60)
    assert replies[0].status == 401
    body["wait_seconds"] = 0
    (left,) = served.by("worker").ok("POST", path, body).values()
    assert len(left) == 1


def test_lookups_of_strangers(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guessing keys delays neither a caller that was known before nor a malformed key."""
    clock = VirtualClock(0)
    entered, go_on = threading.Event(), threading.Event()
    keys = KeyCache(harness.client, clock=clock, rate=1000)
    text = str(harness.client.keys.create("known", Role.VIEWER).key)
    guess = format_key(10**6, "0" * 40)
    find = keys.look_up

    def slow(asked: str) -> Any:
        if asked == guess:
            entered.set()
            assert go_on.wait(60)
        return find(asked)

    async def scenario() -> None:
        assert (await keys.authenticate(text)).caller is not None
        clock.advance(seconds=auth.VALID_CACHE_SECONDS * 2)
        guesses = [asyncio.ensure_future(keys.authenticate(guess)) for _ in range(50)]
        await asyncio.to_thread(entered.wait, 60)
        assert (await keys.authenticate(text)).caller is not None
        with pytest.raises(Refused):
            await keys.authenticate("pnk_nonsense")
        assert len(keys._lookups) == 1, "equal lookups are shared"
        go_on.set()
        assert all(one.caller is None for one in await asyncio.gather(*guesses))

    monkeypatch.setattr(keys, "look_up", slow)
    asyncio.run(scenario())


@pytest.mark.parametrize("engine", ["sqlite"])
def test_waiting_requests_of_one_caller(harness: Harness) -> None:
    """A key may use half of the connections for long polls; others can wait too."""
    served = ServedApi(harness, connections=8)
    try:
        polls = []
        for n in range(4):
            polls.append(Poll(served))
            waiting(served, n + 1)
        reply = served.by("worker").post(
            "/scheduler/claim-runs", {"worker_id": "w", "wait_seconds": 5}
        )
        assert (reply.status, reply.headers["retry-after"]) == (429, "5")
        polls.append(Poll(served, "operator"))
        waiting(served, 5)
        polls.append(Poll(served, "admin"))
        waiting(served, 6)
        full = served.by("operator").post(
            "/scheduler/claim-runs", {"worker_id": "w", "wait_seconds": 5}
        )
        assert full.status == 503, "a quarter of the connections is left to other requests"
        assert served.by("viewer").get("/pauses").status == 200
        served.api.waiting.is_stopping = True
        served.api.waiting.release()
        assert [poll.claimed_runs() for poll in polls] == [[]] * 6
    finally:
        served.stop()


def test_is_stuck() -> None:
    """The server is not ready when everything is in use and nothing ends."""
    clock = VirtualClock(0)
    queue = AdmissionQueue(concurrency=2, most=4, clock=clock)
    queue.reenter()
    queue.reenter()
    seen = [queue.is_stuck]
    clock.advance(seconds=STUCK_SECONDS + 1)
    seen.append(queue.is_stuck)
    queue.leave()
    assert [*seen, queue.is_stuck] == [False, True, False]


def test_the_smallest_rate(harness: Harness) -> None:
    """A wait is finite, also for a rate that was stored as almost zero."""
    bucket = auth.TokenBucket(5e-324, 0.0)
    assert bucket.take(0.0) == 0.0
    assert bucket.take(1.0) == auth.WAIT_MAX_S
    for rate in (5e-324, 0.0009, 100_001):
        with pytest.raises(InvalidInput, match=r"rate: expected 0\.001 to 100,000 requests"):
            harness.client.keys.create("tiny", Role.VIEWER, rate=rate)
