"""Panels beside and above lists: the bottleneck of limits, one customer, small lines."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.audit.rows import NewAlert
from penstock.audit.store.alerts import alert_open
from penstock.core.clock import HOUR, MINUTE, SECOND
from penstock.db.store import Tx
from penstock.flows.explain.records import EntityFlow
from penstock.flows.gates.verdict import Verdict
from penstock.limits.store.grant import limit_grant
from penstock.limits.store.limits import limit_get, limit_quota
from penstock.limits.store.rows import GrantInput, GrantResult, LeaseRequest, Release
from penstock.monitoring.health_refresher import HealthRefresher
from penstock.schedules.store.ticks import ticks_put
from penstock.web.pages.flows.flow import shown_gates
from penstock.web.pages.tracing import entity_conclusion
from tests.kits.client_harness import Harness
from tests.server.kit import ServedApi
from tests.slos.test_recorder import Levels
from tests.web.browser import Browser
from tests.web.test_pages import assert_safe


def panel_of(shown: str, title: str) -> str:
    """Return the panel with a title; empty if there is none."""
    return shown.partition(f">{title}</h2>")[2].partition("</section>")[0]


def grant(
    harness: Harness, name: str, *wants: str, releases: tuple[Release, ...] = ()
) -> GrantResult:
    """Request slots of a limit and release some."""

    def body(tx: Tx) -> GrantResult:
        limit = limit_get(tx, name)
        assert limit is not None
        requests = [LeaseRequest(request=one, holder=one) for one in wants]
        return limit_grant(
            tx, limit.limit_id, GrantInput(broker="b", requests=requests, releases=releases)
        )

    return harness.write(body)


def lower(harness: Harness, name: str) -> None:
    """Report a quota error, which halves the capacity."""

    def body(tx: Tx) -> None:
        limit = limit_get(tx, name)
        assert limit is not None
        limit_quota(tx, limit.limit_id)

    harness.write(body)


def test_the_bottleneck_comes_first(served: ServedApi) -> None:
    """The limit with the longest queue: its slots, its queue and when each is expected."""
    harness, browser = served.harness, Browser(served)
    harness.client.limits.declare("a", capacity=1)
    harness.client.limits.declare("bq:t", capacity=4, adaptive=True)
    grant(harness, "a", "first", "second")
    held = grant(harness, "bq:t", "h1", "h2")
    harness.clock.advance(MINUTE)
    grant(harness, "bq:t", releases=tuple(Release(one.lease_id, one.token)
                                          for one in held.leases.values()))  # fmt: skip
    lower(harness, "bq:t")
    lower(harness, "bq:t")
    grant(harness, "bq:t", *(f"caller-{n}" for n in range(9)))
    harness.clock.advance(20 * SECOND)
    shown = browser.get("/limits")
    assert_safe(shown)
    assert shown.text.index("The bottleneck") < shown.text.index(">Capacity</h2>")
    panel = panel_of(shown.text, "The bottleneck")
    assert ">bq:t</b>" in panel
    limit = harness.client.limits.get("bq:t").limit
    assert limit.effective_capacity is not None
    away = 4 - limit.effective_capacity
    assert f'aria-label="{limit.held} held, 0 free, {away} removed by quota errors"' in panel
    assert panel.count('<rect class="run"') == limit.held + 1  # and one in the legend
    assert f"{limit.waiting} requests wait" in panel
    assert 'class="ln b"' in panel
    queue = panel_of(shown.text, "Queue")
    assert queue.count("<tr data-row>") == 6
    assert f"{limit.waiting - 6} more after these" in queue
    assert queue.count("<time ") == 6, "a hold has ended, so that each grant can be estimated"
    learned = panel_of(shown.text, "Capacity")
    assert f'aria-label="4 became {limit.effective_capacity}"' in learned
    assert "The bottleneck" in browser.get("/limits?show=learned").text
    assert "The bottleneck" not in browser.get("/limits?q=a").text


def test_no_bottleneck_without_a_queue(served: ServedApi) -> None:
    harness = served.harness
    harness.client.limits.declare("bq:t", capacity=1)
    assert "The bottleneck" not in Browser(served).get("/limits").text
    grant(harness, "bq:t", "holder", "caller")
    panel = panel_of(Browser(served).get("/limits").text, "The bottleneck")
    assert "1 request waits" in panel
    assert "/runs?waits=limited" not in panel, "no run waits"


@pytest.mark.parametrize("key", ["viewer", "operator"])
def test_a_customer_is_open_beside_the_list(served: ServedApi, key: str) -> None:
    """The address says which; filters stay; only operators get the button that pauses it."""
    harness = served.harness
    harness.config(customer="acme")
    harness.config(customer="globex")
    HealthRefresher(harness.store).run_once()
    browser = Browser(served, key)
    listed = browser.get("/customers?sort=name")
    assert "/customers?sort=name&at=acme" in listed.links
    assert 'aria-selected="true"' not in listed.text
    shown = browser.get("/customers?sort=name&at=acme")
    assert_safe(shown)
    assert shown.text.count('aria-selected="true"') == 1
    assert {"/customers/acme", "/customers?sort=name"} <= set(shown.links)
    assert any(link.startswith("/configs/cfg_") for link in shown.links)
    panel = shown.text.partition('<a href="/customers/acme">acme</a></h2>')[2]
    assert "Next starts of nightly" in panel
    assert len(re.findall(r'<td class="num">\d{4}-', panel)) == 3
    assert "penstock customers show acme" in re.sub(r"<[^>]*>", "", panel)
    assert ("/do/pause?scope=customer&subject=acme" in shown.links) == (key == "operator")


def test_a_customer_that_does_not_exist_leaves_the_list(served: ServedApi) -> None:
    served.harness.config(customer="acme")
    shown = Browser(served).get("/customers?at=unknown-one")
    assert shown.status == 200
    assert "unknown-one did not load" in shown.text
    assert "/customers?at=acme" in shown.links
    assert_safe(shown)


def test_a_customer_without_configs(served: ServedApi) -> None:
    harness = served.harness
    harness.client.customers.set("acme", weight=2)
    shown = Browser(served).get("/customers?at=acme")
    assert "did not load" not in shown.text
    assert "Next starts" not in shown.text


def test_planned_starts_are_drawn_over_the_whole_day(served: ServedApi) -> None:
    """Times without a start take their place too, and starts are not called ended runs."""
    harness = served.harness
    harness.config(customer="acme", schedule_cron="0 12 * * *")
    panel = panel_of(Browser(served).get("/customers").text, "When work starts")
    rows = re.findall(r'<tr><td>(\d\d:\d\dZ)</td><td class="r">(\d+)</td></tr>', panel)
    assert len(rows) == 96
    assert sum(int(count) for _, count in rows) == 1
    assert panel.count('<rect class="soft"') == 1
    assert "ended well" not in panel


def test_a_limit_that_had_no_bound(served: ServedApi) -> None:
    harness = served.harness
    harness.client.limits.declare("bq:t", capacity=None, rate=5.0)
    harness.client.limits.declare("bq:t", capacity=4, adaptive=True)
    lower(harness, "bq:t")
    assert 'aria-label="no bound became 2"' in Browser(served).get("/limits").text


def test_the_last_day_in_small_lines(served: ServedApi) -> None:
    """Figures of ended runs have a line by hour; what never happened has none."""
    harness, browser = served.harness, Browser(served)
    harness.config()
    for _ in range(2):
        harness.clock.advance(HOUR - harness.clock.now() % HOUR)
        harness.tick()
        harness.complete(harness.take())
    figures = browser.get("/").text.partition('<dl class="stats"')[2].partition("</dl>")[0]
    (points,) = re.findall(r'<polyline points="([^"]+)"', figures)
    assert len(points.split()) == 24, "whole hours, the current one last"
    assert points.split()[-1].endswith(",1.5"), "the hour until now has a run, like the one before"
    assert figures.index("Ended well today") < figures.index("<polyline")
    assert "<polyline" not in figures.partition("Failed today")[2]


@pytest.mark.parametrize(
    ("reached_last", "state", "text"),
    [
        (True, "COMPLETE", "Yes. It reached the last phase."),
        (False, "OPEN", "Not yet."),
        (False, "FAILED", "No."),
        (False, "CANCELLED", "No."),
        (None, None, "Not known."),
    ],
)
def test_an_entity_in_an_open_flow_may_still_get_through(
    reached_last: bool | None, state: str | None, text: str
) -> None:
    """A flow that goes on is no failure, and of one that is no longer stored nothing is known."""
    flow = EntityFlow(
        flow_id=None,
        pipeline="nba",
        partition=None,
        mode=None,
        generation=None,
        state=state,
        changed_at=datetime(2025, 12, 31, tzinfo=UTC),
        reached_last=reached_last,
        text="",
        phases=[],
    )
    assert entity_conclusion(flow).text == text


def test_gates_that_waited_come_first() -> None:
    """Of an ended flow, the gates that held it up are shown, and of degraded ones the first."""
    start = datetime(2025, 12, 31, tzinfo=UTC)
    verdicts = [
        ("scrape", Verdict.WAIT),
        ("scrape", Verdict.PROCEED),
        ("raw", Verdict.PROCEED_DEGRADED),
        ("predict", Verdict.PROCEED_DEGRADED),
        ("publish", Verdict.PROCEED),
        ("grading", Verdict.PROCEED),
    ]
    made: list[Any] = [
        SimpleNamespace(
            phase=phase,
            processor=None,
            verdict=verdict,
            dependencies=["a table"],
            decided_at=start + timedelta(minutes=n),
        )
        for n, (phase, verdict) in enumerate(verdicts)
    ]
    shown = [one.phase for one in shown_gates(made)]
    assert shown == ["raw", "predict", "scrape", "grading", "publish"]
    assert next(one for one in shown_gates(made) if one.phase == "scrape").verdict == "PROCEED"


def test_the_system_page_shows_the_installation(served: ServedApi) -> None:
    """Checks with their commands, worst first; pools with desired workers; ticks; the store."""
    harness = served.harness
    harness.submit()
    harness.write(lambda tx: ticks_put(tx, [("scheduler", SECOND), ("sweeper", SECOND)]))
    harness.clock.advance(2 * MINUTE)
    harness.write(lambda tx: ticks_put(tx, [("scheduler", SECOND)]))
    shown = Browser(served).get("/system")
    assert_safe(shown)
    assert "did not load" not in shown.text
    checks = panel_of(shown.text, "Checks")
    assert checks.index("failed") < checks.index(">ok<")
    assert "penstock up --pipelines my_pipelines.py" in checks
    pools = panel_of(shown.text, "Pools")
    assert "warn" in pools, "more workers are desired"
    services = panel_of(shown.text, "Services")
    assert services.index(">sweeper") < services.index(">scheduler"), "late ones first"
    assert "no audit sink" in shown.text
    assert f"Store, {harness.store.capabilities.engine}" in shown.text


def _opened(alert: NewAlert, tx: Tx) -> int:
    return alert_open(tx, alert)


@pytest.mark.parametrize(
    ("severities", "tone"),
    [
        (["MEDIUM"], "<b>1</b>"),
        (["MEDIUM", "HIGH"], '<b class="warm">2</b>'),
        (["CRITICAL", "HIGH"], '<b class="hot">2</b>'),
    ],
)
def test_the_count_of_alerts_is_red_only_for_critical_ones(
    served: ServedApi, severities: list[str], tone: str
) -> None:
    for severity in severities:
        alert = NewAlert(
            rule="stall",
            dedupe_key=f"stall:{severity}",
            severity=severity,
            subject_kind="system",
            subject=0,
            message="Something",
        )
        served.harness.write(partial(_opened, alert))
    assert tone in Browser(served).get("/topics").text


def test_error_budgets_on_the_trends_page(served: ServedApi) -> None:
    """Service levels with results, the least budget first: target, counts, budget, burn rate."""
    harness = served.harness
    assert "No service level has results" in Browser(served).get("/trends").text
    levels = Levels(harness.store, harness.clock)
    levels.flow("2025-11-14", raw=45 * MINUTE, analytics=MINUTE)
    slo = levels.slo(phase="raw")
    assert (slo.missed, slo.budget_left is not None and slo.budget_left < 0) == (1, True)
    harness.clock.advance(MINUTE)
    shown = Browser(served).get("/trends")
    assert_safe(shown)
    panel = panel_of(shown.text, "Error budgets")
    worst = re.sub(r"<[^>]*>", " ", panel.partition("<tr data-row>")[2].partition("</tr>")[0])
    assert "nba · latency" in worst
    assert "same_day" in worst
    assert f"spent {1 - (slo.budget_left or 0):.1f} times" in worst
    assert f"{slo.objective_percentage:g} % within 30 min" in panel
    assert f"{slo.burn_rate:.1f}" in panel
