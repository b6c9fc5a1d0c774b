"""Sessions: an API key opens one; it ends with the key, with time, and with logout."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest

from penstock.access.client.logins import ADMIN_IDLE_US, LIFETIME_US
from penstock.core.clock import MINUTE, SECOND, SystemClock
from penstock.web.build import build_site
from penstock.web.security import local_path
from tests.kits.client_harness import Harness
from tests.server.kit import ServedApi
from tests.web.browser import Browser


def test_a_page_without_a_session_leads_to_the_login_and_back(served: ServedApi) -> None:
    browser = Browser(served, None)
    asked = browser.get("/runs?state=FAILED")
    assert asked.status == 303
    assert asked.headers["location"] == "/login?next=%2Fruns%3Fstate%3DFAILED"
    form = next(form for form in browser.get(asked.headers["location"]).forms)
    opened = browser.post(form.action, {"key": served.keys["viewer"]})
    assert opened.headers["location"] == "/runs?state=FAILED"
    assert browser.get("/runs").status == 200


def test_every_page_and_action_needs_a_session(served: ServedApi) -> None:
    browser = Browser(served, None)
    for route in build_site(served.harness.client, SystemClock()).routes:
        if route.path in ("/login", "/assets/{name}"):
            continue
        path = route.path.replace(":path", "")
        for method in (route.methods or set()) - {"HEAD"}:
            asked = browser.get(path) if method == "GET" else browser.post(path, {})
            assert asked.status == 303, (method, path)
            assert asked.headers["location"].startswith("/login"), (method, path)


def test_the_cookie_is_closed_to_scripts_and_other_sites(served: ServedApi) -> None:
    plain = Browser(served, None).post("/login", {"key": served.keys["viewer"]})
    assert "HttpOnly" in plain.headers["set-cookie"]
    assert "SameSite=strict" in plain.headers["set-cookie"]
    assert "Secure" not in plain.headers["set-cookie"]
    safe = Browser(served, None).post(
        "/login", {"key": served.keys["viewer"]}, X_Forwarded_Proto="https"
    )
    assert safe.headers["set-cookie"].startswith("__Host-penstock=")
    assert "; Secure" in safe.headers["set-cookie"]


@pytest.mark.parametrize("wanted", ["//evil.example", "https://evil.example", "/\\evil", "x"])
def test_the_login_leads_nowhere_else(served: ServedApi, wanted: str) -> None:
    browser = Browser(served, None)
    opened = browser.post(f"/login?next={wanted}", {"key": served.keys["viewer"]})
    assert opened.headers["location"] == "/"


def test_a_link_from_another_site_asks_again_for_the_cookie(served: ServedApi) -> None:
    shown = Browser(served, None).get("/runs", Sec_Fetch_Site="cross-site")
    assert shown.status == 200
    assert 'content="0;url=/runs"' in shown.text


@pytest.mark.parametrize(
    "there", ["//evil.example/login", "///evil.example", "/\\evil", "/%5Cevil"]
)
def test_a_path_leads_to_no_other_site(served: ServedApi, there: str) -> None:
    """The path of a request becomes an address only if it is one of this server."""
    browser = Browser(served, None)
    shown = browser.get(there, Sec_Fetch_Site="cross-site", Accept="text/html")
    (link,) = shown.links
    assert f'content="0;url={link}"' in shown.text
    assert local_path(link) == link
    asked = browser.get(there, Accept="text/html").headers["location"]
    wanted = parse_qs(urlsplit(asked).query).get("next", ["/"])
    assert local_path(wanted[0]) == wanted[0]


@pytest.mark.parametrize(
    "there",
    ["//e", "///e", "/\\e", "\\/e", "/a\\e", "/\t/e", "/\n//e", "https:e", "e", "", "/\x7f"],
)
def test_only_a_path_is_local(there: str) -> None:
    """What a browser could read as another host, or drop before it reads it, is no path."""
    assert local_path(there) == "/"


def test_wrong_keys_are_counted_by_address(served: ServedApi) -> None:
    browser = Browser(served, None)
    for _ in range(5):
        assert browser.post("/login", {"key": "pnk_wrong"}).status == 401
    late = browser.post("/login", {"key": "pnk_wrong"})
    assert late.status == 429
    assert 0 < int(late.headers["retry-after"]) <= 60


def test_a_worker_has_no_pages(served: ServedApi) -> None:
    assert Browser(served, None).post("/login", {"key": served.keys["worker"]}).status == 401


def test_a_login_from_another_site_is_refused(served: ServedApi) -> None:
    shown = Browser(served, None).post(
        "/login", {"key": served.keys["viewer"]}, Sec_Fetch_Site="cross-site"
    )
    assert shown.status == 403
    assert "set-cookie" not in shown.headers


def test_logout_ends_the_session_and_needs_its_form(served: ServedApi) -> None:
    browser = Browser(served)
    cookie = browser.cookie
    assert browser.post("/logout", {}).status == 403
    form = next(form for form in browser.get("/").forms if form.action == "/logout")
    assert browser.post(form.action, form.values).status == 303
    browser.cookie = cookie
    assert browser.get("/").status == 303


def test_the_api_does_not_take_the_cookie(served: ServedApi) -> None:
    assert Browser(served).get("/api/v1/flows").status == 401


def test_logins_are_in_the_journal(served: ServedApi) -> None:
    Browser(served, "viewer")
    found = served.harness.sql("SELECT action, actor FROM journal WHERE action = 'logged_in'")
    assert [tuple(row) for row in found] == [("logged_in", "key:viewer")]


class TestLogins:
    """The use cases."""

    def key(self, harness: Harness, role: str = "operator") -> tuple[str, str]:
        made = harness.client.keys.create("person", role)
        assert made.key is not None
        return made.key, made.info.key_id

    def test_a_session_acts_as_its_key(self, harness: Harness) -> None:
        opened = harness.client.logins.open(self.key(harness)[0])
        assert opened is not None
        assert harness.client.logins.find(opened.token) == opened.principal
        assert opened.token not in str(harness.sql("SELECT * FROM logins"))
        assert harness.client.logins.find("0" * 40) is None

    def test_a_session_ends_with_its_key(self, harness: Harness) -> None:
        key, key_id = self.key(harness)
        opened = harness.client.logins.open(key)
        assert opened is not None
        harness.client.keys.rotate(key_id, overlap="1h")
        assert harness.client.logins.find(opened.token) is not None
        harness.clock.advance(61 * MINUTE)
        assert harness.client.logins.find(opened.token) is None
        again = harness.client.logins.open(harness.client.keys.rotate(key_id).key or "")
        assert again is not None
        harness.client.keys.revoke(key_id)
        assert harness.client.logins.find(again.token) is None

    def test_a_session_ends_after_twelve_hours(self, harness: Harness) -> None:
        opened = harness.client.logins.open(self.key(harness)[0])
        assert opened is not None
        harness.clock.advance(LIFETIME_US - SECOND)
        assert harness.client.logins.find(opened.token) is not None
        harness.clock.advance(SECOND)
        assert harness.client.logins.find(opened.token) is None

    def test_an_admin_must_not_be_idle(self, harness: Harness) -> None:
        opened = harness.client.logins.open(self.key(harness, "admin")[0])
        assert opened is not None
        for _ in range(3):
            harness.clock.advance(ADMIN_IDLE_US)
            assert harness.client.logins.find(opened.token) is not None
        harness.clock.advance(ADMIN_IDLE_US + SECOND)
        assert harness.client.logins.find(opened.token) is None

    def test_ended_sessions_are_deleted(self, harness: Harness) -> None:
        key = self.key(harness)[0]
        harness.client.logins.open(key)
        harness.clock.advance(LIFETIME_US)
        harness.client.logins.open(key)
        assert harness.column("SELECT count(*) FROM logins") == [1]
