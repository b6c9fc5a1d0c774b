"""Requests: safe retries, errors of the server, and a key that is never exposed."""

import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.access import api_keys
from penstock.core.errors import (
    ApiError,
    ApiUnavailable,
    Conflict,
    Forbidden,
    IllegalTransition,
    InvalidInput,
    NotFound,
    Overloaded,
    PenstockError,
    StaleVersion,
    StoreUnavailable,
    TooManyRequests,
    Unauthorised,
)
from penstock.core.ids import new_secret
from penstock.remote import Transport
from penstock.remote.client import RemoteClient
from tests.remote.scripted import Scripted, ScriptedReply, problem

KEY = api_keys.format_key(7, new_secret(lambda n: b"\7" * n))
Serve = Callable[..., Scripted]


class Steps:
    """A clock that records sleeps without sleeping."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now(self) -> int:
        return 0

    def monotonic(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def wait(self, event: Any, timeout: float | None) -> bool:
        raise AssertionError((event, timeout))


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return a factory of scripted servers; all are stopped at the end."""
    made: list[Scripted] = []

    def start(*replies: ScriptedReply) -> Scripted:
        made.append(Scripted(*replies))
        return made[-1]

    yield start
    for server in made:
        server.stop()


@pytest.fixture
def clock() -> Steps:
    return Steps()


def transport(server: Scripted, clock: Steps, **options: Any) -> Transport:
    return Transport(server.url, key=KEY, clock=clock, jitter=lambda: 0.5, **options)


