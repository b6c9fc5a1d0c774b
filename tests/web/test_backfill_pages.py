"""Pages of backfills: the list, progress by partition, and actions with preview and result."""

from __future__ import annotations

import pytest

from penstock.recovery.backfiller import Backfiller
from penstock.recovery.records import Backfill, BackfillRequest
from tests.kits.flows import Stage
from tests.server.kit import ServedApi
from tests.slos.test_recorder import nba
from tests.web.browser import Browser
from tests.web.test_pages import assert_safe


@pytest.fixture
def made(served: ServedApi) -> Backfill:
    """Return a backfill of three partitions, one in progress."""
    stage = Stage(served.harness.store, served.harness.clock, nba())
    days = ["2025-11-14", "2025-11-15", "2025-11-16"]
    request = BackfillRequest(pipeline="nba", partitions=days, parallelism=1)
    found = stage.client.backfills.start(request).backfill
    assert found is not None
    Backfiller(served.harness.store).run_once()
    return found


def test_no_backfill_yet(served: ServedApi) -> None:
    shown = Browser(served).get("/backfills")
    assert "penstock backfill PIPELINE" in shown.text.replace("</span>", "").replace("<span>", "")
    assert "/do/backfill" in shown.links
    assert "/do/backfill" not in Browser(served, "viewer").get("/backfills").links


def test_progress_by_partition(served: ServedApi, made: Backfill) -> None:
    """The list leads to the backfill, and its partitions to their flows."""
    browser = Browser(served)
    listed = browser.get("/backfills")
    assert_safe(listed)
    assert f"/backfills/{made.backfill_id}" in listed.links
    assert "0 of 3" in listed.text
    shown = browser.get(f"/backfills/{made.backfill_id}")
    assert_safe(shown)
    assert "did not load" not in shown.text
    assert "0 of 3 partitions are done." in shown.text
    assert sum(link.startswith("/flows/flow_") for link in shown.links) == 1
    assert shown.text.count("2025-11-16") >= 1
    running = browser.get(f"/backfills/{made.backfill_id}?state=RUNNING")
    assert running.text.count("<tr data-row>") == 1
    assert browser.get("/backfills/bf_00000000").status == 404


def test_pause_resume_and_cancel(served: ServedApi, made: Backfill) -> None:
    """Each action shows its effect first, changes nothing until it is confirmed, then reports."""
    browser = Browser(served)
    get = served.harness.client.backfills.get
    page = f"/backfills/{made.backfill_id}"
    for change, before, after in (
        ("pause", "RUNNING", "PAUSED"),
        ("resume", "PAUSED", "RUNNING"),
        ("cancel", "RUNNING", "CANCELLED"),
    ):
        link = f"/do/{change}-backfill?backfill_id={made.backfill_id}"
        assert link in browser.get(page).links
        preview = browser.get(link)
        assert_safe(preview)
        assert "2 waiting partitions" in preview.text
        assert get(made.backfill_id).state == before
        done = browser.submit(preview, reason="because")
        assert done.status == 200, done.text
        assert get(made.backfill_id).state == after
    assert (
        f"/do/resume-backfill?again=yes&backfill_id={made.backfill_id}" in browser.get(page).links
    )


def test_a_viewer_only_looks(served: ServedApi, made: Backfill) -> None:
    shown = Browser(served, "viewer").get(f"/backfills/{made.backfill_id}")
    assert shown.status == 200
    assert not [link for link in shown.links if link.startswith("/do/")]
