"""The first page: the day in bars and pipes, the age of tables, the environment."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from penstock import same_day
from penstock.alerts.client.alerts import Alerts
from penstock.assembly.routes import ROUTES
from penstock.core.clock import HOUR, MINUTE, SECOND
from penstock.core.errors import Conflict
from penstock.detection.client import Detections
from penstock.flows.records import FlowRequest
from penstock.runs.store.leases import session_heartbeat
from penstock.web.build import build_site
from penstock.web.charts import stacked
from tests.alerts.kit import open_alert
from tests.flows.test_orchestrator import gated
from tests.kits.client_harness import Harness
from tests.kits.flows import DAY, Stage, chain
from tests.server import kit
from tests.server.kit import ServedApi
from tests.web.browser import Browser, Shown


def today_of(shown: Shown) -> str:
    """Return the panel of the day."""
    return shown.text.partition(">Today</h2>")[2].partition("</section>")[0]


def bar_of(panel: str) -> list[tuple[str, str]]:
    """Return the segments of the only bar: style and label."""
    return re.findall(r'<rect class="(\w+)"[^>]*><title>([^<]*)</title>', panel)


def next_hour(harness: Harness) -> None:
    """Move to the next full hour and start what is due."""
    harness.clock.advance(HOUR - harness.clock.now() % HOUR)
    harness.tick()


def test_a_cohort_is_a_bar(served: ServedApi) -> None:
    harness = served.harness
    for number in range(6):
        harness.config(customer=f"c{number}")
    next_hour(harness)
    browser = Browser(served)
    waiting = today_of(browser.get("/"))
    assert bar_of(waiting) == [("hat", "6 queued")]
    assert "0 % of what is due is done" in waiting
    held = [harness.take() for _ in range(5)]
    harness.clock.advance(2 * MINUTE)
    harness.complete(*held[:2])
    harness.fail(held[2])
    harness.fail(held[3], error_type="TRANSIENT_NETWORK")
    panel = today_of(browser.get("/"))
    assert bar_of(panel) == [
        ("ok", "2 completed"),
        ("run", "1 running"),
        ("hat", "1 queued"),
        ("soft", "1 to retry"),
        ("fail", "1 dead"),
    ]
    assert "2 of 6 runs · 1 running · 1 queued · 1 to retry · 1 dead · done about" in panel
    assert 'aria-label="2 of 6 runs, 1 running, 1 queued, 1 to retry, 1 dead"' in panel
    assert "33 % of what is due is done" in panel
    mine = today_of(browser.get("/?customer=c5"))
    assert bar_of(mine) == [("hat", "1 queued")]
    assert "/runs?customer=c5&amp;pipeline=nightly" in mine


def test_a_cohort_that_is_over(served: ServedApi) -> None:
    harness = served.harness
    harness.config()
    harness.config(customer="off")
    harness.client.pauses.pause("customer", "off", reason="test")
    next_hour(harness)
    harness.complete(harness.take())
    browser = Browser(served)
    panel = today_of(browser.get("/"))
    assert "1 of 1 run · ended" in panel
    assert 'aria-label="1 of 1 run, 1 skipped"' in panel
    assert "100 % of what is due is done" in panel
    assert "1 skipped" in today_of(browser.get("/?customer=off"))


def test_more_than_is_shown(served: ServedApi) -> None:
    harness = served.harness
    harness.config()
    for _ in range(7):
        next_hour(harness)
        harness.drain()
    assert "2 more cohorts of scheduled runs: penstock today" in today_of(Browser(served).get("/"))


def test_the_age_of_tables(served: ServedApi) -> None:
    """The stalest table comes first; far over what is allowed is red, a little is amber."""
    harness = served.harness
    (number,) = harness.column("SELECT pipeline FROM pipelines WHERE name = 'nightly'")
    now = harness.clock.now()
    for table, hours in (("fresh", 1), ("late", 30), ("lost", 99)):
        status = "FRESH" if hours < 24 else "STALE"
        harness.sql(
            "INSERT INTO freshness (pipeline, relation, max_age_us, checked_at, newest_at, status) "
            f"VALUES ({number}, 't.{table}', {24 * HOUR}, {now}, {now - hours * HOUR}, '{status}')"
        )
    browser = Browser(served)
    panel = browser.get("/").text.partition(">Freshness</h2>")[2].partition("</section>")[0]
    assert re.findall(r"t\.(\w+)<", panel) == ["lost", "late", "fresh"]
    assert re.findall(r'<td class="r (\w+)" data-l="age"', panel) == ["bad", "warn", "dim"]
    harness.config(customer="acme")
    assert "Freshness" not in browser.get("/?customer=acme").text


def fail(*_: object, **__: object) -> NoReturn:
    """Fail as a read does."""
    raise Conflict("not now")


def test_a_blocked_flow_needs_a_person(served: ServedApi) -> None:
    """A blocked flow without an alert is listed, also for its customer alone."""
    stage = Stage(served.harness.store, served.harness.clock, gated(same_day("raw.box")))
    opened = stage.open()
    stage.complete()
    for _ in range(26):
        stage.step()
        served.harness.clock.advance(5 * MINUTE)
    assert stage.states(opened)["analytics"] == "BLOCKED"
    for alert in served.harness.client.alerts.list(state="open").items:
        served.harness.client.alerts.resolve(alert.alert_id)
    browser = Browser(served)
    for path in ("/", "/?customer=acme"):
        shown = browser.get(path)
        assert "is blocked: a gate refused to start a phase" in shown.text, path
        assert shown.heading != "All is well"
    assert "/flows?state=BLOCKED" in browser.get("/").text
    assert browser.get("/?customer=other").status == 404


def test_a_silent_worker_needs_attention(served: ServedApi) -> None:
    """It is named on the first page and the system page, where header, check and row agree."""
    harness = served.harness
    harness.config(customer="acme")
    harness.submit()
    session = harness.session("vm:8849")
    assert len(harness.claim(session=session)) == 1
    browser = Browser(served)
    assert browser.get("/").heading == "All is well"
    harness.clock.advance(15 * SECOND)
    harness.session("vm:9001")
    harness.clock.advance(SECOND)
    shown = browser.get("/")
    assert shown.heading == "1 thing needs you"
    assert "Worker vm:8849 has sent no heartbeat for 16 s; its 1 run will be taken" in shown.text
    assert "no heartbeat" not in browser.get("/?customer=acme").text
    assert browser.get("/?customer=acme").heading == "All is well"
    system = browser.get("/system").text
    assert "2 workers are alive, 1 of them silent." in system
    assert "2 workers alive, 1 of them silent, total concurrency 10" in system
    rows = system.partition(">Workers</h2>")[2].partition("</section>")[0]
    assert re.findall(r">(silent|alive)<", rows) == ["silent", "alive"]
    harness.clock.advance(15 * SECOND)
    assert ">lapsed<" in browser.get("/system").text
    harness.session("vm:9002")
    harness.sql("DELETE FROM sessions WHERE name = 'vm:9001'")
    harness.write(lambda tx: session_heartbeat(tx, session, 30 * SECOND))
    assert browser.get("/").heading == "All is well"
    assert "2 workers are alive." in browser.get("/system").text


def test_generations_of_a_partition_are_told_apart(served: ServedApi) -> None:
    """Rows of one partition have their generation; the row of another has none."""
    stage = Stage(served.harness.store, served.harness.clock, chain("raw", "publish"))
    request = FlowRequest(
        pipeline="nba", customer="acme", partition=DAY, mode="same_day", force=True
    )
    browser = Browser(served)
    stage.client.flows.trigger(request)
    panel = today_of(browser.get("/"))
    assert f"nba · {DAY} · same_day" in panel
    assert "generation" not in panel
    for _ in range(2):
        stage.client.flows.trigger(request)
    stage.client.flows.trigger(structs.replace(request, customer="other"))
    panel = today_of(browser.get("/"))
    titles = set(re.findall(rf">nba · {DAY} · same_day(?: · generation (\d))?<", panel))
    assert titles == {"", "1", "2", "3"}


def test_runs_have_a_worker(served: ServedApi) -> None:
    """The list names who claimed a run."""
    harness = served.harness
    harness.submit()
    browser = Browser(served)
    assert ">tester<" not in browser.get("/runs").text
    harness.take()
    shown = browser.get("/runs").text
    assert re.search(r"<td[^>]*data-l=\"worker\"[^>]*>\s*tester", shown), shown


def test_parts_that_do_not_load_leave_the_page(
    served: ServedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the alerts, the page does not claim that all is well, and counts no zero."""
    browser = Browser(served)
    assert browser.get("/").heading == "All is well"
    served.harness.clock.advance(MINUTE)
    monkeypatch.setattr(Alerts, "list", fail)
    monkeypatch.setattr(Detections, "freshness", fail)
    shown = browser.get("/")
    assert (shown.status, shown.heading) == (200, "Overview")
    assert "Needs you did not load: not now" in shown.text
    assert "Freshness did not load: not now" in shown.text
    assert "<b>0</b>" not in shown.text


