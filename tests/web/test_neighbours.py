"""Neighbours of a flow and of a run, as links that the keys `[` and `]` follow."""

from __future__ import annotations

import re

from penstock.flows.records import FlowRequest
from tests.server.kit import ServedApi
from tests.server.scene import scene
from tests.web.browser import Browser


def linked(page: str) -> dict[str, str]:
    """Return the links to neighbours by their relation."""
    return dict(re.findall(r'rel="(prev|next)" href="([^"]*)"', page))


def test_a_flow_leads_to_its_neighbour_partitions(served: ServedApi) -> None:
    scene(served.harness, "acme")
    flows = served.harness.client.flows
    made = {}
    for day, mode in ((1, "same_day"), (3, "same_day"), (4, "backfill"), (5, "same_day")):
        partition = f"2026-01-0{day}"
        request = FlowRequest(pipeline="daily", customer="acme", partition=partition, mode=mode)
        made[day] = f"/flows/{flows.trigger(request).flow.flow_id}"
    browser = Browser(served)
    shown = browser.get(made[3]).text
    assert linked(shown) == {"prev": made[1], "next": made[5]}  # not of another mode
    assert "‹ 2026-01-01</a>" in shown
    assert linked(browser.get(made[5]).text) == {"prev": made[3]}
    assert "<kbd>[</kbd> <kbd>]</kbd>" in shown


def test_superseded_flows_are_marked(served: ServedApi) -> None:
    """The list says under the state that a newer generation replaced a flow, and its page why."""
    flows = served.harness.client.flows
    scene(served.harness, "acme")
    request = FlowRequest(pipeline="daily", customer="acme", partition="2026-01-09", force=True)
    old = flows.trigger(request).flow.flow_id
    browser = Browser(served)
    assert "superseded" not in browser.get("/flows?q=2026-01-09").text
    flows.trigger(request)
    shown = browser.get("/flows?q=2026-01-09").text
    assert shown.count("cancelled</span><small>superseded</small>") == 1
    assert "<small>superseded by a new generation that " in browser.get(f"/flows/{old}").text


def test_a_run_leads_to_the_runs_of_its_config(served: ServedApi) -> None:
    made = scene(served.harness, "acme")
    runs = served.harness.client.runs.list(customer="acme", limit=200).items
    config = next(
        one.config_id
        for one in runs
        if one.config_id and sum(other.config_id == one.config_id for other in runs) > 2
    )
    ids = [one.run_id for one in served.harness.client.runs.list(config_id=config).items]
    browser = Browser(served)
    assert linked(browser.get(f"/runs/{ids[1]}").text) == {
        "prev": f"/runs/{ids[2]}",
        "next": f"/runs/{ids[0]}",
    }
    assert "prev" not in linked(browser.get(f"/runs/{ids[-1]}").text)
    alone = next(one for one in runs if one.config_id is None and one.flow_id is None)
    assert linked(browser.get(f"/runs/{alone.run_id}").text) == {}
    assert made.runs


def test_explanations_name_the_zone_of_their_times(served: ServedApi) -> None:
    made = scene(served.harness, "acme")
    page = Browser(served).get(f"/flows/{made.flows.blocked}")
    tree = served.harness.client.diagnostics.why_flow(made.flows.blocked)
    assert any(re.search(r"\d\d:\d\d", cause.text) for cause in tree.causes)
    assert f'<span class="dim">times in {tree.timezone}</span>' in page.text
    ended = next(one for one in served.harness.client.runs.list(state="FAILED").items)
    shown = Browser(served).get(f"/runs/{ended.run_id}").text
    assert re.search(r'ended at <time datetime="[0-9T:Z-]*">', shown)
