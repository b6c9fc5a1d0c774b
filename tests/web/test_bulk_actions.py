"""Actions on all that match: bounded steps that a button continues, and numbers to type."""

from __future__ import annotations

import re

import pytest

from penstock.core.clock import HOUR
from penstock.core.ids import encode
from penstock.web.actions import dead_letters_matching, serving
from tests.server.kit import ServedApi
from tests.web.browser import Browser, Shown


def rows(shown: Shown) -> list[tuple[str, str]]:
    """Return the rows of the preview or of the result."""
    plain = re.sub(r"</?(span|time)[^>]*>", "", shown.text)
    return re.findall(r"<tr><td>(.*?)</td><td>(.*?)</td></tr>", plain)


@pytest.fixture
def died(served: ServedApi) -> None:
    """Let five runs of two processors die; the newest was replayed too often."""
    harness = served.harness
    for _ in range(4):
        harness.dead_run()
    harness.dead_run(pipeline="pair", processor="left")
    for _ in range(3):
        (one,) = harness.client.dead_letters.list(processor="left").items
        harness.client.dead_letters.replay(one.dead_letter_id)
        harness.fail(harness.take())


@pytest.mark.usefixtures("died")
def test_a_replay_continues_past_the_first_step_and_past_refused_ones(
    served: ServedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters_matching, "STEP", 1)
    monkeypatch.setattr(dead_letters_matching, "STEPS", 2)
    browser, inbox = Browser(served), served.harness.client.dead_letters
    preview = browser.get("/do/replay-letters?kind=run")
    shown = rows(preview)
    assert ("match", "5") in shown
    assert ("nightly / work", "4") in shown
    assert ("pair / left", "1") in shown
    assert ("checked", "the newest 1") in shown
    assert any(name == "refused" and "already replayed 3 times" in why for name, why in shown)
    assert ("rate", "all at once") in shown
    assert "Replay the newest 2</button>" in preview.text
    done = browser.submit(preview)
    shown = rows(done)
    assert ("replayed", "1") in shown, "the newest is refused, the next one is replayed"
    assert any(name == "refused" and why.startswith("1: already") for name, why in shown)
    assert ("left", "3") in shown
    assert "Replay the next 2</button>" in done.text
    assert inbox.count(kind="run") == 4
    done = browser.submit(done)
    assert ("replayed", "2, 3 so far") in rows(done)
    assert ("left", "1") in rows(done)
    again = browser.submit(done)
    assert ("replayed", "1, 4 so far") in rows(again)
    assert "Replay the next" not in again.text
    assert inbox.count(kind="run") == 1, "only the refused one is open"
    assert "This was done already, once." in browser.submit(done).text


@pytest.mark.usefixtures("died")
def test_a_rate_has_an_end_and_goes_on_where_the_step_before_ended(
    served: ServedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters_matching, "STEP", 3)
    monkeypatch.setattr(dead_letters_matching, "STEPS", 1)
    browser, harness = Browser(served), served.harness
    preview = browser.get("/do/replay-letters?kind=run&rate=0.5")
    ends = dict(rows(preview))
    assert ends["rate"] == "0.5 a second"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", ends["all are sent by"])
    done = browser.submit(preview)
    assert dict(rows(done))["all are sent by"] == ends["all are sent by"]
    browser.submit(done)
    found = harness.client.dead_letters.list(status="replayed", processor="work").items
    sent = [harness.client.runs.get(str(one.resolution).split()[-1]) for one in found]
    first = sent[0].scheduled_time
    assert [(run.scheduled_time - first).total_seconds() for run in sent] == [0, 2, 4, 6]


@pytest.mark.usefixtures("died")
def test_more_than_a_thousand_are_confirmed_by_their_number(
    served: ServedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "TYPED_ABOVE", 4)
    browser, inbox = Browser(served), served.harness.client.dead_letters
    preview = browser.get("/do/replay-letters?kind=run")
    assert "type 5 to confirm" in preview.text
    for typed, problem in (("", "you typed nothing"), ("4", "you typed 4")):
        shown = browser.submit(preview, typed=typed)
        assert f"Type 5 to confirm; {problem}. Nothing was changed." in shown.text
        assert inbox.count(kind="run") == 5
    assert "4 dead letters are replayed" in browser.submit(shown, typed=" 5 ").text
    assert inbox.count(kind="run") == 1


