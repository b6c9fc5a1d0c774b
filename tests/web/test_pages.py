"""Every page: with data and empty, for every role, for a key of one customer, never unsafe."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from penstock.core.ids import encode
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
    """A server with the things of two customers."""

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
    for path in details(stage.acme, stage.dead):
        shown = browser.get(path)
        assert shown.status == 200, (path, shown.text)
        assert "did not load" not in shown.text, path
        assert_safe(shown)


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
    names = ("q", "state", "status", "pipeline", "customer", "error_type", "cursor", "partition")
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


def test_assets_are_named_by_content_and_kept_for_ever(stage: Stage) -> None:
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
