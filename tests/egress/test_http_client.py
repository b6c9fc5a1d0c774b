"""One request to a judged address: against real servers that behave badly in every known way."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from penstock.core.clock import SystemClock
from penstock.core.errors import InvalidInput
from penstock.egress.connection_pool import AGE_SECONDS, IDLE_SECONDS, KEPT_MAX, Kept
from penstock.egress.http_client import (
    BODY_MAX,
    LOOKUPS_MAX,
    Egress,
    Failed,
    Reply,
    Request,
    Resolve,
)
from penstock.egress.policy import EgressRules
from penstock.testing.clock import VirtualClock
from tests.kits.egress import Receiver, Said, authority, receiving, talking

INSIDE = EgressRules(allow_private=True)
PLAIN = EgressRules(allow_private=True, allow_http=True)
HOST = "hooks.example.com"


class StepClock(SystemClock):
    """A clock on which every look costs a while, so that no deadline has to be waited for."""

    def __init__(self, step: float) -> None:
        self._at = 0.0
        self._step = step

    def monotonic(self) -> float:
        self._at += self._step
        return self._at


def here(*_: object) -> list[str]:
    return ["127.0.0.1"]


def egress(rules: EgressRules = INSIDE, resolve: Resolve = here) -> Egress:
    return Egress(SystemClock(), rules, tls=authority().trusting(), resolve=resolve)


def plain(port: int, **more: object) -> Reply:
    """A request over plain http."""
    options = {"seconds": 20.0, "wants_body": True, **more}
    return egress(PLAIN).send(Request(url=f"http://{HOST}:{port}/x", **options))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    """A receiver with a certificate for HOST."""
    tls = authority().serving(tmp_path_factory.mktemp("tls"), HOST)
    with receiving(lambda _: Said(200, {"X-Kept": "yes"}, b"fine"), tls) as made:
        yield made


class TestTls:
    """The name is what the certificate is for; the address is what was judged."""

    def test_a_request_arrives_whole(self, secure: Receiver) -> None:
        """Host, path, headers and body are as asked; the answer comes back."""
        request = Request(
            url=f"https://{HOST}:{secure.port}/a?b=c",
            headers={"Content-Type": "text/plain", "X-One": "1"},
            body=b"x" * 200_000,
            wants_body=True,
        )
        reply = egress().send(request)
        got = secure.wait_for(1)[-1]
        assert (reply.status, reply.body, reply.headers["x-kept"]) == (200, b"fine", "yes")
        assert (got.method, got.path, got.body) == ("POST", "/a?b=c", request.body)
        assert got.headers["host"] == f"{HOST}:{secure.port}"
        assert (got.headers["x-one"], got.headers["connection"]) == ("1", "close")

    def test_a_certificate_for_another_host_is_refused(self, secure: Receiver) -> None:
        with pytest.raises(Failed) as failed:
            egress().send(Request(url=f"https://other.example.com:{secure.port}/"))
        assert failed.value.kind == "certificate"
        assert "other.example.com" in failed.value.message

    def test_an_unknown_authority_is_refused(self, secure: Receiver) -> None:
        sender = Egress(SystemClock(), INSIDE, resolve=here)
        with pytest.raises(Failed) as failed:
            sender.send(Request(url=f"https://{HOST}:{secure.port}/"))
        assert failed.value.kind == "certificate"

    def test_a_server_without_tls_is_refused(self) -> None:
        with receiving() as made, pytest.raises(Failed) as failed:
            egress().send(Request(url=f"https://{HOST}:{made.port}/"))
        assert failed.value.kind in ("tls", "connection")


class TestAddresses:
    """Resolved once, judged whole, connected to what was judged."""

    @pytest.mark.parametrize(
        "answers",
        [["127.0.0.1"], ["1.1.1.1", "10.0.0.1"], ["::ffff:169.254.169.254"], ["fe80::1%lo"], []],
    )
    def test_names_of_the_inside_are_refused(self, secure: Receiver, answers: list[str]) -> None:
        """A public name that leads inside, as nip.io's do, is refused before any connection."""
        before = len(secure.got)
        strict = egress(EgressRules(), lambda *_: answers)
        with pytest.raises(InvalidInput):
            strict.send(Request(url=f"https://127.0.0.1.nip.io:{secure.port}/"))
        assert len(secure.got) == before

    def test_a_name_that_changes_its_mind_gains_nothing(self) -> None:
        """The rebinding resolver answers once: the connection goes to what was judged."""
        asked: list[str] = []

        def rebinding(host: str, _port: int) -> list[str]:
            asked.append(host)
            return ["127.0.0.1"] if len(asked) == 1 else ["127.0.0.2"]

        with receiving() as made:
            sender = egress(PLAIN, rebinding)
            assert sender.send(Request(url=f"http://{HOST}:{made.port}/")).status == 204
        assert asked == [HOST]

    def test_the_next_judged_address_is_tried(self) -> None:
        """Nobody listens at the first; the second takes it."""
        with receiving() as made:
            sender = egress(PLAIN, lambda *_: ["127.0.0.9", "127.0.0.1"])
            assert sender.send(Request(url=f"http://{HOST}:{made.port}/")).status == 204

    @pytest.mark.parametrize("error", [OSError("no"), UnicodeError("no"), RuntimeError("no")])
    def test_a_lookup_that_fails_allows_nothing(self, error: Exception) -> None:
        def failing(*_: object) -> list[str]:
            raise error

        with pytest.raises(Failed) as failed:
            egress(PLAIN, failing).send(Request(url=f"http://{HOST}:9999/"))
        assert failed.value.kind == "lookup"

    def test_lookups_that_hang_are_bounded(self) -> None:
        """Each hanging lookup fails at its deadline; beyond the bound none is begun."""
        free = threading.Event()

        def hanging(*_: object) -> list[str]:
            free.wait(60)
            return ["127.0.0.1"]

        sender = egress(PLAIN, hanging)
        kinds = []
        try:
            for _ in range(LOOKUPS_MAX + 1):
                with pytest.raises(Failed) as failed:
                    sender.send(Request(url=f"http://{HOST}:9999/", seconds=0.001))
                kinds.append(failed.value.kind)
        finally:
            free.set()
        assert kinds == ["timeout"] * LOOKUPS_MAX + ["lookup"]

    def test_the_environment_has_no_say(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A proxy of the environment would make the judged address worthless."""
        with receiving() as trap, receiving() as made:
            for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "https_proxy"):
                monkeypatch.setenv(name, f"http://127.0.0.1:{trap.port}")
            assert plain(made.port).status == 204
            assert trap.got == []


class TestAnswers:
    """Whatever the other side says, it is bounded and not believed."""

    def test_redirects_are_answers(self) -> None:
        """A way to the metadata service is told, not gone."""
        where = {"Location": "http://169.254.169.254/latest/meta-data/"}
        with receiving(lambda _: Said(302, where)) as made:
            assert plain(made.port).status == 302
            assert len(made.got) == 1

    def test_a_body_without_end_is_cut(self) -> None:
        def endless(connection: socket.socket) -> None:
            connection.recv(65_536)
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                connection.sendall(b"secret" * 10_000)

        with talking(endless) as port:
            with pytest.raises(Failed) as failed:
                plain(port)
            assert plain(port, wants_body=False) == Reply(status=200, headers={})
        assert failed.value.kind == "too_large"
        assert "secret" not in failed.value.message

    def test_the_largest_body(self) -> None:
        with receiving(lambda _: Said(200, {}, b"x" * BODY_MAX)) as made:
            assert len(plain(made.port).body) == BODY_MAX

    @pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\n\r\nx"])
    def test_a_server_that_drips_gets_no_more_time(self, begun: bytes) -> None:
        """A byte now and then does not move the deadline: it is one for the whole request."""

        def dripping(connection: socket.socket) -> None:
            connection.recv(65_536)
            connection.sendall(begun)
            while True:
                connection.sendall(b"y")

        sender = Egress(StepClock(0.5), PLAIN, resolve=here)
        with talking(dripping) as port, pytest.raises(Failed) as failed:
            sender.send(Request(url=f"http://{HOST}:{port}/", seconds=8, wants_body=True))
        assert failed.value.kind == "timeout"

    @pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200"])
    def test_a_server_that_says_nothing(self, begun: bytes) -> None:
        free = threading.Event()

        def silent(connection: socket.socket) -> None:
            connection.recv(65_536)
            connection.sendall(begun)
            free.wait(60)

        with talking(silent) as port:
            with pytest.raises(Failed) as failed:
                plain(port, seconds=0.05)
            free.set()
        assert failed.value.kind == "timeout"

    @pytest.mark.parametrize(
        "said",
        [
            b"", b"SSH-2.0-OpenSSH_9\r\n", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 99 x\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 300 + b"\r\n",
            b"HTTP/1.1 200 OK\r\nA: " + b"b" * 70_000 + b"\r\n\r\n",
            b"HTTP/1.1 103 Hints\r\n\r\n" * 20,
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        ],
    )  # fmt: skip
    def test_nonsense(self, said: bytes) -> None:
        def speaking(connection: socket.socket) -> None:
            connection.recv(65_536)
            connection.sendall(said)

        with talking(speaking) as port, pytest.raises(Failed) as failed:
            plain(port)
        assert failed.value.kind in ("protocol", "connection")

    def test_hints_are_passed_over_and_102_is_an_answer(self) -> None:
        def speaking(connection: socket.socket) -> None:
            connection.recv(65_536)
            connection.sendall(b"HTTP/1.1 103 Hints\r\nLink: x\r\n\r\nHTTP/1.1 201 OK\r\n\r\n")

        with talking(speaking) as port:
            assert plain(port).status == 201
        with receiving(lambda _: Said(102)) as made:
            assert plain(made.port).status == 102

    def test_nobody_listens(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        with pytest.raises(Failed) as failed:
            plain(port)
        assert failed.value.kind == "connection"

    def test_headers_cannot_be_smuggled(self) -> None:
        with receiving() as made, pytest.raises(Failed) as failed:
            plain(made.port, headers={"X": "a\r\nHost: evil"})
        assert failed.value.kind == "protocol"

    def test_get_has_no_body(self) -> None:
        with receiving(lambda _: Said(200, {}, b"{}")) as made:
            assert plain(made.port, method="GET").body == b"{}"
            assert "content-length" not in made.got[0].headers


NOTHING = b"HTTP/1.1 204 No Content\r\n\r\n"


class Answering:
    """A server that answers each request of a connection with the next of its answers."""

    def __init__(self, *answers: bytes, is_closing: bool = False) -> None:
        self.answers = list(answers)
        self.is_closing = is_closing
        self.connections = 0

    def __call__(self, line: socket.socket) -> None:
        self.connections += 1
        got = b""
        while self.answers and (more := line.recv(65_536)):
            got += more
            if got.endswith(b"\r\n\r\n"):
                got = b""
                line.sendall(self.answers.pop(0))
                if self.is_closing:
                    return


class TestKept:
    """Connections that are left for the next request to the same origin."""

    def send(self, server: Answering, n: int, **more: object) -> list[int]:
        """So many requests, one after the other, through one egress; their statuses."""
        lookups: list[object] = []

        def resolve(*asked: object) -> list[str]:
            lookups.append(asked)
            return here()

        with talking(server) as port:
            out = egress(PLAIN, resolve)
            options = {"seconds": 20.0, "keeps": True, **more}
            request = Request(url=f"http://{HOST}:{port}/x", **options)  # type: ignore[arg-type]
            statuses = [out.send(request).status for _ in range(n)]
            out.close()
        assert len(lookups) == server.connections, "each connection was judged"
        return statuses

    def test_one_for_many(self) -> None:
        """Answers without a body, with one, and in chunks."""
        body = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        chunks = b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n"
        server = Answering(NOTHING, body, chunks, NOTHING)
        assert self.send(server, 4) == [204, 200, 500, 204]
        assert server.connections == 1

    @pytest.mark.parametrize(
        "answer",
        [
            b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
            b"HTTP/1.0 204 No Content\r\n\r\n",
            b"HTTP/1.1 102 Processing\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 70000\r\n\r\n" + b"x" * 70_000,
        ],
    )
    def test_what_is_not_kept(self, answer: bytes) -> None:
        """Who says so, who has more to say, and who says too much."""
        server = Answering(answer, answer, is_closing=True)
        assert len(set(self.send(server, 2))) == 1
        assert server.connections == 2

    def test_only_who_asks(self) -> None:
        server = Answering(NOTHING, NOTHING, is_closing=True)
        assert self.send(server, 2, keeps=False) == [204, 204]
        assert server.connections == 2

    def test_closed_without_a_word(self) -> None:
        """A connection that the other side closed is replaced, and nothing fails."""
        server = Answering(NOTHING, NOTHING, NOTHING, is_closing=True)
        assert self.send(server, 3) == [204, 204, 204]
        assert server.connections == 3

    def test_nobody_answers_before_he_is_asked(self) -> None:
        """What was sent beyond an answer is never taken for the next one."""
        forged = b"HTTP/1.1 500 Forged\r\nContent-Length: 0\r\n\r\n"
        server = Answering(NOTHING + forged, NOTHING, NOTHING)
        assert self.send(server, 2) == [204, 204]

    def test_not_for_long(self) -> None:
        """Neither when quiet nor when old, nor more than there is room for."""
        clock = VirtualClock(0)
        kept = Kept(clock)
        pairs = [socket.socketpair() for _ in range(KEPT_MAX + 3)]
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
            assert found == KEPT_MAX
        finally:
            for pair in pairs:
                for one in pair:
                    one.close()
