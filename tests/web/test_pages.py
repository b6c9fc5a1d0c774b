"""Every page: with data and empty, for every role, for a key of one customer, never unsafe."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote

import pytest

from penstock.core.ids import encode
from penstock.limits.store.limits import limit_get, limit_quota
from penstock.monitoring.health_refresher import HealthRefresher
from penstock.runs.external.client.work import ExternalWorker, FailureReport
from penstock.runs.records import Submission
from penstock.web.build import PAGES
from tests.conftest import ENGINES
from tests.kits.served import Serve
from tests.server.kit import ServedApi
from tests.server.scene import Scene, scene
from tests.web.browser import Browser, Shown

LISTS = [page.path for page in PAGES if "{" not in page.path]
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>\x1b[31m\u202eabc"


@dataclass(frozen=True, slots=True)
class Stage:
    """A server with the data of two customers."""

    served: ServedApi
    acme: Scene
    globex: Scene
    dead: str
    hostile: str


@pytest.fixture(scope="module", params=ENGINES)
def stage(request: pytest.FixtureRequest, serve: Serve) -> Iterator[Stage]:
    """Return one server for all tests of the module, which change nothing."""
    with serve(request.param) as served:
        acme, globex = scene(served.harness, "acme"), scene(served.harness, "globex")
        yield Stage(
            served=served,
            acme=acme,
            globex=globex,
            dead=served.harness.client.dead_letters.list(kind="run", customer="acme")
            .items[0]
            .dead_letter_id,
            hostile=hostile_run(served),
        )


def hostile_run(served: ServedApi) -> str:
    """Return a run whose every text is hostile."""
    client, worker = served.harness.client, ExternalWorker("<b>w</b>", "other-key")
    wanted = Submission(
        pipeline="outside", customer="acme", parameters={HOSTILE: HOSTILE}, priority=10
    )
    (run_id,) = client.runs.submit_many([wanted])
    claimed = client.work.claim(worker, 50, customer="acme")
    one = next(one for one in claimed if encode("run", one.run.run_id) == run_id)
    client.work.start(one.run.run_id, worker)
    failure = FailureReport(error_type="VALIDATION_ERROR", error_details={"message": HOSTILE})
    client.work.fail(one.run.run_id, worker, failure)
    return run_id


def details(of: Scene, dead: str = "") -> list[str]:
    """Return the address of a page of each kind of thing of a customer."""
    made = [
        f"/runs/{of.runs['dead']}",
        f"/runs/{of.runs['running']}",
        f"/flows/{of.flows.flow}",
        f"/flows/{of.flows.blocked}",
        f"/configs/{of.config}",
        f"/customers/{of.customer}",
        f"/interventions/{of.flows.intervention}",
        f"/trace?q={of.flows.flow}",
    ]
    return made + ([f"/dead-letters/{dead}"] if dead else [])


def assert_safe(shown: Shown) -> None:
    """Assert that a page has nothing that its policy forbids."""
    policy = shown.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert shown.headers["cache-control"] == "no-store"
    assert shown.headers["x-content-type-options"] == "nosniff"
    assert not re.search(r"<[^>]+\sstyle=", shown.text)
    assert not re.search(r"<[^>]+\son[a-z]+=", shown.text)
    assert not re.search(r"<script(?![^>]*\ssrc=\"/assets/)", shown.text)
    assert "<img" not in shown.text
    assert "\x1b" not in shown.text
    assert "\u202e" not in shown.text
    assert "None<" not in shown.text


@pytest.mark.parametrize("path", LISTS)
def test_every_list_is_shown(stage: Stage, path: str) -> None:
    shown = Browser(stage.served, "admin").get(path)
    assert shown.status == 200, shown.text
    assert "did not load" not in shown.text
    assert_safe(shown)


def test_every_thing_has_a_page(stage: Stage) -> None:
    browser = Browser(stage.served)
    filtered = ("/customers?health=well", "/flows?state=trouble&q=2")
    for path in (*filtered, *details(stage.acme, stage.dead)):
        shown = browser.get(path)
        assert shown.status == 200, (path, shown.text)
        assert "did not load" not in shown.text, path
        assert_safe(shown)


def test_customers_by_health_filter_and_order(stage: Stage) -> None:
    """The page lists trouble first, counts each health, and keeps filters and order."""
    HealthRefresher(stage.served.harness.store).run_once()
    browser = Browser(stage.served)
    shown = browser.get("/customers").text
    assert "Trouble first" in shown
    assert re.search(r"Customers by health: .*\d+ well", shown)
    found = browser.get("/customers?pipeline=nightly&provider=GCP&sort=name&q=ac").text
    assert f'at={stage.acme.customer}"' in found
    assert 'name="sort" value="name"' in found
    assert "No customer fits" in browser.get("/customers?domain=nowhere&sort=next").text
    owned = browser.get(f"/customers?q={stage.acme.config}").text
    assert f'at={stage.acme.customer}"' in owned
    assert f'at={stage.globex.customer}"' not in owned
    for path in ("/configs?show=at+risk", "/configs?customers=ac"):
        assert "did not load" not in browser.get(path).text


@pytest.mark.parametrize("engine", ["sqlite"])
def test_an_empty_installation_says_what_comes(serve: Serve, engine: str) -> None:
    with serve(engine) as served:
        browser = Browser(served, "admin")
        for path in LISTS:
            shown = browser.get(path)
            assert shown.status == 200, (path, shown.text)
            assert "did not load" not in shown.text
        assert "Nothing needs you" in browser.get("/").text
        assert "No dead letters" in browser.get("/dead-letters").text


def test_a_link_on_the_first_page_leads_to_each_question(stage: Stage) -> None:
    shown = Browser(stage.served).get("/")
    assert "Is it still there, and can I retry it?" in shown.text
    assert any(link.startswith("/dead-letters?") for link in shown.links)
    assert any(link.startswith("/flows/flow_") for link in shown.links)
    assert {form.action for form in shown.forms} >= {"/find", "/trace"}


def test_hostile_texts_are_shown_as_text(stage: Stage) -> None:
    shown = Browser(stage.served).get(f"/runs/{stage.hostile}")
    assert_safe(shown)
    assert "&lt;script&gt;alert(1)" in shown.text
    assert "\\u001b[31m" in shown.text
    for path in ("/dead-letters", f"/find?q={'%3Cscript%3Ealert(1)%3C/script%3E'}"):
        assert_safe(Browser(stage.served).get(path))


@pytest.mark.parametrize("path", LISTS)
def test_hostile_filters_are_shown_as_text(stage: Stage, path: str) -> None:
    hostile = "%22%3E%3Cscript%3Ealert(1)%3C/script%3E%00"
    names = ("q", "state", "status", "pipeline", "customer", "error_type", "cursor", "partition",
             "group", "show", "at")  # fmt: skip
    query = "&".join(f"{name}={hostile}" for name in names)
    shown = Browser(stage.served, "admin").get(f"{path}?{query}")
    assert shown.status < 500
    assert_safe(shown)


def test_what_does_not_exist_and_what_is_not_yours_look_alike(stage: Stage) -> None:
    bound = Browser(stage.served, "acme-operator")
    ghost = bound.get("/runs/run_00000000")
    assert ghost.status == 404
    theirs = bound.get(f"/runs/{stage.globex.runs['dead']}")
    blank = theirs.text.replace(stage.globex.runs["dead"], "run_00000000")
    tokens = re.compile(r"[0-9a-f]{40}")
    assert tokens.sub("", blank) == tokens.sub("", ghost.text)


def test_an_unknown_address_is_a_page_for_people_and_a_problem_for_programs(stage: Stage) -> None:
    browser = Browser(stage.served)
    shown = browser.get("/nothing", Accept="text/html,*/*")
    assert (shown.status, shown.heading) == (404, "Not found")
    assert '<a href="/">the overview</a>' in shown.text
    assert_safe(shown)
    assert Browser(stage.served, None).get("/nothing", Accept="text/html").status == 303
    json_first = ("/nothing", "application/json, text/html")
    for path, accept in (("/nothing", "*/*"), json_first, ("/api/v1/nothing", "text/html")):
        response = browser.get(path, Accept=accept)
        assert response.status == 404
        assert response.headers["content-type"] == "application/problem+json"


def test_filters_that_are_set_can_be_removed_one_by_one(stage: Stage) -> None:
    shown = Browser(stage.served).get("/runs?state=FAILED&pipeline=orders&customer=acme&cursor=x")
    assert "/runs?state=FAILED&customer=acme" in shown.links
    assert "/runs?state=FAILED&pipeline=orders" in shown.links


def test_a_cause_leads_to_its_dead_letters(stage: Stage) -> None:
    browser = Browser(stage.served)
    inbox = stage.served.harness.client.dead_letters
    group = max(inbox.groups(), key=lambda one: one.count)
    page = browser.get("/dead-letters")
    (link,) = {one for one in page.links if f"group={quote(group.group, safe='')}" in one
               and one.startswith("/dead-letters?")}  # fmt: skip
    shown = browser.get(link)
    assert "did not load" not in shown.text
    assert f"{group.replayable} of {group.checked}" in shown.text
    assert 'aria-selected="true"' in shown.text
    for one in inbox.list(limit=50).items:
        is_listed = one.dead_letter_id in shown.text
        assert is_listed == (one in inbox.list(group=group.group, limit=50).items)
    assert browser.get("/dead-letters?group=nonsense").status == 400


def test_runs_are_counted_by_state(stage: Stage) -> None:
    browser = Browser(stage.served)
    counts = stage.served.harness.client.runs.counts()
    shown = browser.get("/runs")
    assert f">running {counts.running}</a>" in shown.text
    assert f">pending {counts.pending}</a>" in shown.text
    assert f">waiting {counts.waiting}</a>" in shown.text
    assert f">failed {counts.failed}</a>" in shown.text
    assert "/runs?waits=waiting" in shown.links
    of_acme = stage.served.harness.client.runs.counts(customer="acme")
    bound = Browser(stage.served, "acme-operator").get("/runs")
    assert f">pending {of_acme.pending}</a>" in bound.text
    assert of_acme.pending < counts.pending
    assert ">running</a>" in browser.get("/runs?error_type=X").text
    assert ">running</a>" in browser.get("/runs?pipeline=unknown").text


@pytest.mark.parametrize(
    ("query", "title"),
    [
        ("sort=running_for", "Runs, running longest first"),
        ("state=PENDING&sort=waiting_for", "Runs, waiting longest first"),
        ("sort=ended_at", "Runs, last ended first"),
        ("ended_since=2d&ended_until=2030-01-01", "Runs, last ended first"),
        ("state=FAILED&sort=running_for", "Runs, newest first"),
        ("is_dead=yes", "Runs, newest first"),
        ("waits=waiting", "Runs, newest first"),
    ],
)
def test_runs_in_every_order(stage: Stage, query: str, title: str) -> None:
    shown = Browser(stage.served).get(f"/runs?{query}")
    assert title in shown.text
    assert "did not load" not in shown.text
    assert_safe(shown)


def test_flows_by_time_and_order(stage: Stage) -> None:
    browser = Browser(stage.served)
    for query, title in (
        ("sort=oldest", "Flows, oldest open first"),
        ("state=OPEN&sort=risk", "Flows, most at risk first"),
        ("state=COMPLETE&sort=risk", "Flows, newest first"),
        ("since=3650d&until=2030-01-01", "Flows, newest first"),
    ):
        shown = browser.get(f"/flows?{query}")
        assert title in shown.text
        assert "did not load" not in shown.text
        assert "No flow fits" not in shown.text or "COMPLETE" in query
    assert "No flow fits" in browser.get("/flows?since=2040-01-01").text
    assert "how long ago" in browser.get("/flows?since=yesterday").text


def test_the_next_page_keeps_the_times_of_the_first(stage: Stage) -> None:
    """An age would mean another time on the next page, for which its cursor is not valid."""
    client = stage.served.harness.client
    for run_id in client.runs.submit_many([Submission(pipeline="nightly", customer="acme")] * 60):
        client.runs.cancel(run_id)
    browser = Browser(stage.served)
    shown = browser.get("/runs?ended_since=3650d&customer=acme")
    (following,) = [one for one in shown.links if "cursor=" in one]
    assert "3650d" not in following
    assert "did not load" not in browser.get(following).text


def test_a_bound_key_sees_only_its_customer(stage: Stage) -> None:
    bound = Browser(stage.served, "acme-operator")
    for path in details(stage.globex):
        assert bound.get(path).status in (403, 404), path
    for path in (*LISTS, *details(stage.acme, stage.dead)):
        shown = bound.get(path)
        assert "globex" not in shown.text, path
        assert "did not load" not in shown.text, path
    assert bound.get("/?customer=globex").text.count("globex") == 0
    assert bound.get("/system").status == 403
    assert 'href="/system"' not in bound.get("/").text


@pytest.mark.parametrize(("key", "status"), [("viewer", 403), ("operator", 403), ("admin", 200)])
def test_only_admins_see_keys(stage: Stage, key: str, status: int) -> None:
    assert Browser(stage.served, key).get("/keys").status == status


def test_a_viewer_gets_the_command_instead_of_the_button(stage: Stage) -> None:
    viewer = Browser(stage.served, "viewer")
    assert "Replay" not in viewer.get(f"/dead-letters/{stage.dead}").text.replace("replay", "")
    preview = viewer.get(f"/do/replay-letter?dead_letter_id={stage.dead}")
    assert f"penstock dlq replay {stage.dead}" in preview.text
    assert "give the command to an operator" in preview.text
    assert viewer.submit(preview).status == 403


def test_an_unchanged_page_is_not_sent_again(stage: Stage) -> None:
    browser = Browser(stage.served)
    first = browser.get("/dead-letters")
    again = browser.get("/dead-letters", If_None_Match=first.headers["etag"])
    assert (again.status, again.text) == (304, "")


def test_assets_are_named_by_content_and_cached_permanently(stage: Stage) -> None:
    browser = Browser(stage.served, None)
    page = browser.get("/login").text
    names = re.findall(r'(?:src|href)="(/assets/[^"]+)"', page)
    assert len(names) == 3
    sizes = 0
    for name in names:
        shown = browser.get(name, Accept_Encoding="gzip")
        assert shown.status == 200
        assert shown.headers["cache-control"] == "public, max-age=31536000, immutable"
        sizes += int(shown.headers["content-length"])
    assert sizes < 60_000
    assert browser.get("/assets/penstock.000000000000.css").status == 404


def test_pages_are_compressed(stage: Stage) -> None:
    shown = Browser(stage.served).get("/", Accept_Encoding="gzip")
    assert shown.headers["content-encoding"] == "gzip"
    assert int(shown.headers["content-length"]) < 30_000


def test_the_customer_that_is_chosen_stays_chosen(stage: Stage) -> None:
    browser = Browser(stage.served)
    shown = browser.get("/?customer=acme")
    assert (shown.status, "You see acme." in shown.text) == (200, True)
    assert "did not load" not in shown.text
    assert "globex" not in shown.text
    for link in ("/flows?customer=acme", "/?customer=acme", "/alerts?customer=acme"):
        assert link in shown.links
    assert {"/customers", "/limits", "/"} <= set(shown.links)  # "/" shows all customers again
    (scope,) = [form for form in shown.forms if set(form.values) == {"customer"}]
    assert (scope.action, scope.values) == ("/", {"customer": "acme"})
    elsewhere = browser.get("/runs?customer=acme")
    assert [one.action for one in elsewhere.forms if set(one.values) == {"customer"}] == ["/runs"]
    detail = browser.get(f"/runs/{stage.acme.runs['dead']}")
    assert [one.action for one in detail.forms if set(one.values) == {"customer"}] == ["/"]
    assert browser.get("/?customer=nobody").status == 404
    bound = Browser(stage.served, "acme-operator").get("/")
    assert [form for form in bound.forms if set(form.values) == {"customer"}] == []


@pytest.mark.parametrize("path", ["/alerts", "/trace", "/find", "/dead-letters", "/runs"])
def test_filters_keep_the_chosen_customer(stage: Stage, path: str) -> None:
    shown = Browser(stage.served).get(f"{path}?customer=acme")
    (form,) = [one for one in shown.forms if not one.action and len(one.values) > 1]
    assert form.values["customer"] == "acme"
    bound = Browser(stage.served, "acme-operator").get(f"{path}?customer=acme")
    assert all("customer" not in one.values for one in bound.forms)


def test_choices_and_filters_keep_the_rest(stage: Stage) -> None:
    browser = Browser(stage.served)
    for path, choice in (("/interventions", "status=all"), ("/breakers", "state=all")):
        assert f"{path}?customer=acme&{choice}" in browser.get(f"{path}?customer=acme").links
    page = browser.get("/dead-letters?kind=run&letter=dl_00000000")
    assert "/dead-letters?kind=run&status=replayed" in page.links
    assert any(one.values.get("kind") == "run" for one in page.forms)


def test_a_bound_key_gets_no_words_or_links_about_others(stage: Stage) -> None:
    bound = Browser(stage.served, "acme-operator")
    assert 'href="/customers"' not in bound.get("/customers/acme").text
    assert "with these filters" not in bound.get("/dead-letters").text
    assert "with these filters" in bound.get("/dead-letters?kind=run").text


def test_limits_by_what_waits_and_by_name(serve: Serve) -> None:
    with serve("sqlite") as served:
        limits = served.harness.client.limits
        limits.declare("crm", capacity=5)
        limits.declare("bq:t", capacity=4, adaptive=True)
        limits.declare("maps", capacity=None, rate=50.0)
        found = served.harness.write(lambda tx: limit_get(tx, "bq:t"))
        assert found is not None
        served.harness.write(lambda tx: limit_quota(tx, found.limit_id))
        browser = Browser(served)
        everything = browser.get("/limits").text
        assert all(f'href="/limits/{one}"' in everything for one in ("crm", "bq%3At", "maps"))
        assert "Rates" in everything
        learned = browser.get("/limits?show=learned").text
        assert 'href="/limits/bq%3At"' in learned
        assert 'href="/limits/crm"' not in learned
        assert "configured 4" in learned
        assert "Nothing waits for a limit." in browser.get("/limits?show=line").text
        assert 'href="/limits/crm"' not in browser.get("/limits?q=ma").text
        page = browser.get("/limits/bq%3At")
        assert "Capacity over time" in page.text
        assert_safe(page)
