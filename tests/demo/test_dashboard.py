"""The dashboard of a demo: served while it plays, on another port if the usual one is taken."""

import re
import socket
import urllib.request

import pytest

from penstock.assembly.settings import load
from penstock.audit.telemetry import Events
from penstock.demo import dashboard
from penstock.demo.dashboard import Audience
from tests.kits.client_harness import Harness


@pytest.mark.parametrize("is_taken", [False, True])
def test_it_is_served_and_says_where(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, is_taken: bool
) -> None:
    lines: list[str] = []
    audience = Audience(is_served=True, is_staying=False, say=lines.append)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
        if is_taken:
            other.listen()
        else:
            other.close()
        monkeypatch.setattr(dashboard, "PORT", port)
        with audience.watching(harness.client, load({}), Events()):
            found = re.search(r"(http://127\.0\.0\.1:(\d+)/) +log in with (pnk_\S+)", lines[-1])
            assert found is not None, lines
            assert (int(found[2]) == port) is not is_taken
            assert any("is taken" in one for one in lines) is is_taken
            with urllib.request.urlopen(found[1] + "login", timeout=60) as shown:
                assert b"Log in" in shown.read()
            opened = harness.client.logins.open(found[3])
            assert opened is not None
            harness.clock.advance(48 * 3_600_000_000)
            assert harness.client.logins.find(opened.token) is not None
    audience.stay()


def test_it_is_not_served_without_an_audience(harness: Harness) -> None:
    lines: list[str] = []
    audience = Audience(is_served=False, is_staying=True, say=lines.append)
    with audience.watching(harness.client, load({}), Events()):
        assert lines == []
    audience.stay()
