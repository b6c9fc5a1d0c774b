"""Requests to checked addresses, against real servers that misbehave in every known way."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from collections.abc import Iterator

import pytest

from penstock.core.clock import SystemClock
from penstock.core.errors import InvalidInput
from penstock.egress.connection_pool import AGE_SECONDS, IDLE_SECONDS, POOL_MAX, IdleConnections
from penstock.egress.http_client import (
    BODY_MAX,
    HttpClient,
    HttpResponse,
    Request,
    RequestFailed,
)
from penstock.egress.lookups import LOOKUPS_MAX, Resolve
from penstock.egress.policy import EgressRules
from penstock.testing.clock import VirtualClock
from tests.kits.egress import Receiver, ScriptedResponse, authority, raw_server, receiving

INSIDE = EgressRules(allow_private=True)
PLAIN = EgressRules(allow_private=True, allow_http=True)
HOST = "hooks.example.com"


class StepClock(SystemClock):
    """A clock that advances by `step` at each reading, so that no deadline is waited for.

    With a step of 0 it stands still: however slow the machine, no deadline passes before the wait.
    """

    def __init__(self, step: float) -> None:
        self._at = 0.0
        self._step = step

    def monotonic(self) -> float:
        self._at += self._step
        return self._at


def here(*_: object) -> list[str]:
    return ["127.0.0.1"]


def egress(
    rules: EgressRules = INSIDE, resolve: Resolve = here, clock: SystemClock | None = None
) -> HttpClient:
    return HttpClient(clock or SystemClock(), rules, tls=authority().trusting(), resolve=resolve)


@contextlib.contextmanager
def hanging_lookups() -> Iterator[tuple[HttpClient, queue.SimpleQueue[str]]]:
    """A client whose lookups hang, except of names with "good", and the names looked up."""
    free = threading.Event()
    started: queue.SimpleQueue[str] = queue.SimpleQueue()

    def hanging(host: str, _port: int) -> list[str]:
        started.put(host)
        if "good" not in host:
            free.wait(60)
        return ["127.0.0.1"]

    try:
        yield egress(PLAIN, hanging, StepClock(0)), started
    finally:
        free.set()


def failure_of(client: HttpClient, url: str, owner: str) -> str:
    """Send a request that must fail; return the kind of the failure."""
    with pytest.raises(RequestFailed) as failed:
        client.send(Request(url=url, timeout_s=0.001, owner=owner))
    return failed.value.kind


def plain(port: int, **more: object) -> HttpResponse:
    """Send a request over plain http."""
    options = {"timeout_s": 20.0, "read_body": True, **more}
    return egress(PLAIN).send(Request(url=f"http://{HOST}:{port}/x", **options))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    """A receiver with a certificate for HOST."""
    tls = authority().serving(tmp_path_factory.mktemp("tls"), HOST)
    with receiving(lambda _: ScriptedResponse(200, {"X-Kept": "yes"}, b"fine"), tls) as made:
        yield made


class TestTls:
    """The certificate must match the name; the connection goes to the checked address."""

    def test_a_request_arrives_unchanged(self, secure: Receiver) -> None:
        """Host, path, headers and body arrive as sent; the response is returned."""
        request = Request(
            url=f"https://{HOST}:{secure.port}/a?b=c",
            headers={"Content-Type": "text/plain", "X-One": "1"},
            body=b"x" * 200_000,
            read_body=True,
        )
        reply = egress().send(request)
        got = secure.wait_for(1)[-1]
        assert (reply.status, reply.body, reply.headers["x-kept"]) == (200, b"fine", "yes")
        assert (got.method, got.path, got.body) == ("POST", "/a?b=c", request.body)
        assert got.headers["host"] == f"{HOST}:{secure.port}"
        assert (got.headers["x-one"], got.headers["connection"]) == ("1", "close")

    def test_a_certificate_for_another_host_is_refused(self, secure: Receiver) -> None:
        with pytest.raises(RequestFailed) as failed:
            egress().send(Request(url=f"https://other.example.com:{secure.port}/"))
        assert failed.value.kind == "certificate"
        assert "other.example.com" in failed.value.message

    def test_an_unknown_authority_is_refused(self, secure: Receiver) -> None:
        sender = HttpClient(SystemClock(), INSIDE, resolve=here)
        with pytest.raises(RequestFailed) as failed:
            sender.send(Request(url=f"https://{HOST}:{secure.port}/"))
        assert failed.value.kind == "certificate"

    def test_a_server_without_tls_is_refused(self) -> None:
        with receiving() as made, pytest.raises(RequestFailed) as failed:
            egress().send(Request(url=f"https://{HOST}:{made.port}/"))
        assert failed.value.kind in ("tls", "connection")


class TestAddresses:
    """Names are resolved once, all addresses are checked, and one of them is connected to."""

    @pytest.mark.parametrize(
        "addresses",
        [["127.0.0.1"], ["1.1.1.1", "10.0.0.1"], ["::ffff:169.254.169.254"], ["fe80::1%lo"], []],
    )
    def test_names_of_private_addresses_are_refused(
        self, secure: Receiver, addresses: list[str]
    ) -> None:
        """A public name with a private address (as at nip.io) is refused before connecting."""
        before = len(secure.got)
        strict = egress(EgressRules(), lambda *_: addresses)
        with pytest.raises(InvalidInput):
            strict.send(Request(url=f"https://127.0.0.1.nip.io:{secure.port}/"))
        assert len(secure.got) == before

    def test_dns_rebinding_has_no_effect(self) -> None:
        """The name is resolved once: the connection goes to the checked address."""
        asked: list[str] = []

        def rebinding(host: str, _port: int) -> list[str]:
            asked.append(host)
            return ["127.0.0.1"] if len(asked) == 1 else ["127.0.0.2"]

        with receiving() as made:
            sender = egress(PLAIN, rebinding)
            assert sender.send(Request(url=f"http://{HOST}:{made.port}/")).status == 204
        assert asked == [HOST]

    def test_the_next_checked_address_is_tried(self) -> None:
        """The first address refuses the connection; the second accepts it."""
        with receiving() as made:
            sender = egress(PLAIN, lambda *_: ["127.0.0.9", "127.0.0.1"])
            assert sender.send(Request(url=f"http://{HOST}:{made.port}/")).status == 204

    @pytest.mark.parametrize("error", [OSError("no"), UnicodeError("no"), RuntimeError("no")])
    def test_a_lookup_that_fails_allows_nothing(self, error: Exception) -> None:
        def failing(*_: object) -> list[str]:
            raise error

        with pytest.raises(RequestFailed) as failed:
            egress(PLAIN, failing).send(Request(url=f"http://{HOST}:9999/"))
        assert failed.value.kind == "lookup"

    def test_lookups_that_hang_are_bounded(self) -> None:
        """Each hanging lookup fails at its deadline; beyond the limit none is started."""
        with hanging_lookups() as (sender, _):
            kinds = [
                failure_of(sender, f"http://h{n}.{HOST}:9999/", "mean")
                for n in range(LOOKUPS_MAX + 1)
            ]
        assert kinds == ["timeout"] * LOOKUPS_MAX + ["lookup"]

    def test_hanging_lookups_hold_up_their_owner_only(self) -> None:
        """With all its lookups hanging, a customer delays no other customer's requests."""
        with receiving() as made, hanging_lookups() as (sender, started):
            for n in range(LOOKUPS_MAX + 1):
                failure_of(sender, f"http://h{n}.{HOST}:9999/", "mean")
            good = Request(url=f"http://good.{HOST}:{made.port}/", owner="other")
            assert sender.send(good).status == 204
        names = [started.get(timeout=60) for _ in range(LOOKUPS_MAX + 1)]
        assert f"good.{HOST}" in names
        assert started.empty()

    def test_requests_of_one_host_share_a_lookup(self) -> None:
        """A name that hangs costs one thread, however often it is asked for."""
        with hanging_lookups() as (sender, started):
            for _ in range(LOOKUPS_MAX * 2):
                assert failure_of(sender, f"http://{HOST}:9999/", "mean") == "timeout"
        assert started.get(timeout=60) == HOST
        assert started.empty()

    def test_a_refusal_does_not_name_the_address(self) -> None:
        """What a name resolves to inside the network stays inside."""
        sender = egress(EgressRules(allow_http=True), lambda *_: ["93.184.215.14", "10.1.2.3"])
        with pytest.raises(InvalidInput) as refused:
            sender.send(Request(url=f"http://{HOST}/"))
        assert "10.1.2.3" not in str(refused.value)
        assert "public" in str(refused.value)

    def test_proxies_of_the_environment_are_ignored(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A proxy of the environment would bypass the address check."""
        with receiving() as trap, receiving() as made:
            for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "https_proxy"):
                monkeypatch.setenv(name, f"http://127.0.0.1:{trap.port}")
            assert plain(made.port).status == 204
            assert trap.got == []


class TestResponses:
    """Responses are bounded and never trusted."""

    def test_redirects_are_not_followed(self) -> None:
        """A redirect to the metadata service is returned, not followed."""
        where = {"Location": "http://169.254.169.254/latest/meta-data/"}
        with receiving(lambda _: ScriptedResponse(302, where)) as made:
            assert plain(made.port).status == 302
            assert len(made.got) == 1

    def test_an_endless_body_is_cut_off(self) -> None:
        def endless(connection: socket.socket) -> None:
            connection.recv(65_536)
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                connection.sendall(b"secret" * 10_000)

        with raw_server(endless) as port:
            with pytest.raises(RequestFailed) as failed:
                plain(port)
            assert plain(port, read_body=False) == HttpResponse(status=200, headers={})
        assert failed.value.kind == "too_large"
        assert "secret" not in failed.value.message

    def test_the_largest_body(self) -> None:
        with receiving(lambda _: ScriptedResponse(200, {}, b"x" * BODY_MAX)) as made:
            assert len(plain(made.port).body) == BODY_MAX

    @pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\n\r\nx"])
    def test_a_slow_trickle_does_not_extend_the_deadline(self, begun: bytes) -> None:
        """A byte now and then does not move the deadline, which covers the whole request."""

        def dripping(connection: socket.socket) -> None:
            connection.recv(65_536)
            connection.sendall(begun)
            while True:
                connection.sendall(b"y")

        sender = HttpClient(StepClock(0.5), PLAIN, resolve=here)
        with raw_server(dripping) as port, pytest.raises(RequestFailed) as failed:
            sender.send(Request(url=f"http://{HOST}:{port}/", timeout_s=8, read_body=True))
        assert failed.value.kind == "timeout"

    @pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200"])
    def test_a_server_that_sends_nothing(self, begun: bytes) -> None:
        free = threading.Event()

        def silent(connection: socket.socket) -> None:
            connection.recv(65_536)
            connection.sendall(begun)
            free.wait(60)

        with raw_server(silent) as port:
            with pytest.raises(RequestFailed) as failed:
                plain(port, timeout_s=0.05)
            free.set()
        assert failed.value.kind == "timeout"

    @pytest.mark.parametrize(
        "sent",
        [
            b"", b"SSH-2.0-OpenSSH_9\r\n", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 99 x\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 300 + b"\r\n",
            b"HTTP/1.1 200 OK\r\nA: " + b"b" * 70_000 + b"\r\n\r\n",
            b"HTTP/1.1 103 Hints\r\n\r\n" * 20,
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        ],
    )  # fmt: skip
    def test_invalid_responses(self, sent: bytes) -> None:
        def respond(connection: socket.socket) -> None:
            connection.recv(65_536)
            connection.sendall(sent)

        with raw_server(respond) as port, pytest.raises(RequestFailed) as failed:
            plain(port)
        assert failed.value.kind in ("protocol", "connection")

    def test_early_hints_are_skipped_and_102_is_final(self) -> None:
        def respond(connection: socket.socket) -> None:
            connection.recv(65_536)
            connection.sendall(b"HTTP/1.1 103 Hints\r\nLink: x\r\n\r\nHTTP/1.1 201 OK\r\n\r\n")

        with raw_server(respond) as port:
            assert plain(port).status == 201
        with receiving(lambda _: ScriptedResponse(102)) as made:
            assert plain(made.port).status == 102

    def test_a_closed_port(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        with pytest.raises(RequestFailed) as failed:
            plain(port)
        assert failed.value.kind == "connection"

    def test_headers_cannot_be_smuggled(self) -> None:
        with receiving() as made, pytest.raises(RequestFailed) as failed:
            plain(made.port, headers={"X": "a\r\nHost: evil"})
        assert failed.value.kind == "protocol"

    def test_get_has_no_body(self) -> None:
        with receiving(lambda _: ScriptedResponse(200, {}, b"{}")) as made:
            assert plain(made.port, method="GET").body == b"{}"
            assert "content-length" not in made.got[0].headers


NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"


class Responding:
    """A server that responds to each request of a connection with its next response."""

    def __init__(self, *responses: bytes, is_closing: bool = False) -> None:
        self.responses = list(responses)
        self.is_closing = is_closing
        self.connections = 0

    def __call__(self, connection: socket.socket) -> None:
        self.connections += 1
        got = b""
        while self.responses and (more := connection.recv(65_536)):
            got += more
            if got.endswith(b"\r\n\r\n"):
                got = b""
                connection.sendall(self.responses.pop(0))
                if self.is_closing:
                    return


class TestPool:
    """Connections that are kept for the next request to the same origin."""

    def send(self, server: Responding, n: int, **more: object) -> list[int]:
        """Send `n` requests through one Egress, one after the other; return their statuses."""
        lookups: list[object] = []

        def resolve(*asked: object) -> list[str]:
            lookups.append(asked)
            return here()

        with raw_server(server) as port:
            out = egress(PLAIN, resolve)
            options = {"timeout_s": 20.0, "keep_alive": True, **more}
            request = Request(url=f"http://{HOST}:{port}/x", **options)  # type: ignore[arg-type]
            statuses = [out.send(request).status for _ in range(n)]
            out.close()
        assert len(lookups) == server.connections, "the address of each connection was checked"
        return statuses

    def test_one_connection_serves_many_requests(self) -> None:
        """Responses without a body, with one, and chunked."""
        body = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        chunks = b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n"
        server = Responding(NO_CONTENT, body, chunks, NO_CONTENT)
        assert self.send(server, 4) == [204, 200, 500, 204]
        assert server.connections == 1

    @pytest.mark.parametrize(
        "response",
        [
            b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
            b"HTTP/1.0 204 No Content\r\n\r\n",
            b"HTTP/1.1 102 Processing\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 70000\r\n\r\n" + b"x" * 70_000,
        ],
    )
    def test_connections_that_are_not_kept(self, response: bytes) -> None:
        """Responses that ask to close, are not final, or have too long a body."""
        server = Responding(response, response, is_closing=True)
        assert len(set(self.send(server, 2))) == 1
        assert server.connections == 2

    def test_only_requests_that_keep(self) -> None:
        server = Responding(NO_CONTENT, NO_CONTENT, is_closing=True)
        assert self.send(server, 2, keep_alive=False) == [204, 204]
        assert server.connections == 2

    def test_a_connection_closed_by_the_server(self) -> None:
        """A kept connection that the server closed is replaced, and no request fails."""
        server = Responding(NO_CONTENT, NO_CONTENT, NO_CONTENT, is_closing=True)
        assert self.send(server, 3) == [204, 204, 204]
        assert server.connections == 3

    def test_unsolicited_data_is_discarded(self) -> None:
        """Data sent after a response is never read as the next response."""
        forged = b"HTTP/1.1 500 Forged\r\nContent-Length: 0\r\n\r\n"
        server = Responding(NO_CONTENT + forged, NO_CONTENT, NO_CONTENT)
        assert self.send(server, 2) == [204, 204]

    def test_the_pool_is_bounded(self) -> None:
        """Connections are dropped when idle too long, when too old, and above the maximum."""
        clock = VirtualClock(0)
        kept = IdleConnections(clock)
        pairs = [socket.socketpair() for _ in range(POOL_MAX + 3)]
        try:
            kept.put("a", pairs[0][0], None)
            assert kept.take("b") is None
            clock.advance(seconds=IDLE_SECONDS + 1)
            assert kept.take("a") is None
            kept.put("a", pairs[1][0], clock.monotonic() - AGE_SECONDS - 1)
            assert kept.take("a") is None
            for mine, _ in pairs[2:]:
                kept.put("a", mine, None)
            found = 0
            while kept.take("a") is not None:
                found += 1
            assert found == POOL_MAX
        finally:
            for pair in pairs:
                for one in pair:
                    one.close()
