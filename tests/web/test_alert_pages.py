"""Every alert leads to the page that answers it; forms ask for what they need."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.clock import HOUR
from penstock.web.pages.alerts import page_of_alert
from tests.server.kit import ServedApi
from tests.web.browser import Browser


class _Alert:
    """The fields of an alert that its page depends on."""

    def __init__(self, rule: str, kind: str, name: str) -> None:
        self.rule = rule
        self.subject_kind = kind
        self.subject = "0"
        self.pipeline = "nba"
        self.detail = {"name": name}
        self.values: dict[str, Any] = {}


@pytest.mark.parametrize(
    ("rule", "kind", "name", "page"),
    [
        ("dead_letters", "processor", "nba/raw", "/dead-letters?pipeline=nba&processor=raw"),
        ("permission_errors", "processor", "nba/raw", "/runs?pipeline=nba&processor=raw"),
        ("dead_letters", "subscription", "subscription app", "/dead-letters?subscription=app"),
        ("delivery_age", "subscription", "subscription app", "/subscriptions/app"),
        ("slo_budget_spent", "pipeline", "nba", "/trends?pipeline=nba"),
        ("dependency_late", "table", "", "/dependencies?pipeline=nba"),
        ("queue_age", "pool", "default", "/runs?waits=ready"),
        ("failure_rate", "system", "the installation", "/runs?state=FAILED"),
        ("sla_breaches", "system", "the installation", "/runs?sla=missed"),
        ("config_overdue", "system", "the installation", "/system"),
    ],
)
def test_an_alert_leads_to_the_page_that_answers_it(
    shared: ServedApi, rule: str, kind: str, name: str, page: str
) -> None:
    alert: Any = _Alert(rule, kind, name)
    assert page_of_alert(alert) == page
    if not page.startswith("/subscriptions"):
        assert Browser(shared).get(page).status == 200


def test_runs_are_listed_by_their_sla(served: ServedApi) -> None:
    harness = served.harness
    harness.config(sla_breach_threshold_minutes=30)
    harness.clock.advance(HOUR - harness.clock.now() % HOUR)
    harness.tick()
    harness.complete(harness.take())
    browser = Browser(served)
    assert "No run fits" not in browser.get("/runs?sla=met").text
    assert "No run fits" in browser.get("/runs?sla=missed").text


def test_an_empty_form_asks_instead_of_refusing(shared: ServedApi) -> None:
    shown = Browser(shared).get("/do/backfill")
    assert "Enter pipeline." in shown.text
    assert "expected a registered pipeline" not in shown.text
    assert "penstock backfill" not in shown.text
    wrong = Browser(shared).get("/do/backfill?pipeline=unknown")
    assert "expected a registered pipeline" in wrong.text


def test_a_page_that_is_not_there_offers_the_search(shared: ServedApi) -> None:
    shown = Browser(shared).get("/runs/run_00000000")
    assert shown.status == 404
    main = shown.text.partition("<main")[2].partition("</main>")[0]
    assert 'action="/find"' in main
