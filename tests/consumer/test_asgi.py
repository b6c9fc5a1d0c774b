"""Pushes over HTTP: paths, methods, bounds, senders; invalid input is never a 5xx."""

import asyncio
import contextvars
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from penstock.consumer import Consumer, ConsumerOptions, Message, Upsert
from penstock.core.errors import Forbidden, StoreUnavailable, Unauthorised
from penstock.sinks.postgres import PostgresSink
from penstock.sinks.sqlite import SqliteSink
from penstock.testing.clock import VirtualClock
from tests.bus.test_envelope import INVALID, VALID
from tests.consumer.kit import SUB, envelope, request

HEARTBEAT = envelope(b'{"p": 1}', {"event_type": "beat"})


def consumer(path: Path, **more: Any) -> Consumer:
    """Create a consumer of heartbeats with a SQLite sink."""
    quiet = {"log": lambda _: None, **more.pop("options", {})}
    app = Consumer(SUB, sink=f"sqlite:{path}", options=ConsumerOptions(**quiet), **more)

    @app.on("beat")
    def heartbeat(message: Message) -> Upsert:
        return Upsert(path="beats/1", add={"n": 1}, fields={"p": message.json["p"]})

    return app


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Consumer]:
    made = consumer(tmp_path / "state.db")
    yield made
    made.close()


class TestRequests:
    """Paths and methods."""

    @pytest.mark.parametrize(
        ("method", "path", "status", "allow"),
        [
            ("POST", "/pubsub/push", 200, None), ("POST", "/", 200, None),
            ("GET", "/pubsub/push", 405, "POST"), ("PUT", "/", 405, "POST"),
            ("TRACE", "/", 405, "POST"), ("OPTIONS", "/pubsub/push", 405, "POST"),
            ("POST", "/pubsub/push/", 404, None), ("POST", "/pubsub/..%2fpush", 404, None),
            ("POST", "//", 404, None), ("POST", "/\x00", 404, None),
            ("GET", "/healthz", 200, None), ("HEAD", "/healthz", 200, None),
            ("GET", "/readyz", 200, None), ("POST", "/healthz", 405, "GET, HEAD"),
        ],
    )  # fmt: skip
    def test_paths(
        self, app: Consumer, method: str, path: str, status: int, allow: str | None
    ) -> None:
        """Pushes are posted to one path or the root; health checks use GET; the rest is 404."""
        response = request(app.asgi(), HEARTBEAT, method=method, path=path)
        assert response.status == status
        assert response.headers.get("allow") == allow
        assert response.headers["content-type"] == "application/json"
        assert bool(response.body) == (method != "HEAD")

    def test_mounted(self, app: Consumer) -> None:
        """Mounted under another application, the path below the mount point counts."""
        response = request(app.asgi(), HEARTBEAT, path="/api/in/pubsub/push", root="/api/in")
        assert response.status == 200
        assert request(app.asgi(), HEARTBEAT, path="/api/in", root="/api/in").status == 200

    def test_custom_path(self, tmp_path: Path) -> None:
        """The option `path` replaces the default path."""
        app = consumer(tmp_path / "state.db", options={"path": "/in"})
        assert request(app.asgi(), HEARTBEAT, path="/in").status == 200
        assert request(app.asgi(), HEARTBEAT, path="/pubsub/push").status == 404
        app.close()

    def test_unwrapped(self, tmp_path: Path) -> None:
        """The body is the data, headers carry the rest; without a message id it is poison."""
        app = consumer(tmp_path / "state.db", options={"is_unwrapped": True}, dead_letters=True)
        headers = [("x-goog-pubsub-message-id", "7"), ("event_type", "beat")]
        assert request(app.asgi(), b'{"p": 1}', headers=headers).json == {"outcome": "applied"}
        assert request(app.asgi(), b'{"p": 1}', headers=headers).json == {"outcome": "duplicate"}
        assert request(app.asgi(), b'{"p": 1}', headers=headers[1:]).status == 400
        app.close()

    def test_lifespan_and_websockets(self, app: Consumer) -> None:
        """Lifespan events are acknowledged; a websocket is closed."""

        async def exchange(kind: str, events: list[str]) -> list[str]:
            sent: list[str] = []

            async def receive() -> dict[str, Any]:
                return {"type": events.pop(0)}

            async def send(event: Any) -> None:
                sent.append(event["type"])

            await app.asgi()({"type": kind}, receive, send)
            return sent

        events = ["lifespan.startup", "lifespan.shutdown"]
        expected = ["lifespan.startup.complete", "lifespan.shutdown.complete"]
        assert asyncio.run(exchange("lifespan", events)) == expected
        assert asyncio.run(exchange("websocket", [])) == ["websocket.close"]


