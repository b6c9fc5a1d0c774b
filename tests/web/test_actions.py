"""Actions: the preview changes nothing, the deed is done once, and never for another site."""

from __future__ import annotations

import re
import shlex
from typing import Any, NoReturn
from urllib.parse import urlencode

import pytest

from penstock.bus.records import Subscription, Topic
from penstock.cli.root import cli
from penstock.core.errors import StoreUnavailable
from penstock.core.ids import encode
from penstock.web.build import ACTIONS
from tests.kits.client_harness import Harness
from tests.server.kit import ServedApi
from tests.server.scene import scene
from tests.web.browser import Browser


def dead_letter(harness: Harness) -> str:
    """Return the dead dead of a run of acme."""
    scene(harness, "acme")
    return harness.client.dead_letters.list(kind="run").items[0].dead_letter_id


def test_replay_is_previewed_done_once_and_reported(served: ServedApi) -> None:
    dead = dead_letter(served.harness)
    browser = Browser(served)
    before = served.harness.counts()
    preview = browser.get(f"/do/replay-letter?dead_letter_id={dead}")
    assert served.harness.counts() == before
    assert f"penstock dlq replay {dead}" in preview.text
    done = browser.submit(preview)
    assert done.status == 200
    assert f"{dead} is replayed" in done.text
    assert served.harness.client.dead_letters.get(dead).dead_letter.status == "replayed"
    runs = served.harness.counts("runs")
    again = browser.submit(preview)
    assert "This was done already, once." in again.text
    assert served.harness.counts("runs") == runs
    found = served.harness.client.dead_letters.get(dead).dead_letter
    assert found.resolved_by == "key:operator"