def test_an_alert_about_something_else_hides_no_dead_letters(served: ServedApi) -> None:
    harness = served.harness
    harness.dead_run()
    (group,) = harness.client.dead_letters.groups()
    where = f"{group.pipeline}/{group.processor}"
    open_alert(harness.store, "slow", message=f"{where} is slow")
    browser = Browser(served)
    assert f"1 dead letter of {where}" in browser.get("/").text
    open_alert(harness.store, "dead", rule="dead_letters", message=f"dead letters at {where}")
    assert f"1 dead letter of {where}" not in browser.get("/").text


def test_links_and_actions_keep_the_chosen_customer(served: ServedApi) -> None:
    harness = served.harness
    harness.config(customer="acme")
    customer = harness.client._names.lookup_customer_key("acme")
    for number in range(7):
        open_alert(harness.store, f"k{number}", customer_key=customer)
    shown = Browser(served).get("/?customer=acme")
    assert '<a href="/alerts?customer=acme">2 more</a>' in shown.text
    assert "/do/trigger?customer=acme" in shown.links
    assert "/do/trigger" in Browser(served).get("/").links


def test_the_environment_is_named(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = partial(build_site, environment="<b>staging")
    monkeypatch.setattr(kit, "ROUTES", replace(ROUTES, pages=pages))
    served = ServedApi(harness)
    try:
        shown = Browser(served).get("/").text
    finally:
        served.stop()
    assert "<title>Overview · &lt;b&gt;staging · Penstock</title>" in shown
    assert shown.count('title="Environment">&lt;b&gt;staging</small>') == 2
    assert "<b>staging" not in shown


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=6))
def test_segments_fill_the_bar(counts: list[int]) -> None:
    made = stacked([("ok", count, "things") for count in counts])
    assert len(made) == sum(1 for count in counts if count)
    if made:
        assert made[0].left == 0
        assert abs(sum(one.width for one in made) - 100) < 0.001
        assert all(one.width > 0.59 for one in made)
        ends = [one.left + one.width for one in made]
        assert all(abs(a - b.left) < 0.001 for a, b in zip(ends, made[1:], strict=False))