class TestBounds:
    """Bodies are bounded in size, encoding and time."""

    def test_size(self, app: Consumer) -> None:
        """A body over 14 MiB is refused, also without Content-Length; the largest message fits."""
        most = app.options.body_max
        for headers in ([("content-length", str(most + 1))], [("content-length", "9" * 20)], []):
            response = request(app.asgi(), b"x" * (most + 1), headers=headers)
            assert (response.status, response.headers["connection"]) == (413, "close")
        largest = json.dumps({"p": "x" * (10_000_000 - 9)}).encode()
        assert request(app.asgi(), envelope(largest, {"event_type": "beat"})).status == 200

    def test_compressed(self, app: Consumer) -> None:
        """A compressed body is refused, not decompressed."""
        headers = [("content-encoding", "gzip")]
        assert request(app.asgi(), HEARTBEAT, headers=headers).status == 415

    def test_slow_and_disconnected(self, app: Consumer, tmp_path: Path) -> None:
        """An incomplete body gets 408 after the time limit; a disconnect gets no response."""
        app = consumer(tmp_path / "slow.db", options={"body_wait": 0.01})

        async def exchange(events: list[dict[str, Any]]) -> list[Any]:
            sent: list[Any] = []

            async def receive() -> dict[str, Any]:
                if events:
                    return events.pop(0)
                return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

            async def send(event: Any) -> None:
                sent.append(event)

            scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
            await app.asgi()(scope, receive, send)
            return sent

        part = {"type": "http.request", "body": b"{", "more_body": True}
        assert asyncio.run(exchange([part]))[0]["status"] == 408
        assert asyncio.run(exchange([part, {"type": "http.disconnect"}])) == []
        assert app.tally == {}
        app.close()

    def test_too_many_at_once(self, tmp_path: Path) -> None:
        """A push above the bound gets 429; all others are handled."""
        app = Consumer(
            SUB,
            sink=f"sqlite:{tmp_path / 'state.db'}",
            options=ConsumerOptions(concurrency=1, outstanding=64, log=lambda _: None),
        )
        may_end = threading.Event()

        @app.on()
        def slow(_: Message) -> None:
            assert may_end.wait(60)

        served = app.asgi()

        async def exchange() -> list[int]:
            statuses: list[int] = []

            async def one(number: int) -> None:
                async def receive() -> dict[str, Any]:
                    return {"type": "http.request", "body": envelope(b"{}", id=str(number))}

                async def send(event: Any) -> None:
                    if event["type"] == "http.response.start":
                        statuses.append(event["status"])
                        may_end.set()

                scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
                await served(scope, receive, send)

            await asyncio.gather(*(one(number) for number in range(65)))
            return statuses

        statuses = asyncio.run(exchange())
        assert (statuses.count(429), statuses.count(200)) == (1, 64)
        app.close()


class TestSenders:
    """The verifier checks the headers before the body is read."""

    @pytest.mark.parametrize(
        ("response", "status"),
        [
            (None, 200), (True, 200), (False, 401), (Unauthorised("no token"), 401),
            (Forbidden("not yours"), 403), (ValueError("a bug"), 401),
            (StoreUnavailable("keys are unavailable"), 503),
        ],
    )  # fmt: skip
    def test_responses(self, tmp_path: Path, response: Any, status: int) -> None:
        """The sender is known, unknown, not allowed, or cannot be verified at the moment."""
        seen: list[Any] = []

        def verify(headers: Any) -> Any:
            seen.append(dict(headers))
            if isinstance(response, Exception):
                raise response
            return response

        app = consumer(tmp_path / "state.db", verify=verify)
        got = request(app.asgi(), HEARTBEAT, headers=[("Authorization", "Bearer x")])
        assert got.status == status
        assert seen == [{"authorization": "Bearer x"}]
        assert app.tally == ({"applied": 1} if status == 200 else {})
        assert ("www-authenticate" in got.headers) == (status in (401, 403))
        twice = [("authorization", "Bearer x"), ("authorization", "Bearer y")]
        assert request(app.asgi(), HEARTBEAT, headers=twice).status == 400
        app.close()


