"""Actions that change settings or test a channel: asked, previewed, done once, and only by those
who may.
"""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any
from urllib.parse import urlencode

from penstock.alerts.store.notices import channels_declare
from penstock.core.ids import encode
from penstock.schedules.records import ConfigChange
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


def made(served: ServedApi, customer: str = "acme", **fields: Any) -> str:
    """Create a config; return its id."""
    return encode("cfg", served.harness.config(customer, **fields).config_id)


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
        wrong = ("capacity", "many"), ("capacity", "-1"), ("capacity", "9" * 500), ("rate", "nan")
        for fields in [*({name: value} for name, value in wrong), {"rate": "inf"}, {"rate": "0"}]:
            refused = filled(browser, asked, **fields)
            assert 'role="alert"' in refused.text, fields
            assert "Change the limit</button>" not in refused.text
            mended = filled(browser, refused, capacity="4", rate="")
            assert "Change the limit</button>" in mended.text
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


class TestConfig:
    """Change the schedule and the limits of a config."""

    def test_its_schedule_is_previewed_and_changed_once(self, served: ServedApi) -> None:
        configs, browser = served.harness.client.configs, Browser(served)
        config = made(served, schedule_cron="0 2 * * *", timezone="UTC")
        page = browser.get(f"/configs/{config}")
        href = f"/do/edit-config?config_id={config}&version=1"
        assert href in page.links
        asked = browser.get(href)
        assert "<td>cron</td><td>0 2 * * *</td>" in asked.text
        assert "<td>time zone</td><td>UTC</td>" in asked.text
        fields = {
            "cron": "30 4 * * *",
            "timezone": "America/New_York",
            "priority": "9",
            "max_execution_duration_minutes": "90",
            "reason": "the source is late",
        }
        preview = filled(browser, asked, **fields)
        assert "<td>cron</td><td>0 2 * * * → 30 4 * * *</td>" in preview.text
        assert "<td>priority</td><td>5 → 9</td>" in preview.text
        assert "→ 1 h 30 min</td>" in preview.text
        assert "<td>start within</td>" not in preview.text
        assert len(re.findall(r"<td>\d{4}-\d\d-\d\d 04:30 [-+]\d\d:\d\d", preview.text)) == 5
        command = (
            f"penstock configs update {config} --cron '30 4 * * *' --timezone America/New_York "
            "--priority 9 --max-execution-duration-minutes 90 --version 1 "
            "--reason 'the source is late'"
        )
        assert command in plain(preview)
        assert configs.get(config).version == 1
        done = browser.submit(preview)
        assert 'aria-current="step">Done' in done.text
        found = configs.get(config)
        assert (found.cron, found.timezone, found.priority) == (
            "30 4 * * *", "America/New_York", 9,
        )  # fmt: skip
        assert (found.max_duration, found.version) == (timedelta(minutes=90), 2)
        newest = configs.audit("acme").items[-1]
        assert (newest.changed_by, newest.reason) == ("key:operator", "the source is late")
        assert "This was done already, once." in browser.submit(preview).text
        assert configs.get(config).version == 2

    def test_a_change_that_is_based_on_an_old_version_is_refused(self, served: ServedApi) -> None:
        configs, browser = served.harness.client.configs, Browser(served)
        config = made(served)
        href = f"/do/edit-config?config_id={config}&version=1"
        preview = filled(browser, browser.get(href), priority="9")
        configs.update(config, ConfigChange(priority=7))
        stale = f"{config} is now at version 2, but the change was based on version 1"
        for shown in (
            browser.submit(preview),
            browser.get(href),
            browser.get(f"{href}&priority=8"),
        ):
            assert stale in shown.text
            assert "Change the config</button>" not in shown.text
        assert configs.get(config).priority == 7
        assert browser.submit(preview, version="2").status == 403

    def test_a_cron_expression_becomes_an_interval(self, served: ServedApi) -> None:
        configs, browser = served.harness.client.configs, Browser(served)
        config = made(served)
        asked = browser.get(f"/do/edit-config?config_id={config}&version=1")
        preview = filled(browser, asked, every="90")
        assert "<td>every</td><td>none → 1 h 30 min</td>" in preview.text
        assert "<td>cron</td><td>0 * * * * → none</td>" in preview.text
        browser.submit(preview)
        found = configs.get(config)
        assert (found.cron, found.interval) == (None, timedelta(minutes=90))

    def test_wrong_values_are_refused(self, served: ServedApi) -> None:
        config, browser = made(served), Browser(served)
        asked = browser.get(f"/do/edit-config?config_id={config}&version=1")
        for fields in (
            {"cron": "99 * * * *"}, {"every": "soon"}, {"every": "inf"}, {"timezone": "Mars/Base"},
            {"priority": "11"}, {"priority": "1.5"}, {"sla_breach_threshold_minutes": "-1"},
            {"max_execution_duration_minutes": "nan"}, {"cron": "0 3 * * *", "every": "5"},
        ):  # fmt: skip
            refused = filled(browser, asked, **fields)
            assert refused.status == 200, fields
            assert 'role="alert"' in refused.text, fields
            assert "Change the config</button>" not in refused.text, fields
            mended = filled(browser, refused, **{**dict.fromkeys(fields, ""), "priority": "6"})
            assert "Change the config</button>" in mended.text, fields
        assert 'role="alert"' in browser.get(f"/do/edit-config?config_id={config}").text
        assert served.harness.client.configs.get(config).version == 1

    def test_a_viewer_and_a_bound_key_change_nothing_of_others(self, served: ServedApi) -> None:
        configs = served.harness.client.configs
        own, theirs = made(served), made(served, "globex", schedule_cron="7 5 * * *")
        viewer, bound = Browser(served, "viewer"), Browser(served, "acme-operator")
        path = f"/do/edit-config?config_id={theirs}&version=1&priority=9"
        assert "edit-config" not in viewer.get(f"/configs/{theirs}").text
        preview = viewer.get(path)
        assert "give the command to an operator" in preview.text
        assert viewer.submit(preview).status == 403
        refused = bound.get(path)
        assert 'role="alert"' in refused.text
        assert "7 5 * * *" not in refused.text
        assert 'aria-current="step">Done' not in bound.submit(refused).text
        assert configs.get(theirs).version == 1
        bound.submit(bound.get(f"/do/edit-config?config_id={own}&version=1&priority=9"))
        assert configs.get(own).priority == 9


