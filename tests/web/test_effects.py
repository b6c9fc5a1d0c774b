"""Previews of overrides and pauses say what starts, what still waits and what is held."""

from __future__ import annotations

import pytest

from penstock.core.errors import InvalidInput
from penstock.flows.gates.records import ModeChanges, OverrideScope, WhatIfRequest
from penstock.web.actions import pauses, serving
from tests.server.kit import ServedApi
from tests.server.scene import scene
from tests.web.browser import Browser
from tests.web.test_bulk_actions import rows

ABOUT = "pipeline=daily&partition=2025-11-10&customer=acme"


def test_an_override_shows_which_gates_start(served: ServedApi) -> None:
    scene(served.harness, "acme")
    browser = Browser(served)
    shown = browser.get(f"/do/override?{ABOUT}&phase=analytics&dependency=an.days")
    assert dict(rows(shown))["analytics, backfill"].startswith("starts, degraded: ")
    assert "1 waiting gate starts its runs now; it and later phases are marked" in shown.text
    shown = browser.get(f"/do/override?{ABOUT}")
    assert dict(rows(shown))["analytics, backfill"].startswith("starts, degraded: ")
    shown = browser.get("/do/override?pipeline=daily&partition=2025-11-11&customer=acme")
    assert "No gate of the partition waits now." in shown.text
    bound = Browser(served, "acme-operator").get(
        f"/do/override?{ABOUT}".replace("&customer=acme", "")
    )
    assert dict(rows(bound))["analytics, backfill"].startswith("starts, degraded: ")


def test_an_override_of_another_table_starts_nothing(served: ServedApi) -> None:
    scene(served.harness, "acme")
    (flow,) = served.harness.client.flows.list(
        pipeline="daily", partition="2025-11-10", customer="acme", only="open"
    ).items

    def tried(**scope: str) -> list[tuple[str, str]]:
        request = WhatIfRequest(
            pipeline="daily", flow_id=flow.flow_id, override=OverrideScope(**scope)
        )
        items = served.harness.client.gates.what_if(request).items
        return [(str(one.then), str(one.now)) for one in items]

    assert tried(dependency="other.table") == [("FAIL", "FAIL")]
    assert tried(phase="raw", dependency="an.days") == [("FAIL", "FAIL")]
    assert tried(phase="analytics") == [("FAIL", "PROCEED_DEGRADED")]
    with pytest.raises(InvalidInput, match="at least one"):
        served.harness.client.gates.what_if(WhatIfRequest(pipeline="daily", changes=ModeChanges()))


@pytest.mark.parametrize(
    ("query", "whom", "configs"),
    [
        ("scope=all", "all customers", "2"),
        ("scope=customer&subject=acme", "customer acme", "2"),
        ("scope=pipeline&subject=nightly", "all customers of nightly", "1"),
    ],
)
def test_a_pause_shows_what_it_holds(
    served: ServedApi, query: str, whom: str, configs: str
) -> None:
    scene(served.harness, "acme")
    counts = served.harness.client.runs.counts(pipeline="nightly" if "nightly" in query else None)
    shown = rows(Browser(served).get(f"/do/pause?{query}"))
    found = dict(shown)
    assert (found["for"], found["until"]) == (whom, "it is resumed")
    assert found["pending runs held"] == str(counts.pending)
    assert found["running runs that continue"] == str(counts.running + counts.claimed)
    assert found["configs held"] == configs
    starts = [text for name, text in shown if name == "next start"]
    assert len(starts) == int(configs)
    assert "nightly of acme (cfg_" in starts[0]


def test_a_pause_of_a_config_shows_its_next_start(served: ServedApi) -> None:
    made = scene(served.harness, "acme")
    config = served.harness.client.configs.get(made.config)
    found = dict(rows(Browser(served).get(f"/do/pause?scope=config&subject={made.config}")))
    assert found["for"] == f"config {made.config}"
    assert found["its next start"] == f"{config.next_run_time:%Y-%m-%d %H:%M} UTC"


def test_a_pause_of_all_is_confirmed_by_the_number(served: ServedApi) -> None:
    scene(served.harness, "acme")
    browser, client = Browser(served), served.harness.client
    before = len(client.pauses.list())
    preview = browser.get("/do/pause?scope=all")
    assert "type 2 to confirm" in preview.text
    wrong = browser.submit(preview, reason="a test", typed="3")
    assert "Type 2 to confirm; you typed 3. Nothing was changed." in wrong.text
    assert len(client.pauses.list()) == before
    assert "Nothing new starts" in browser.submit(wrong, reason="a test", typed="2").text
    assert len(client.pauses.list()) == before + 1
    preview = browser.get("/do/resume?scope=all")
    assert "type all to confirm" in preview.text
    assert "Type all to confirm" in browser.submit(preview, reason="over").text
    assert "Runs start again." in browser.submit(preview, reason="over", typed="All").text
    assert len(client.pauses.list()) == before


def test_a_pause_of_many_configs_is_confirmed_by_their_number(
    served: ServedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene(served.harness, "acme")
    monkeypatch.setattr(serving, "TYPED_ABOVE", 1)
    monkeypatch.setattr(pauses, "CONFIGS_PAGE", 1)
    monkeypatch.setattr(pauses, "CONFIGS_MAX", 2)
    shown = Browser(served).get("/do/pause?scope=customer&subject=acme")
    assert ("configs held", "2 or more") in rows(shown)
    assert "type 2 to confirm" in shown.text
