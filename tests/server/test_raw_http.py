"""Raw requests whose cost to the event loop is far above their size, and ambiguous headers."""

import logging
from collections.abc import Iterator

import pytest

from penstock.access import api_keys
from penstock.server.overload.connections import ConnectionTable, Standing
from penstock.server.overload.message_cost import HEADERS_MAX
from tests.kits.client_harness import Harness
from tests.server.kit import ServedApi
from tests.server.wire import Wire, Wires

RUNS = b"POST /api/v1/customers/acme/pipeline-runs HTTP/1.1\r\nHost: x\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"

# Nothing here depends on the engine.
pytestmark = pytest.mark.parametrize("engine", ["sqlite"])


@pytest.fixture
def served(harness: Harness) -> Iterator[ServedApi]:
    """Return a served API."""
    made = ServedApi(harness)
    yield made
    made.stop()


def key_of(served: ServedApi) -> bytes:
    """Return the header lines of an operator's request."""
    key = served.keys["operator"]
    return f"Authorization: Bearer {key}\r\nContent-Type: application/json\r\n".encode()


class TestCostlyRequests:
    """A client pays for what it sends; the server must not pay more."""

    def test_many_headers(self, served: ServedApi, wires: Wires) -> None:
        """The number of headers is bounded, however short they are."""
        few, many = wires(served), wires(served)
        few.socket.sendall(HEALTH + b"a:\r\n" * (HEADERS_MAX - 1) + b"\r\n")
        assert few.read()[0] == 200
        many.socket.sendall(HEALTH + b"a:\r\n" * HEADERS_MAX + b"\r\n")
        assert many.file.readline().startswith(b"HTTP/1.1 431")

    @pytest.mark.parametrize(
        "rest",
        [
            b"1\r\na\r\n" * 300,
            b"0\r\n" + b"a:\r\n" * 150,
            b"1;" + b"a" * 70_000,
            b"1000\r\n%s\r\n" % (b" " * 4096) * 20,
        ],
        ids=["tiny chunks", "trailers", "extension", "rest"],
    )
    def test_body_after_the_response(self, served: ServedApi, wires: Wires, rest: bytes) -> None:
        """A chunked body that is not needed ends the connection, without a second response."""
        wire = wires(served)
        wire.socket.sendall(RUNS + CHUNKED)
        assert wire.read()[0] == 401
        wire.socket.sendall(rest)
        assert wire.is_closed

    @pytest.mark.parametrize(
        ("sent", "status"),
        [
            (b"1\r\n \r\n" * 300, b"400"),
            (b"2\r\n{}\r\n0\r\n" + b"a:\r\n" * 150, b"431"),
        ],
        ids=["tiny chunks", "trailers"],
    )
    def test_body_of_a_caller(
        self, served: ServedApi, wires: Wires, sent: bytes, status: bytes
    ) -> None:
        """The same bounds hold for a body that is read."""
        wire = wires(served)
        wire.socket.sendall(RUNS + key_of(served) + CHUNKED + sent)
        assert wire.file.readline().split(b" ")[1] == status

    def test_a_streamed_body(self, served: ServedApi, wires: Wires) -> None:
        """A body in many chunks of ordinary size is read."""
        wire = wires(served)
        text = b'{"pipeline_template": "outside"}'
        chunks = b"40\r\n%s\r\n" % (b" " * 64) * 1_000
        end = b"%x\r\n%s\r\n0\r\n\r\n" % (len(text), text)
        wire.socket.sendall(RUNS + key_of(served) + CHUNKED + chunks + end)
        assert wire.read()[0] == 201

    def test_nothing_is_logged(
        self, served: ServedApi, wires: Wires, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Invalid requests of anyone write no warnings."""
        caplog.set_level(logging.DEBUG)
        for sent in (
            b"\x16\x03\x01\r\n\r\n",
            HEALTH + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
        ):
            wire = wires(served)
            wire.socket.sendall(sent)
            wire.file.read()
        assert not [one for one in caplog.records if one.name.startswith("uvicorn")]


class TestAmbiguousHeaders:
    """Headers that a proxy may read differently."""

    @pytest.mark.parametrize(
        "lines",
        [
            b"Host: x\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n",
            b"Host: x\r\nX-Scheduler-Token: a\r\nX-Scheduler-Token: b\r\n",
            b"Host: x\r\nContent-Encoding: gzip\r\nContent-Encoding: identity\r\n",
            b"Host: x\r\nContent-Type: a/b\r\nContent-Type: application/json\r\n",
            b"Host: x\r\nIdempotency-Key: a\r\nIdempotency-Key: b\r\n",
            b"Host: x\r\nTransfer-Encoding: gzip, chunked\r\n",
            b"X: y\r\n",
        ],
    )
    def test_refused(self, served: ServedApi, wires: Wires, lines: bytes) -> None:
        """They get 400 and the connection is closed."""
        wire: Wire = wires(served)
        wire.socket.sendall(b"POST /healthz HTTP/1.1\r\n" + lines + b"\r\n")
        assert wire.file.read().startswith(b"HTTP/1.1 400")


class TestPacing:
    """Requests of unknown callers start in turn."""

    def test_standing(self, served: ServedApi) -> None:
        """Only a key that was valid before makes a request known; any text does not."""
        recognise, key = served.api.recognise, served.keys["viewer"]
        header = f"Bearer {key}".encode()
        assert recognise({b"authorization": header}) is Standing.PLAUSIBLE
        assert served.by("viewer").get("/pauses").status == 200
        assert recognise({b"authorization": header}) is Standing.KNOWN
        guessed = api_keys.format_key(1, "0" * api_keys.SECRET_CHARS)
        assert served.by("viewer").get("/pauses", Authorization=f"Bearer {guessed}").status == 401
        assert recognise({b"authorization": f"Bearer {guessed}".encode()}) is Standing.PLAUSIBLE
        for headers in ({}, {b"authorization": b"Bearer x"}, {b"x-scheduler-token": b"x"}):
            assert recognise(headers) is Standing.NONE
        recognise.add_sender("Bearer a.b.c")
        assert recognise({b"authorization": b"Bearer a.b.c"}) is Standing.KNOWN

    def test_unknown_callers_wait(
        self, served: ServedApi, wires: Wires, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Impossible keys, and health asked for many times at once, delay no other request."""
        assert served.by("viewer").get("/pauses").status == 200
        for queue in served.api.connections._paced.values():
            monkeypatch.setattr(queue, "_next_at", float("inf"))
        bad, health = wires(served), wires(served)
        bad.socket.sendall(
            b"GET /api/v1/pauses HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\n\r\n"
        )
        health.socket.sendall((HEALTH + b"\r\n") * 3)
        assert health.read()[0] == 200
        for path in ("/pauses", "/readyz", "/healthz"):
            assert served.by("viewer").get(path).status == 200, path
        table: ConnectionTable = served.api.connections
        while table._paced[Standing.NONE].count < 2:
            assert served.by("viewer").get("/pauses").status == 200
