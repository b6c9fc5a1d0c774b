"""Actions that change settings: asked, previewed, done once, and only by those who may."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import urlencode

from tests.server.kit import ServedApi
from tests.web.browser import Browser, Shown
from tests.web.test_panels import grant


def plain(shown: Shown) -> str:
    """Return the text of a page, without the marks that keep options of a command together."""
    return unescape(re.sub(r"</?span[^>]*>", "", shown.text))


def filled(browser: Browser, asked: Shown, **fields: str) -> Shown:
    """Send the form that asks for fields; return the preview."""
    form = next(one for one in asked.forms if one.action.startswith("/do/"))
    assert form.method == "get"
    return browser.get(f"{form.action.partition('?')[0]}?{urlencode({**form.values, **fields})}")


class TestLimit:
    """Change the capacity and the rate of a limit."""

    def test_its_capacity_is_previewed_and_changed_once(self, served: ServedApi) -> None:
        harness, browser = served.harness, Browser(served)
        harness.client.limits.declare("bq:t", capacity=1)
        grant(harness, "bq:t", "first", "second", "third")
        assert 'href="/do/set-limit?name=bq%3At"' in browser.get("/limits/bq%3At").text
        assert 'href="/do/set-limit?name=bq%3At"' in browser.get("/limits").text
        asked = browser.get("/do/set-limit?name=bq%3At")
        assert "<td>capacity</td><td>1</td>" in asked.text
        assert "<td>waiting</td><td>2</td>" in asked.text
        preview = filled(browser, asked, capacity="2")
        assert "<td>capacity</td><td>1 → 2</td>" in preview.text
        assert "1 request that waits gets slots now" in preview.text
        assert "penstock limits set bq:t --capacity 2" in plain(preview)
        assert harness.client.limits.get("bq:t").limit.capacity == 1
        done = browser.submit(preview)
        assert 'aria-current="step">Done' in done.text
        found = harness.client.limits.get("bq:t").limit
        assert (found.capacity, found.held, found.waiting) == (2, 2, 1)
        assert found.updated_by == "key:operator"
        harness.client.limits.declare("bq:t", capacity=7)
        assert "This was done already, once." in browser.submit(preview).text
        assert harness.client.limits.get("bq:t").limit.capacity == 7

    def test_its_rate_is_changed_and_the_rest_is_kept(self, served: ServedApi) -> None:
        limits, browser = served.harness.client.limits, Browser(served)
        limits.declare("maps", capacity=None, rate=50.0, burst=80)
        preview = filled(browser, browser.get("/do/set-limit?name=maps"), rate="12.5")
        assert "<td>rate</td><td>50 a second → 12.5 a second</td>" in preview.text
        browser.submit(preview)
        found = limits.get("maps").limit
        assert (found.capacity, found.rate, found.burst) == (None, 12.5, 80)

    def test_less_than_is_held_and_nothing_at_all(self, served: ServedApi) -> None:
        harness, browser = served.harness, Browser(served)
        harness.client.limits.declare("crm", capacity=3)
        grant(harness, "crm", "first", "second")
        asked = browser.get("/do/set-limit?name=crm")
        assert (
            "nothing is granted until enough are free" in filled(browser, asked, capacity="1").text
        )
        closed = filled(browser, asked, capacity="0")
        assert "Nothing is granted until the capacity is raised" in closed.text

    def test_a_wrong_value_is_refused_and_an_empty_form_asks_again(self, served: ServedApi) -> None:
        limits, browser = served.harness.client.limits, Browser(served)
        limits.declare("crm", capacity=3)
        asked = browser.get("/do/set-limit?name=crm")
        for fields in ({"capacity": "many"}, {"capacity": "-1"}, {"rate": "nan"}, {"rate": "0"}):
            refused = filled(browser, asked, **fields)
            assert 'role="alert"' in refused.text, fields
            assert "Change the limit</button>" not in refused.text
        preview = filled(browser, asked, capacity="4")
        assert "Enter what to change" in browser.submit(preview, capacity="").text
        assert 'role="alert"' in browser.submit(preview, capacity="x").text
        assert 'role="alert"' in browser.get("/do/set-limit?name=absent").text
        assert limits.get("crm").limit.capacity == 3

    def test_a_viewer_and_a_bound_key_change_nothing(self, served: ServedApi) -> None:
        limits = served.harness.client.limits
        limits.declare("crm", capacity=3141)
        path = "/do/set-limit?name=crm&capacity=4"
        viewer = Browser(served, "viewer")
        assert "set-limit" not in viewer.get("/limits/crm").text
        preview = viewer.get(path)
        assert "give the command to an operator" in preview.text
        assert viewer.submit(preview).status == 403
        bound = Browser(served, "acme-operator")
        refused = bound.get(path)
        assert 'role="alert"' in refused.text
        assert "3141" not in refused.text
        assert "3,141" not in refused.text
        assert 'aria-current="step">Done' not in bound.submit(refused).text
        assert limits.get("crm").limit.capacity == 3141