class TestRepeats:
    """Which requests are retried, how often and after what delay."""

    def test_refusals_are_retried(self, serve: Serve, clock: Steps) -> None:
        """429 and 503 are retried, not before Retry-After."""
        server = serve(
            problem(429, "rate.exceeded", {"Retry-After": "3"}),
            problem(503, "overloaded"),
            ScriptedReply(body={"ok": True}),
        )
        made = transport(server, clock)
        assert made.call("GET", "/x") == {"ok": True}
        assert clock.slept == [3.0, 0.5]
        made.close()

    def test_a_post_without_a_response_is_repeated_under_its_key(
        self, serve: Serve, clock: Steps
    ) -> None:
        """Both attempts have the same idempotency key, so that the action happens once."""
        server = serve(ScriptedReply(breaks=True), ScriptedReply(body={"run_id": "r"}))
        made = transport(server, clock)
        assert made.call("POST", "/x", body={"a": 1}) == {"run_id": "r"}
        first, second = server.keys()
        assert first == second
        assert first is not None
        made.close()

    def test_the_caller_may_name_the_key(self, serve: Serve, clock: Steps) -> None:
        """An idempotency key of the caller is used unchanged."""
        server = serve(ScriptedReply(), ScriptedReply())
        made = transport(server, clock)
        made.call("POST", "/x", headers={"Idempotency-Key": "mine"})
        made.call("POST", "/x", headers={"Idempotency-Key": None})
        assert server.keys()[0] == "mine"
        assert server.keys()[1] not in (None, "mine")
        made.close()

    @pytest.mark.parametrize("method", ["PATCH", "DELETE"])
    def test_a_lost_change_is_not_repeated(self, serve: Serve, clock: Steps, method: str) -> None:
        """The change may have been made; the error says to check."""
        server = serve(ScriptedReply(breaks=True))
        made = transport(server, clock)
        with pytest.raises(ApiUnavailable, match="may have been made"):
            made.call(method, "/x")
        assert len(server.asked) == 1
        made.close()

    @pytest.mark.parametrize("method", ["PATCH", "DELETE"])
    def test_a_change_refused_beforehand_is_repeated(
        self, serve: Serve, clock: Steps, method: str
    ) -> None:
        """A request refused before it began is retried; one that failed in the database is not."""
        server = serve(
            problem(503, "overloaded"), ScriptedReply(), problem(503, "store.unavailable")
        )
        made = transport(server, clock)
        made.call(method, "/x")
        with pytest.raises(StoreUnavailable):
            made.call(method, "/x")
        made.close()

    def test_it_gives_up(self, serve: Serve, clock: Steps) -> None:
        """After all attempts the last refusal is raised; a long Retry-After is not waited for."""
        long = problem(429, "rate.exceeded", {"Retry-After": "3600"})
        server = serve(*[problem(503, "overloaded")] * 3, long)
        made = transport(server, clock, attempts=3)
        with pytest.raises(Overloaded):
            made.call("GET", "/x")
        with pytest.raises(TooManyRequests):
            made.call("GET", "/x")
        assert clock.slept == [0.25, 0.5]
        made.close()

    def test_other_refusals_are_final(self, serve: Serve, clock: Steps) -> None:
        """An invalid request is not retried."""
        server = serve(problem(409, "conflict"))
        made = transport(server, clock)
        with pytest.raises(Conflict):
            made.call("GET", "/x")
        assert clock.slept == []
        made.close()

    def test_connection_refused(self, clock: Steps) -> None:
        """The error names the address and is raised after a few attempts."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{free.getsockname()[1]}"
            made = Transport(url, clock=clock, jitter=lambda: 0.5)
            with pytest.raises(ApiUnavailable, match=f"cannot reach {url}"):
                made.call("DELETE", "/x")
        assert len(clock.slept) == 3

    def test_a_request_that_waits_has_no_key_and_more_time(
        self, serve: Serve, clock: Steps
    ) -> None:
        """A long poll with an idempotency key would be answered at once."""
        server = serve(ScriptedReply())
        made = transport(server, clock)
        made.call("POST", "/x", body={"wait_seconds": 20})
        assert server.keys() == [None]
        made.close()


class TestConnections:
    """Connections are reused, and replaced if the server closed them."""

    def test_connections_are_reused(self, serve: Serve, clock: Steps) -> None:
        """Two reads share one connection."""
        server = serve(ScriptedReply(), ScriptedReply(), ScriptedReply())
        made = transport(server, clock)
        for _ in range(2):
            made.call("GET", "/x")
        made.call("PATCH", "/x")
        ports = [one.port for one in server.asked]
        assert ports[0] == ports[1] != ports[2]
        made.close()
        made.close()

    def test_a_closed_one_is_replaced(self, serve: Serve, clock: Steps) -> None:
        """The next read opens another connection."""
        server = serve(ScriptedReply(closes=True), ScriptedReply(body={"ok": True}))
        made = transport(server, clock)
        made.call("GET", "/x")
        assert made.call("GET", "/x") == {"ok": True}
        assert clock.slept == []
        made.close()

    @pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate")
    def test_untrusted_certificate(self, clock: Steps, tmp_path: Path) -> None:
        """An untrusted certificate is refused before the key is sent, and not retried."""
        command = (
            "req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -keyout key -out crt"
        )
        subprocess.run(["openssl", *command.split()], cwd=tmp_path, check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / "crt", tmp_path / "key")
        server = Scripted(ScriptedReply())
        server.encrypt(context)
        made = Transport(f"https://localhost:{server.port}", key=KEY, clock=clock)
        with pytest.raises(ApiUnavailable, match="cannot verify the certificate"):
            made.call("GET", "/x")
        assert (server.asked, clock.slept) == ([], [])
        server.stop()


class TestErrors:
    """Problem documents become the errors of the server."""

    @pytest.mark.parametrize(
        ("error", "extra"),
        [
            (NotFound("run", "run_1"), {}),
            (IllegalTransition("run", "run_1", "COMPLETED", "RUNNING"), {}),
            (StaleVersion("config", "cfg_1", 1, 2), {}),
            (InvalidInput("schedule_cron", "five fields", "x", "Like this."), {}),
            (InvalidInput("schedule_cron", "five fields", "x"), {}),
            (Forbidden("A key of role viewer may not do this."), {}),
        ],
    )
    def test_same_error(
        self, serve: Serve, clock: Steps, error: PenstockError, extra: dict[str, Any]
    ) -> None:
        """Class, code, message, detail and attributes equal those of the server."""
        key = "errors" if isinstance(error, InvalidInput) else "about"
        about: Any = [error.detail] if key == "errors" else error.detail
        server = serve(
            problem(error.http_status, error.code, detail=error.message, **{key: about}, **extra)
        )
        made = transport(server, clock)
        with pytest.raises(type(error)) as caught:
            made.call("GET", "/x")
        assert type(caught.value) is type(error)
        assert vars(caught.value) == vars(error)
        assert (caught.value.message, caught.value.exit_code) == (error.message, error.exit_code)
        made.close()

    def test_codes_without_a_class(self, serve: Serve, clock: Steps) -> None:
        """An unknown code is kept; a response without a problem document is reported as such."""
        server = serve(
            problem(418, "tea.pot"),
            problem(401, "auth.required"),
            ScriptedReply(status=502, body=b"<html>"),
            ScriptedReply(status=302, headers={"Location": "http://evil.example/"}),
        )
        made = transport(server, clock)
        with pytest.raises(ApiError) as caught:
            made.call("GET", "/x")
        assert caught.value.code == "tea.pot"
        with pytest.raises(Unauthorised):
            made.call("GET", "/x")
        with pytest.raises(ApiError, match="Is it a Penstock API"):
            made.call("GET", "/x")
        with pytest.raises(ApiError, match="redirects are not followed"):
            made.call("GET", "/x")
        made.close()


class TestAddresses:
    """Addresses that a key may be sent to."""

    @pytest.mark.parametrize(
        "url",
        [
            "",
            "penstock.example",
            "ftp://a",
            "http://",
            "http://a:b",
            "http://a/?q=1",
            "http://a/#f",
        ],
    )
    def test_bad_urls(self, url: str) -> None:
        """Refused with a valid example."""
        with pytest.raises(InvalidInput, match=r"https://penstock\.example"):
            Transport(url)

    def test_a_user_in_the_url(self) -> None:
        """The password in the URL is not shown."""
        with pytest.raises(InvalidInput) as caught:
            Transport("https://me:hunter2@penstock.example")
        assert "hunter2" not in caught.value.message

    def test_keys_are_not_sent_unencrypted(self) -> None:
        """Keys are sent unencrypted only to this machine, unless explicitly allowed."""
        with pytest.raises(InvalidInput, match="unencrypted"):
            Transport("http://penstock.example", key=KEY)
        Transport("http://penstock.example")
        Transport("http://penstock.example", key=KEY, allow_plain=True)
        Transport("https://penstock.example", key=KEY)
        for host in ("localhost", "127.0.0.1:8080", "[::1]:8080"):
            Transport(f"http://{host}", key=KEY)

    def test_a_mistyped_key(self) -> None:
        """An invalid key is detected before it is sent, and not shown."""
        for text in (KEY[:-1], f"{KEY}\r\nX-Evil: 1", "hunter2"):
            with pytest.raises(InvalidInput) as caught:
                Transport("https://penstock.example", key=text)
            assert text not in str(vars(caught.value))

    def test_key_is_not_exposed(self, serve: Serve, clock: Steps) -> None:
        """The key is not in repr or errors; the server receives it as a bearer token."""
        server = serve(problem(401, "auth.required"))
        made = transport(server, clock)
        with pytest.raises(Unauthorised) as caught:
            made.call("GET", "/x")
        assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"
        secret = KEY.rpartition("_")[2]
        assert secret not in repr(made) + repr(caught.value) + str(vars(caught.value))
        made.close()

    def test_a_path_before_the_api(self, serve: Serve) -> None:
        """The API may have a path prefix; query values are encoded as the API expects."""
        page = ScriptedReply(body={"items": [], "next_cursor": None})
        server = serve(page, problem(404, "not_found"))
        made = Transport(f"{server.url}/penstock/", key=KEY)
        RemoteClient(made).configs.list(is_active=True, limit=5, cursor=None)
        with pytest.raises(NotFound):
            RemoteClient(made).topics.get("a/b", customer="x y")
        made.close()
        assert [one.path for one in server.asked] == [
            "/penstock/api/v1/pipeline-configs?limit=5&is_active=true",
            "/penstock/api/v1/topics/a%2Fb?customer_id=x+y",
        ]
