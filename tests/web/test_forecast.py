"""When a flow should end: its service level if one is declared, else the deadline of its mode."""

from __future__ import annotations

from penstock.core.clock import MINUTE
from penstock.flows.records import FlowRequest
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.pipelines.mode import Mode
from tests.server.kit import ServedApi
from tests.web.browser import Browser


def opened(served: ServedApi, slo: str | None) -> tuple[str, str]:
    """Trigger a flow, let ten minutes pass; return its page and the overview."""
    live = Mode("live") if slo is None else Mode("live", slo=slo)
    parcels = Pipeline("parcels", partition="day", modes=[live])
    collect = parcels.phase("collect")
    collect.external("load")
    parcels.phase("send", after=collect).external("post")
    client = served.harness.client
    client.register([parcels])
    request = FlowRequest(pipeline="parcels", customer="acme", partition="2026-01-09", mode="live")
    flow = client.flows.trigger(request).flow
    served.harness.clock.advance(10 * MINUTE)
    browser = Browser(served)
    return browser.get(f"/flows/{flow.flow_id}").text, browser.get("/").text


def test_a_deadline_is_not_called_slo(served: ServedApi) -> None:
    """A mode without a service level has a deadline far away: it does not scale the timeline."""
    page, listed = opened(served, None)
    assert "SLO" not in page + listed
    assert "deadline " in page
    assert "deadline " in listed
    timeline = page[page.index("What happened") :]
    assert "deadline " not in timeline[: timeline.index("</section>")]


def test_a_service_level(served: ServedApi) -> None:
    page, listed = opened(served, "1h")
    assert "SLO " in listed
    timeline = page[page.index("What happened") :]
    assert "SLO " in timeline[: timeline.index("</section>")]