class TestHandlers:
    """Sync and async handlers."""

    def test_async_handlers_share_the_servers_loop(self, tmp_path: Path) -> None:
        """An async handler runs on the server's loop; a sync one runs on a thread."""
        app = Consumer(
            SUB,
            sink=f"sqlite:{tmp_path / 'state.db'}",
            options=ConsumerOptions(log=lambda _: None),
        )
        seen: list[Any] = []

        @app.on("async")
        async def one(message: Message) -> Upsert:
            await asyncio.to_thread(lambda: None)
            seen.append(asyncio.get_running_loop())
            return Upsert(path=f"a/{message.id}")

        @app.on("sync")
        def two(_: Message) -> None:
            seen.append(threading.current_thread().name)

        served = app.asgi()
        assert request(served, envelope(b"{}", {"event_type": "async"})).status == 200
        assert request(served, envelope(b"{}", {"event_type": "sync"}, id="2")).status == 200
        # Without a running server, as in a pull worker, the consumer uses its private loop.
        alone = Message(id="3", data=b"{}", attributes={"event_type": "async"}, subscription=SUB)
        assert app.handle(alone).outcome == "applied"
        assert seen[0] is not seen[2]
        assert seen[1].startswith("penstock-consumer")
        assert app.sink.document("a/3") is not None
        app.close()


def keep(message: Message) -> Upsert:
    """Store the payload under the message id."""
    return Upsert(path=f"values/{message.id}", fields={"v": message.json})


class TestCorpus:
    """Invalid input never causes a 5xx, with or without a dead-letter policy."""

    @pytest.mark.postgres
    def test_envelopes(self, tmp_path: Path, pg_dsn: str, clock: VirtualClock) -> None:
        """Every envelope gets the same response and leaves the same state on both engines.

        Poison is refused with a dead-letter policy; without one it is accepted and audited.
        """
        own = f"subscriptions/{SUB}".encode()
        misdirected = INVALID["other subscription"][0]
        sent = {name: (whole.replace(b"subscriptions/s", own), False)
                for name, (whole, _) in INVALID.items() if whole != misdirected}  # fmt: skip
        for index, (name, (whole, data)) in enumerate(VALID.items()):
            whole = whole.replace(b"subscriptions/s", own).replace(b'"7"', b'"id-%d"' % index)
            # Handlers take JSON objects: other data in a valid envelope is poison.
            sent[f"good: {name}"] = (whole, data.startswith(b"{"))
        for dead_letters in (True, False):
            left = []
            for sink in (
                SqliteSink(tmp_path / f"{dead_letters}.db", clock=clock),
                PostgresSink(pg_dsn, prefix=f"p{dead_letters:d}_", clock=clock),
            ):
                quiet = ConsumerOptions(log=lambda _: None)
                app = Consumer(SUB, sink=sink, options=quiet, dead_letters=dead_letters)
                app.on()(keep)
                served = app.asgi()
                for name, (whole, is_good) in sent.items():
                    expected = 400 if dead_letters and not is_good else 200
                    assert request(served, whole).status == expected, name
                assert request(served, misdirected).status == 500, "a configuration error"
                poison = sum(not is_good for _, is_good in sent.values())
                assert app.tally == {
                    "poison": poison, "applied": len(sent) - poison, "retry": 1,
                }  # fmt: skip
                documents = [sink.document(f"values/id-{n}") for n in range(len(VALID))]
                left.append((documents, sink.counters(SUB), list(sink.audits(SUB, limit=1000))))
                app.close()
                sink.close()
            assert left[0] == left[1]
            assert bool(left[0][2]) is not dead_letters

    @settings(
        max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    @example(body=b"", data=b"0")
    @example(body=b"0", data=b"[]")
    @example(body=b"null", data=b"null")
    @example(body=b"[]", data=b'"text"')
    @example(body=b"{}", data=b"{}")
    @example(body=b"{}", data=b"true")
    @given(body=st.binary(max_size=200), data=st.binary(max_size=100))
    def test_any_bytes(self, app: Consumer, body: bytes, data: bytes) -> None:
        """Any body, and any data in a valid envelope, gets a response other than 5xx."""
        for whole in (body, envelope(data, {"event_type": "beat"}, id=data.hex() or "0")):
            assert request(app.asgi(), whole).status == 200


def test_many_clients_at_once(tmp_path: Path) -> None:
    """Messages that many clients push concurrently are each applied once."""
    app = consumer(tmp_path / "state.db")
    served = app.asgi()

    def push(number: int) -> int:
        body = envelope(b'{"p": 1}', {"event_type": "beat"}, id=str(number % 7))
        context = contextvars.copy_context()
        return context.run(request, served, body).status

    with ThreadPoolExecutor(6) as threads:
        assert set(threads.map(push, range(42))) == {200}
    assert app.counters() == {"applied": 7, "duplicate": 35}
    document = app.sink.document("beats/1")
    assert document is not None
    assert document.fields["n"] == 7
    app.close()