@pytest.mark.usefixtures("died")
def test_all_customers_are_confirmed_by_the_number(served: ServedApi) -> None:
    browser = Browser(served)
    assert "type 5 to confirm" in browser.get("/do/replay-letters").text
    assert "to confirm</label>" not in browser.get("/do/replay-letters?kind=run").text
    assert "to confirm</label>" not in browser.get("/do/replay-letters?customer=acme").text
    bound = Browser(served, "acme-operator")
    assert "to confirm</label>" not in bound.get("/do/replay-letters").text


@pytest.mark.usefixtures("died")
def test_all_that_match_are_discarded_with_a_reason(
    served: ServedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters_matching, "STEP", 1)
    monkeypatch.setattr(dead_letters_matching, "STEPS", 3)
    browser, inbox = Browser(served), served.harness.client.dead_letters
    page = browser.get("/dead-letters?processor=work")
    assert "/do/discard-letters?processor=work" in page.text
    preview = browser.get("/do/discard-letters?processor=work")
    assert rows(preview) == [("match", "4"), ("nightly / work", "4")]
    assert "Discard the newest 3</button>" in preview.text
    assert 'role="alert"' in browser.submit(preview).text, "a reason is needed"
    assert inbox.count(processor="work") == 4
    done = browser.submit(preview, reason="a test")
    assert rows(done) == [("discarded", "3"), ("left", "1"), ("reason", "a test")]
    assert "Discard the next 1</button>" in done.text
    assert ("discarded", "1, 4 so far") in rows(browser.submit(done))
    assert inbox.count(processor="work") == 0
    assert {one.resolution for one in inbox.list(status="discarded").items} == {"a test"}
    viewer = Browser(served, "viewer")
    assert "/do/discard-letters" not in viewer.get("/dead-letters").text
    shown = viewer.get("/do/discard-letters?processor=left")
    form = next(one for one in shown.forms if one.action.startswith("/do/"))
    assert viewer.post(form.action, {**form.values, "reason": "x"}).status == 403
    assert inbox.count(processor="left") == 1


def test_only_those_of_a_time_are_listed_and_replayed(served: ServedApi) -> None:
    harness = served.harness
    harness.dead_run()
    harness.clock.advance(2 * HOUR)
    harness.dead_run()
    (new, old) = harness.client.dead_letters.list().items
    browser = Browser(served)
    page = browser.get("/dead-letters?since=1h")
    assert new.dead_letter_id in page.text
    assert old.dead_letter_id not in page.text
    assert old.dead_letter_id in browser.get("/dead-letters?since=24h").text
    assert old.dead_letter_id in browser.get("/dead-letters?until=1h").text
    assert new.dead_letter_id not in browser.get("/dead-letters?until=1h").text
    for age in ("1h", "24h", "7d"):
        assert f"/dead-letters?since={age}" in page.links
    link = next(one for one in page.links if one.startswith("/do/replay-letters?since=20"))
    harness.clock.advance(HOUR // 10)
    preview = browser.get(link)
    assert ("match", "1") in rows(preview)
    assert "1 dead letter is replayed" in browser.submit(preview).text
    assert harness.client.dead_letters.get(new.dead_letter_id).dead_letter.status == "replayed"
    assert harness.client.dead_letters.get(old.dead_letter_id).dead_letter.status == "open"
    bad = browser.get("/do/replay-letters?since=soon")
    assert "an ISO 8601 time" in bad.text
    assert "Replay 1</button>" not in bad.text


def test_the_page_of_a_dead_letter_lists_its_attempts(served: ServedApi) -> None:
    run_id = served.harness.dead_run()
    dead = encode("run", run_id)
    page = Browser(served).get(f"/dead-letters/{dead}")
    assert ">Attempts<" in page.text
    assert f"/runs/{dead}" in page.links
