"""The client's address behind proxies, and who is throttled by it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest

from penstock.access.api_keys import format_key
from penstock.assembly.routes import ROUTES
from penstock.assembly.settings import load
from penstock.core.errors import SettingsError
from penstock.web.build import build_site
from penstock.web.login.proxies import HOPS_MAX, TrustedProxies
from tests.kits.client_harness import Harness
from tests.server import kit
from tests.server.kit import ServedApi
from tests.web.browser import Browser

WRONG = {"key": "pnk_wrong"}


@pytest.fixture
def engine() -> str:
    """One engine is enough: the store is not concerned."""
    return "sqlite"


@pytest.fixture
def behind(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedApi]:
    """Return a dashboard that trusts a proxy on this machine."""
    pages = partial(build_site, trusted_proxies=["127.0.0.0/8", "10.0.0.0/8"])
    monkeypatch.setattr(kit, "ROUTES", replace(ROUTES, pages=pages))
    served = ServedApi(harness)
    yield served
    served.stop()


@pytest.mark.parametrize(
    ("peer", "forwarded", "expected"),
    [
        ("203.0.113.9", ["198.51.100.4"], "203.0.113.9"),  # not a proxy: its header is not believed
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["198.51.100.4"], "198.51.100.4"),
        ("10.0.0.1", ["1.1.1.1, 198.51.100.4"], "198.51.100.4"),  # what the client claimed
        ("10.0.0.1", ["1.1.1.1, 198.51.100.4, 10.0.0.7"], "198.51.100.4"),  # two proxies
        ("10.0.0.1", ["1.1.1.1", "198.51.100.4 ,\t10.0.0.7"], "198.51.100.4"),  # in two headers
        ("10.0.0.1", ["10.0.0.9, 10.0.0.7"], "10.0.0.9"),  # a client inside
        ("10.0.0.1", ["198.51.100.4:51234"], "198.51.100.4"),
        ("10.0.0.1", ["[2001:DB8::1]:443"], "2001:db8::1"),
        ("10.0.0.1", ["2001:db8:0::1"], "2001:db8::1"),
        ("::ffff:10.0.0.1", ["::ffff:198.51.100.4"], "198.51.100.4"),
        ("fd00::1", ["198.51.100.4"], "198.51.100.4"),
        ("10.0.0.1", ["unknown"], "10.0.0.1"),
        ("10.0.0.1", ["198.51.100.4, unknown, 10.0.0.7"], "10.0.0.7"),
        ("10.0.0.1", ["198.51.100.4,"], "10.0.0.1"),
        ("10.0.0.1", ["fe80::1%a"], "10.0.0.1"),
        ("10.0.0.1", ["1.2.3"], "10.0.0.1"),
        ("10.0.0.1", ["9" * 60_000], "10.0.0.1"),
        ("10.0.0.1", ["198.51.100.4" + ",10.0.0.7" * HOPS_MAX], "10.0.0.7"),
        ("", ["198.51.100.4"], ""),
    ],
)
def test_the_address_of_the_client(peer: str, forwarded: list[str], expected: str) -> None:
    proxies = TrustedProxies(["10.0.0.0/8", "fd00::/8"])
    assert proxies.client_address(peer, forwarded) == expected


@pytest.mark.parametrize("wrong", ["proxy", "10.0.0.1/8", "0.0.0.0/0", "::/0", "10.0.0.0/33"])
def test_wrong_networks_are_named(wrong: str) -> None:
    with pytest.raises(SettingsError, match="trusted_proxies"):
        load({"PENSTOCK_TRUSTED_PROXIES": f"127.0.0.1,{wrong}"})


def test_wrong_keys_are_counted_by_the_client_behind_the_proxy(behind: ServedApi) -> None:
    browser = Browser(behind, None)
    for _ in range(5):
        assert browser.post("/login", WRONG, X_Forwarded_For="203.0.113.9").status == 401
    late = browser.post("/login", WRONG, X_Forwarded_For="1.1.1.1, 203.0.113.9, 10.0.0.7")
    assert late.status == 429
    assert browser.post("/login", WRONG, X_Forwarded_For="198.51.100.4").status == 401


def test_a_session_shows_the_client_behind_the_proxy(behind: ServedApi) -> None:
    browser = Browser(behind, None)
    key = {"key": behind.keys["viewer"]}
    assert browser.post("/login", key, X_Forwarded_For="203.0.113.9").status == 303
    shown = browser.get("/sessions")
    assert "203.0.113.9" in shown.text
    assert "127.0.0.1" not in shown.text


def test_no_header_is_believed_by_default(served: ServedApi) -> None:
    browser = Browser(served, None)
    for n in range(5):
        assert browser.post("/login", WRONG, X_Forwarded_For=f"203.0.113.{n}").status == 401
    assert browser.post("/login", WRONG, X_Forwarded_For="203.0.113.9").status == 429


def test_wrong_keys_of_others_refuse_no_valid_key(served: ServedApi) -> None:
    """People behind a proxy that is not named share its count, but not its refusal."""
    stranger = Browser(served, None)
    for _ in range(6):
        late = stranger.post("/login", WRONG)
    assert (late.status, 0 < int(late.headers["retry-after"]) <= 60) == (429, True)
    formed = format_key(123_456, "0" * 40)
    refused = stranger.post("/login", {"key": formed})
    assert (refused.status, refused.text) == (429, late.text), "a key's form changes nothing"
    assert stranger.post("/login", {"key": served.keys["worker"]}).status == 401
    assert Browser(served, "viewer").get("/runs").status == 200
    shown = stranger.post("/login", {"key": served.keys["viewer"]}, Sec_Fetch_Site="cross-site")
    assert shown.status == 403