def test_an_action_whose_response_was_lost_is_not_repeated(
    served: ServedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is lost after the commit; sending the shown form again changes nothing."""
    scene(served.harness, "acme")
    browser, store = Browser(served), type(served.harness.store)
    preview = browser.get("/do/silence?customer=acme")
    write = store.write

    def commit_then_fail(self: Any, body: Any, **more: Any) -> NoReturn:
        write(self, body, **more)
        raise StoreUnavailable("the connection was lost", ambiguous=True)

    before = served.harness.counts("silences")
    with monkeypatch.context() as lost:
        lost.setattr(store, "write", commit_then_fail)
        shown = browser.submit(preview, reason="x", lasts="1h")
    assert "the connection was lost" in shown.text
    after = served.harness.counts("silences")
    assert after != before
    again = browser.submit(shown, reason="x", lasts="1h")
    assert "This was done already, once." in again.text
    assert served.harness.counts("silences") == after


def test_all_that_match_are_replayed_and_the_refused_are_named(served: ServedApi) -> None:
    dead_letter(served.harness)
    count = served.harness.client.dead_letters.count(kind="run")
    browser = Browser(served)
    preview = browser.get("/do/replay-letters?kind=run&error_type=VALIDATION_ERROR")
    assert "Replay 4</button>" in preview.text
    plain = re.sub(r"</?span[^>]*>", "", preview.text)  # options do not wrap
    assert "penstock dlq replay --kind run --error VALIDATION_ERROR" in plain
    assert served.harness.client.dead_letters.count(kind="run") == count == 6
    done = browser.submit(preview)
    assert "4 dead letters are replayed" in done.text
    assert "<td>refused</td><td>2: " in done.text  # their config forbids overlapping runs
    assert served.harness.client.dead_letters.count(kind="run") == 2


def test_a_preview_that_no_longer_holds_comes_back(served: ServedApi) -> None:
    dead_letter(served.harness)
    browser = Browser(served)
    preview = browser.get("/do/replay-letters?kind=run")
    found = served.harness.client.dead_letters.list(kind="run").items
    for dead in found[1:]:
        served.harness.client.dead_letters.discard(dead.dead_letter_id, "a test")
    renewed = browser.submit(preview)
    assert f"It was {len(found)} when you looked and is 1 now." in renewed.text
    assert served.harness.client.dead_letters.count(kind="run") == 1
    assert "is replayed" in browser.submit(renewed).text


def test_a_preview_holds_ten_minutes(served: ServedApi) -> None:
    dead = dead_letter(served.harness)
    browser = Browser(served)
    preview = browser.get(f"/do/replay-letter?dead_letter_id={dead}")
    served.harness.clock.advance(601_000_000)
    assert "older than ten minutes" in browser.submit(preview).text
    assert served.harness.client.dead_letters.get(dead).dead_letter.status == "open"


@pytest.mark.parametrize(
    ("changed", "headers"),
    [
        ({"form_token": ""}, {}),
        ({"form_token": "0" * 40}, {}),
        ({"preview": ""}, {}),
        ({"preview": "99999999999..0000"}, {}),
        ({"once": ""}, {}),
        ({}, {"Sec_Fetch_Site": "cross-site"}),
        ({}, {"Origin": "https://evil.example"}),
        ({}, {"Content_Type": "text/plain"}),
    ],
)
def test_a_forged_form_is_refused(
    served: ServedApi, changed: dict[str, str], headers: dict[str, str]
) -> None:
    dead = dead_letter(served.harness)
    browser = Browser(served)
    preview = browser.get(f"/do/replay-letter?dead_letter_id={dead}")
    form = next(one for one in preview.forms if one.action.startswith("/do/"))
    shown = browser.post(form.action, {**form.values, **changed}, **headers)
    assert shown.status in (400, 403)
    assert served.harness.client.dead_letters.get(dead).dead_letter.status == "open"


def test_a_confirmation_is_bound_to_its_subject(served: ServedApi) -> None:
    dead = dead_letter(served.harness)
    other = served.harness.client.dead_letters.list(kind="run").items[1].dead_letter_id
    browser = Browser(served)
    preview = browser.get(f"/do/replay-letter?dead_letter_id={dead}")
    assert browser.submit(preview, dead_letter_id=other).status == 403
    assert served.harness.client.dead_letters.get(other).dead_letter.status == "open"


def test_a_refusal_is_shown_beside_the_form(served: ServedApi) -> None:
    made = scene(served.harness, "acme")
    shown = Browser(served).get(f"/do/retry-run?run_id={made.runs['running']}")
    assert shown.status == 200
    assert 'role="alert"' in shown.text
    assert "Retry</button>" not in shown.text


def test_an_override_is_granted_with_a_name_and_a_reason(served: ServedApi) -> None:
    scene(served.harness, "acme")
    browser = Browser(served)
    about = "pipeline=daily&partition=2025-11-10&customer=acme&phase=analytics"
    preview = browser.get(f"/do/override?{about}&dependency=an.days")
    before = len(served.harness.client.overrides.list().items)
    done = browser.submit(preview, reason="the source is gone", expires="2h")
    assert "The override is granted" in done.text
    found = served.harness.client.overrides.list().items
    assert len(found) == before + 1
    granted = max(found, key=lambda one: one.approved_at)
    assert (granted.approved_by, granted.reason) == ("key:operator", "the source is gone")


def test_every_other_action_works(served: ServedApi) -> None:
    made = scene(served.harness, "acme")
    fresh = encode("cfg", served.harness.config("acme").config_id)
    browser = Browser(served)
    for action, query, fields in (
        ("edit-letter", f"dead_letter_id={dead_open(served.harness, 3)}", {"content": '{"a": 1}'}),
        ("discard-letter", f"dead_letter_id={dead_open(served.harness, 4)}", {"reason": "old"}),
        ("retry-run", f"run_id={made.runs['again']}", {}),
        ("cancel-run", f"run_id={made.runs['ready']}", {"reason": "not needed"}),
        ("cancel-flow", f"flow_id={made.flows.spare}", {}),
        ("trigger", "", {"pipeline": "daily", "partition": "2025-11-20", "customer": "acme",
                         "mode": "same_day"}),
        ("revoke", f"override_id={made.flows.override}", {}),
        ("resolve", f"intervention_id={made.flows.intervention}", {"resolution": "filled"}),
        ("approve", f"intervention_id={made.flows.approvable}", {"reason": "known"}),
        ("pause", "scope=customer&subject=acme", {"reason": "a rest"}),
        ("resume", "scope=customer&subject=acme", {}),
        ("start-config", f"config_id={fresh}", {}),
        ("disable-config", f"config_id={made.config}", {"reason": "old"}),
        ("enable-config", f"config_id={made.config}", {}),
        ("acknowledge", f"alert_id={first_alert(served.harness)}", {"note": "mine"}),
        ("silence", f"alert_id={first_alert(served.harness)}", {"reason": "known", "lasts": "1h"}),
        ("end-silence", f"silence_id={made.alerts.silence}", {}),
        ("resolve-alert", f"alert_id={first_alert(served.harness)}", {}),
        ("recheck", f"pipeline=daily&flow_id={made.flows.blocked}&customer=acme", {}),
        ("check-gate", f"pipeline=daily&phase=analytics&flow_id={made.flows.blocked}", {}),
        ("replay-flow", "pipeline=daily&partition=2025-11-10&customer=acme&force=1", {}),
        ("backfill", "", {"pipeline": "daily", "partitions": "2025-10-01 2025-10-02",
                          "customer": "acme"}),
    ):  # fmt: skip
        preview = browser.get(f"/do/{action}?{query}")
        assert preview.status == 200, (action, preview.text)
        if not query:  # the first form asks for the fields, the second shows the preview
            form = next(one for one in preview.forms if one.action == f"/do/{action}")
            assert form.method == "get"
            preview = browser.get(f"/do/{action}?{urlencode({**form.values, **fields})}")
            assert "If you confirm:" in preview.text
        done = browser.submit(preview, **fields)
        assert 'aria-current="step">Done' in done.text, (
            action,
            re.findall(r"role=.alert.*", done.text),
        )


def test_the_chosen_rows_are_replayed_once_and_the_refused_are_named(served: ServedApi) -> None:
    scene(served.harness, "acme")
    ids = [dead_open(served.harness, index) for index in range(6)]
    browser = Browser(served)
    preview = browser.get(f"/do/replay-chosen?ids={'+'.join([*ids, 'dl_00000000'])}")
    assert "Replay 6</button>" in preview.text  # each alone; two of a config may not overlap
    assert f"penstock dlq replay {' '.join(ids)}" in preview.text
    assert "refused: dl_00000000" in preview.text
    assert served.harness.client.dead_letters.count(kind="run") == 6
    done = browser.submit(preview)
    assert "<td>replayed</td><td>4</td>" in done.text
    assert served.harness.client.dead_letters.count(kind="run") == 2
    assert "It was 6 when you looked" in browser.submit(preview).text
    assert served.harness.client.dead_letters.count(kind="run") == 2


def test_chosen_alerts_are_acknowledged_and_chosen_runs_retried(served: ServedApi) -> None:
    made = scene(served.harness, "acme")
    browser = Browser(served)
    open_alerts = served.harness.client.alerts.list(state="open").items
    ids = " ".join(one.alert_id for one in open_alerts).replace(" ", "+")
    browser.submit(browser.get(f"/do/acknowledge-alerts?ids={ids}"), note="all mine")
    assert served.harness.client.alerts.list(state="open").items == []
    found = served.harness.client.alerts.list(state="acknowledged").items
    assert {(one.acknowledged_by, one.note) for one in found} >= {("key:operator", "all mine")}
    shown = browser.submit(browser.get(f"/do/retry-runs?ids={made.runs['again']}"))
    assert "<td>retried</td><td>1</td>" in shown.text


def dead_open(harness: Harness, index: int) -> str:
    """Return an open dead dead of a run."""
    return harness.client.dead_letters.list(kind="run").items[index].dead_letter_id


def first_alert(harness: Harness) -> str:
    """Return an alert that is not resolved."""
    return harness.client.alerts.list(state="open").items[0].alert_id


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.name)
def test_the_command_of_every_action_exists(action: object) -> None:
    from penstock.web.actions.action import Action

    assert isinstance(action, Action)
    fields = [one.name for one in action.fields]
    values = dict.fromkeys((*action.fixed, *fields), "1")
    words = shlex.split(action.command({**values, "scope": "config"}))
    assert words[0] == "penstock"
    command, rest = cli, words[1:]
    while hasattr(command, "get_command"):
        command = command.get_command(None, rest[0])  # type: ignore[arg-type, assignment]
        assert command is not None, words
        rest = rest[1:]
    known = {option for one in command.params for option in one.opts}
    assert {word for word in rest if word.startswith("--")} <= known, words


def test_pause_and_resume_a_subscription(served: ServedApi) -> None:
    """A person pauses a customer's subscription from its page, and resumes it."""
    client = served.harness.client
    client.topics.create(Topic(name="orders"), customer="acme")
    client.subscriptions.declare(Subscription(name="app", topic="orders"), customer="acme")
    browser = Browser(served)
    assert "/subscriptions/app?customer=acme" in browser.get("/topics?customer=acme").text
    for verb, is_paused in (("pause", True), ("resume", False)):
        page = browser.get("/subscriptions/app?customer=acme")
        assert f"/do/{verb}-subscription?name=app&amp;customer=acme" in page.text
        preview = browser.get(f"/do/{verb}-subscription?name=app&customer=acme")
        shown = re.sub("<[^>]*>", "", preview.text)
        assert f"penstock subscriptions {verb} app --customer acme" in shown
        before = client.subscriptions.get("app", customer="acme").subscription.is_paused
        assert before is not is_paused, "a preview changes nothing"
        browser.submit(preview)
        found = client.subscriptions.get("app", customer="acme").subscription
        assert found.is_paused is is_paused
