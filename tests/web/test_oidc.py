"""Login through an identity provider: the whole way over HTTP, and every way it can be wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest

from penstock.access.api_keys import Role
from penstock.assembly.routes import ROUTES
from penstock.assembly.settings import load
from penstock.core.clock import SystemClock
from penstock.core.errors import InvalidInput
from penstock.egress.http_client import HttpClient
from penstock.egress.policy import EgressRules
from penstock.egress.tokens import new_signing_key
from penstock.web.build import build_site
from penstock.web.login.identity import Grant, grant_of, parse_identity
from penstock.web.login.provider import IdentityProvider
from tests.kits.client_harness import Harness
from tests.server import kit
from tests.server.kit import ServedApi
from tests.web.browser import Browser, Shown
from tests.web.identity_provider import CLIENT, SECRET, Provider, served_provider

ROLES = {
    "ana@example.com": "admin",
    "group:ops": "operator",
    "group:Acme": "viewer acme",
    "@example.com": "viewer",
}


@dataclass(frozen=True, slots=True)
class Scene:
    """A dashboard and its identity provider."""

    served: ServedApi
    provider: Provider

    def begin(self) -> tuple[Browser, str]:
        """Press the button; return the browser and the address at the provider."""
        browser = Browser(self.served, None)
        sent = browser.get("/login/oidc?next=/runs")
        assert sent.status == 303, sent.text
        return browser, sent.headers["location"]

    def log_in(self) -> tuple[Browser, Shown]:
        """Log in; return the browser and what it got when it returned."""
        browser, there = self.begin()
        return browser, browser.get(self.returned(there))

    def returned(self, there: str) -> str:
        """Ask the provider, which sends the browser back; return the path that it opens."""
        target = urlsplit(there)
        connection = HTTPConnection(target.netloc, timeout=60)
        connection.request("GET", f"{target.path}?{target.query}")
        back = urlsplit(connection.getresponse().headers["Location"])
        connection.close()
        return f"{back.path}?{back.query}"


@pytest.fixture
def scene(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """Return a dashboard with an identity provider."""
    with served_provider() as provider:
        given = {"issuer": provider.issuer, "client_id": CLIENT, "client_secret": "oidc",
                 "label": "Example", "roles": ROLES}  # fmt: skip
        settings = parse_identity({"oidc": given})
        assert settings is not None
        egress = HttpClient(SystemClock(), EgressRules(allow_http=True, allow_private=True))
        made = IdentityProvider(settings, SECRET, egress, SystemClock())
        routes = replace(ROUTES, pages=partial(build_site, provider=made))
        monkeypatch.setattr(kit, "ROUTES", routes)
        served = ServedApi(harness)
        yield Scene(served, provider)
        served.stop()


def test_a_person_logs_in_without_a_key(scene: Scene) -> None:
    assert "Log in with Example" in Browser(scene.served, None).get("/login").text
    browser, back = scene.log_in()
    assert (back.status, back.headers["location"]) == (303, "/runs")
    assert "HttpOnly" in back.headers["set-cookie"]
    assert "SameSite=strict" in back.headers["set-cookie"]
    shown = browser.get("/keys")
    assert shown.status == 200
    assert "ana@example.com" in shown.text
    found = scene.served.harness.sql("SELECT actor FROM journal WHERE action = 'logged_in'")
    assert [row[0] for row in found] == ["person:ana@example.com"]


def test_what_a_person_does_is_recorded_under_the_name(scene: Scene) -> None:
    browser, _ = scene.log_in()
    scene.served.harness.config("acme")
    done = browser.submit(browser.get("/do/pause?scope=customer&subject=acme"), reason="a rest")
    assert 'aria-current="step">Done' in done.text
    found = scene.served.harness.sql("SELECT actor FROM journal WHERE kind = 'customer'")
    assert "person:ana@example.com" in [row[0] for row in found]


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ({"email": "bo@example.com"}, Grant(Role.VIEWER)),
        ({"email": "bo@example.com", "groups": ["ops", "acme"]}, Grant(Role.OPERATOR)),
        ({"email": "bo@else.where", "groups": ["acme"]}, Grant(Role.VIEWER, "acme")),
        ({"email": "bo@else.where", "groups": "OPS"}, Grant(Role.OPERATOR)),
        ({"email": "ana@example.com", "groups": ["acme"]}, Grant(Role.ADMIN)),
        ({"email": "bo@else.where", "groups": [7, None]}, None),
    ],
)
def test_the_settings_decide_the_role(claims: dict[str, Any], expected: Grant | None) -> None:
    settings = parse_identity({"oidc": {"issuer": "i", "client_id": "c", "roles": ROLES}})
    assert settings is not None
    assert grant_of(settings, claims["email"], claims) == expected


def test_a_person_bound_to_a_customer_sees_only_it(scene: Scene) -> None:
    scene.provider.claims = {"email": "eve@acme.example", "groups": ["acme"]}
    browser, back = scene.log_in()
    assert back.status == 303
    assert "acme" in browser.get("/").text
    assert browser.get("/system").status == 403


@pytest.mark.parametrize(
    ("claims", "status"),
    [
        ({"email": "mallory@evil.example"}, 403),
        ({"email_verified": False}, 403),
        ({"aud": "another"}, 403),
        ({"aud": [CLIENT, "another"]}, 403),
        ({"iss": "https://evil.example"}, 403),
        ({"exp": 1}, 403),
        ({"iat": 2**39}, 403),
        ({"nonce": "replayed"}, 403),
        ({"email": None}, 403),
    ],
)
def test_a_wrong_token_opens_no_session(scene: Scene, claims: dict[str, Any], status: int) -> None:
    scene.provider.claims |= claims
    _, back = scene.log_in()
    assert back.status == status
    assert "penstock=" not in back.headers.get("set-cookie", "")
    assert scene.served.harness.column("SELECT count(*) FROM logins") == [0]


def test_a_token_of_another_key_is_refused(scene: Scene) -> None:
    scene.provider.signs_with = replace(new_signing_key(), key_id=scene.provider.key.key_id)
    assert scene.log_in()[1].status == 403


def test_a_return_that_this_browser_did_not_begin_is_refused(scene: Scene) -> None:
    """An attacker cannot log a victim in as someone else, nor use a code twice."""
    browser, there = scene.begin()
    path = scene.returned(there)
    assert Browser(scene.served, None).get(path).status == 403
    changed = path.replace("state=", "state=0")
    assert browser.get(changed).status == 403
    pending = browser.cookie
    assert browser.get(path).status == 303
    browser.cookie = pending
    assert browser.get(path).status == 403


def test_refused_logins_of_others_do_not_count(scene: Scene) -> None:
    """All people may share the address of a proxy with those who send wrong keys and codes."""
    stranger = Browser(scene.served, None)
    for _ in range(6):
        assert stranger.post("/login", {"key": "pnk_wrong"}).status in (401, 429)
    for _ in range(6):
        browser, there = scene.begin()
        path = scene.returned(there)
        assert browser.get(path.replace("code=", "code=0")).status == 403
    assert scene.log_in()[1].status == 303


def test_a_silent_provider_leaves_the_key(scene: Scene) -> None:
    scene.provider.is_down = True
    shown = Browser(scene.served, None).get("/login/oidc")
    assert shown.status == 503
    assert "log in with a key" in shown.text
    assert Browser(scene.served, "viewer").get("/").status == 200


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"saml": {}}, "login"),
        ({"oidc": 1}, "login.oidc"),
        ({"oidc": {"issuer": "i"}}, "login.oidc.client_id"),
        ({"oidc": {"issuer": "i", "client_id": "c"}}, "login.oidc.roles"),
        ({"oidc": {"issuer": "i", "client_id": "c", "roles": {"ops": "admin"}}},
         "login.oidc.roles.ops"),
        ({"oidc": {"issuer": "i", "client_id": "c", "roles": {"@a.b": "worker"}}},
         "login.oidc.roles.@a.b"),
        ({"oidc": {"issuer": "i", "client_id": "c", "rules": {}}}, "login.oidc.rules"),
    ],
)  # fmt: skip
def test_wrong_settings_are_named(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        load({}, None, {"login": given})
    assert refused.value.field == field


def test_own_sessions_are_listed_and_ended(served: ServedApi) -> None:
    first, second = Browser(served), Browser(served)
    Browser(served, "viewer")
    shown = first.get("/sessions", User_Agent="<b>mine</b>")
    forms = [form for form in shown.forms if form.action == "/sessions"]
    assert shown.text.count("<tr data-row>") == 2
    assert len(forms) == 1
    assert first.post("/sessions", {**forms[0].values, "form_token": "0"}).status == 403
    assert second.get("/").status == 200
    assert first.post("/sessions", forms[0].values).status == 303
    assert second.get("/").status == 303
    assert first.get("/").status == 200
