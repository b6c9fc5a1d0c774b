"""The log on a run's page: the newest lines of a running run, older ones by link."""

from __future__ import annotations

from penstock.runs.external.records import NewLogEntry, RunLogReport
from penstock.web.pages.runs.run import LOG_LINES
from tests.server.kit import ServedApi
from tests.server.scene import scene
from tests.web.browser import Browser


def test_the_newest_lines_are_shown_and_older_ones_linked(served: ServedApi) -> None:
    made = scene(served.harness, "acme")
    run_id = made.runs["running"]
    token = made.held("running")["fencing_token"]
    total = LOG_LINES + 30
    lines = [
        NewLogEntry(message=f"step <{n}>", level="WARNING" if n % 10 == 0 else "INFO")
        for n in range(total)
    ]
    served.harness.client.workers.log(run_id, RunLogReport(fencing_token=token, entries=lines))
    browser = Browser(served)
    page = browser.get(f"/runs/{run_id}")
    assert "data-tail" in page.text
    assert f"{LOG_LINES} of {total} lines; new lines appear at the end" in page.text
    assert f"step &lt;{total - 1}&gt;" in page.text
    assert "step &lt;29&gt;" not in page.text
    (older,) = {one for one in page.links if "before=" in one}
    before = browser.get(older)
    assert "step &lt;29&gt;" in before.text
    assert f"step &lt;{total - 1}&gt;" not in before.text
    assert "data-tail" not in before.text
    assert f"/runs/{run_id}" in before.links  # the newest lines
    found = browser.get(f"/runs/{run_id}?log=warnings&q=9")
    assert "step &lt;90&gt;" in found.text
    assert "step &lt;91&gt;" not in found.text


def test_a_viewer_of_another_customer_sees_no_line(served: ServedApi) -> None:
    made = scene(served.harness, "acme")
    page = Browser(served, "globex-viewer").get(f"/runs/{made.runs['running']}")
    assert page.status == 404
