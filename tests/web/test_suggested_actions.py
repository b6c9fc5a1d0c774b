"""Suggested actions on pages: each button opens the preview of the same action."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from penstock.client import Client
from penstock.core.ids import encode
from penstock.flows.explain import commands
from penstock.flows.gates.evidence import Observation
from penstock.flows.gates.probe_request import ProbeRequest
from penstock.web.build import ACTIONS
from penstock.web.pages.flows.deeds import DIALOGS, FIELDS, SWITCHES, button_of
from tests.flows.explain.test_suggested_operations import FACT, SUGGESTED, suggested
from tests.kits.client_harness import Harness
from tests.kits.items import ItemStage, fanned
from tests.server.flow_scene import PAST
from tests.server.kit import ServedApi
from tests.server.scene import scene
from tests.web.browser import Browser

ABOUT = "pipeline=nba&partition=2025-12-30"


@pytest.mark.parametrize(
    ("offer", "href"),
    [
        (commands.retry(FACT), "/do/retry-run?run_id=run_1"),
        (commands.retry_items(FACT, "box"), "/do/retry-items?flow_id=flow_1&processor=box"),
        (commands.resume(FACT), "/do/resume?scope=customer&subject=acme"),
        (commands.enable("cfg_1"), "/do/enable-config?config_id=cfg_1"),
        (commands.override(FACT, "raw", "raw.box"),
         f"/do/override?{ABOUT}&phase=raw&dependency=raw.box&customer=acme&expires=4h"),
        (commands.check(FACT, "raw"),
         f"/do/check-gate?{ABOUT}&phase=raw&mode=same_day&customer=acme&flow_id=flow_1"),
        (commands.recheck(FACT, "raw"),
         f"/do/recheck?{ABOUT}&phase=raw&customer=acme&flow_id=flow_1"),
        (commands.replay_from(FACT, "raw"),
         f"/do/replay-flow?{ABOUT}&customer=acme&phase=raw&mode=same_day&config_id=cfg_1"),
        (commands.show_run(FACT), "/runs/run_1"),
        (commands.pending_runs("acme"), "/runs?customer=acme&state=PENDING"),
        (commands.worker("default"), None),
        (commands.create_topic("t"), None),
    ],
)  # fmt: skip
def test_a_suggestion_has_the_button_that_does_the_same(offer: Any, href: str | None) -> None:
    found = button_of(offer.action, offer.arguments, may_operate=True)
    assert (None if found is None else found.href) == href
    seen = button_of(offer.action, offer.arguments, may_operate=False)
    assert seen is None or not seen.href.startswith("/do/")


@pytest.mark.parametrize("function", SUGGESTED, ids=lambda one: one.__name__)
def test_a_dialog_takes_every_argument_of_its_suggestion(function: Any) -> None:
    offer = suggested(function)
    found = button_of(offer.action, offer.arguments, may_operate=True)
    if found is None or not found.href.startswith("/do/"):
        return
    parts = urlsplit(found.href)
    action = next(one for one in ACTIONS if one.name == parts.path.removeprefix("/do/"))
    taken = {*action.fixed, *(one.name for one in action.fields)}
    assert set(parse_qs(parts.query)) <= taken


def test_every_dialog_is_an_action() -> None:
    names = {one.name for one in ACTIONS}
    assert {name for name, _ in (*DIALOGS.values(), *SWITCHES.values())} <= names
    assert "reason" not in FIELDS.values()


class Probes:
    """Counts the probes; every table is complete, except those that are absent."""

    def __init__(self) -> None:
        self.requests: list[ProbeRequest] = []
        self.entered, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()

    def __call__(self, request: ProbeRequest) -> list[Observation]:
        """Answer a request, once allowed to."""
        self.requests.append(request)
        self.entered.set()
        assert self.go_on.wait(60)
        return [
            Observation(key=one.key, looked_at=0, error="the table is locked")
            for one in request.dependencies
        ]


@pytest.fixture
def probes() -> Probes:
    """Return the probes of the server."""
    return Probes()


@pytest.fixture
def probing(harness: Harness, probes: Probes) -> Iterator[ServedApi]:
    """Return a server that can probe data."""
    harness.client = Client(harness.store, actor="tester", probe=probes)
    made = ServedApi(harness)
    yield made
    made.stop()


def test_a_held_gate_is_checked_now_and_shows_each_dependency(
    probing: ServedApi, probes: Probes
) -> None:
    made = scene(probing.harness, "acme")
    browser = Browser(probing)
    page = browser.get(f"/flows/{made.flows.blocked}")
    link = next(one for one in page.links if one.startswith("/do/check-gate?"))
    assert f"flow_id={made.flows.blocked}" in link
    before = probing.harness.counts()
    preview = browser.get(link)
    assert not probes.requests  # a preview never waits for a warehouse
    plain = re.sub(r"</?span[^>]*>", "", preview.text)  # options do not wrap
    assert f"penstock gate check daily {PAST} analytics" in plain
    assert "an.days" in preview.text
    done = browser.submit(preview)
    assert len(probes.requests) == 1
    assert probing.harness.counts() == before
    assert "would decide now: " in done.text
    assert "<td>verdict</td>" in done.text
    assert "<td>an.days</td><td>" in done.text
    assert "the table is locked" in done.text
    again = next(one for one in done.links if one.startswith("/do/recheck?"))
    assert "1 flow is evaluated now" in browser.submit(browser.get(again)).text


def test_a_slow_check_holds_no_place_of_other_requests(probing: ServedApi, probes: Probes) -> None:
    made = scene(probing.harness, "acme")
    browser = Browser(probing)
    page = browser.get(f"/flows/{made.flows.blocked}")
    preview = browser.get(next(one for one in page.links if one.startswith("/do/check-gate?")))
    probes.go_on.clear()
    done: list[Any] = []
    thread = threading.Thread(target=lambda: done.append(browser.submit(preview)))
    thread.start()
    try:
        assert probes.entered.wait(60)
        assert probing.api.app.active == 0
        second = browser.submit(preview)
        assert (second.status, len(probes.requests)) == (429, 1)
    finally:
        probes.go_on.set()
        thread.join(60)
    assert "would decide now: " in done[0].text


def test_a_viewer_gets_no_buttons_that_act(probing: ServedApi) -> None:
    made = scene(probing.harness, "acme")
    page = Browser(probing, "viewer").get(f"/flows/{made.flows.blocked}")
    assert page.status == 200
    assert not [one for one in page.links if one.startswith("/do/")]


def test_another_customers_gate_is_not_checked(probing: ServedApi, probes: Probes) -> None:
    made = scene(probing.harness, "acme")
    browser = Browser(probing, "globex-operator")
    about = f"pipeline=daily&phase=analytics&partition={PAST}&flow_id={made.flows.blocked}"
    done = browser.submit(browser.get(f"/do/check-gate?{about}"))
    assert f"There is no flow {made.flows.blocked}." in done.text
    assert not probes.requests


def test_failed_items_are_retried_from_the_flow_page(served: ServedApi) -> None:
    harness = served.harness
    stage = ItemStage(harness.store, harness.clock, fanned())
    flow_id = encode("flow", stage.open().flow.flow_id)
    stage.list_games([f"g{n}" for n in range(4)])
    stage.step()
    stage.end_items(stage.claim_items(n=4), lambda held: held.item_key in ("g1", "g3"))
    stage.step()
    browser = Browser(served)
    page = browser.get(f"/flows/{flow_id}")
    link = next(one for one in page.links if one.startswith("/do/retry-items?"))
    preview = browser.get(link)
    assert "Retry 2</button>" in preview.text
    assert f"penstock items retry {flow_id}" in preview.text
    before = harness.counts("runs")["runs"]
    done = browser.submit(preview)
    assert "2 failed items run again now" in done.text
    assert "<td>items</td><td>g1, g3</td>" in done.text
    assert harness.counts("runs")["runs"] == before + 2


def test_an_intervention_carries_its_action(served: ServedApi) -> None:
    made = scene(served.harness, "acme")
    number = made.flows.intervention
    item = served.harness.client.interventions.get(number)
    assert (item.action, item.arguments) == ("interventions.resolve", {"intervention_id": number})
    page = Browser(served).get(f"/interventions/{number}")
    assert page.links.count(f"/do/resolve?intervention_id={number}") == 2
    served.harness.client.interventions.resolve(number, "filled")
    closed = served.harness.client.interventions.get(number)
    assert (closed.action, closed.arguments) == (None, {})