class TestChannel:
    """Send a test message through a channel."""

    @staticmethod
    def declare(served: ServedApi) -> None:
        """Declare a channel."""
        declared = [("chat", "slack", "slack (secret s)", ["all alerts"], None)]
        served.harness.write(lambda tx: channels_declare(tx, declared))

    def test_a_message_is_queued_once_and_not_by_the_preview(self, served: ServedApi) -> None:
        self.declare(served)
        alerts, browser = served.harness.client.alerts, Browser(served)
        assert "/do/test-channel?channel=chat" in browser.get("/alerts").links
        preview = browser.get("/do/test-channel?channel=chat")
        assert "penstock alerts test chat" in plain(preview)
        assert alerts.notices().items == []
        assert "A test message is sent through chat" in browser.submit(preview).text
        (queued,) = alerts.notices().items
        assert (queued.channel, queued.change, queued.state) == ("chat", "test", "waiting")
        assert "This was done already, once." in browser.submit(preview).text
        assert len(alerts.notices().items) == 1
        absent = browser.get("/do/test-channel?channel=absent")
        assert 'role="alert"' in absent.text
        assert "Send the test</button>" not in absent.text

    def test_a_viewer_and_a_bound_key_send_nothing(self, served: ServedApi) -> None:
        self.declare(served)
        viewer, bound = Browser(served, "viewer"), Browser(served, "acme-operator")
        assert "test-channel" not in viewer.get("/alerts").text
        assert "test-channel" not in bound.get("/alerts").text
        preview = viewer.get("/do/test-channel?channel=chat")
        assert "give the command to an operator" in preview.text
        assert viewer.submit(preview).status == 403
        refused = bound.get("/do/test-channel?channel=chat")
        assert 'role="alert"' in refused.text
        assert 'aria-current="step">Done' not in bound.submit(refused).text
        assert served.harness.client.alerts.notices().items == []
