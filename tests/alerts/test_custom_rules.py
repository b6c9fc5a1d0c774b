"""Rules that pipelines declare in Python."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Pipeline
from penstock.alerts.custom.custom_rules import FAILING_RULE, CustomRules
from penstock.alerts.store.measures import conditions_keep
from penstock.core.clock import MINUTE, SECOND
from penstock.core.errors import DeclarationError
from penstock.flows.ladder.store import pass_take
from tests.alerts.kit import open_alert
from tests.alerts.test_drill import evaluator, fired
from tests.kits.client_harness import Harness


def rules(harness: Harness, pipeline: Pipeline) -> list[CustomRules]:
    """Return two replicas of the service."""
    return [CustomRules(harness.store, [pipeline], harness.client) for _ in range(2)]


def advance(harness: Harness, services: list[CustomRules], minutes: int) -> int:
    """Let minutes pass; return how often functions were called."""
    called = 0
    for _ in range(minutes):
        harness.clock.advance(MINUTE)
        called += sum(one.run_once() for one in services)
    return called


def open_keys(harness: Harness, rule: str) -> list[str]:
    """Return the keys of the open alerts of a rule."""
    found = harness.sql("SELECT dedupe_key, rule FROM alerts WHERE state <> 'resolved'")
    return sorted(key for key, name in found if name == rule)


def test_a_rule_in_python(harness: Harness) -> None:
    """It fires once its threshold has held, escalates, resolves, and is listed."""
    pipeline = Pipeline("shop")
    seen: list[float | None] = [1.0]

    @pipeline.alert("stock_low", medium=2, critical=10, hold="2m", message="{value} are missing",
                    command="penstock status")  # fmt: skip
    def stock_low(client: Any) -> float | None:
        """Return what the test says, once it is clear that the client works."""
        client.pauses.list()
        return seen[0]

    services = rules(harness, pipeline)
    assert advance(harness, services, 3) == 3
    assert fired(harness, "stock_low") == []
    seen[0] = 3
    advance(harness, services, 2)
    assert fired(harness, "stock_low") == []
    advance(harness, services, 3)
    (alert,) = fired(harness, "stock_low")
    assert (alert.severity, alert.message, alert.times) == ("MEDIUM", "3 are missing", 1)
    assert (alert.pipeline, alert.command) == ("shop", "penstock status")
    seen[0] = 30
    advance(harness, services, 3)
    assert fired(harness, "stock_low")[0].severity == "CRITICAL"
    evaluator(harness).run_once()
    listed = {one.rule: one for one in harness.client.alerts.rules()}
    assert (listed["stock_low"].source, listed["stock_low"].state) == ("python", "firing")
    seen[0] = None
    advance(harness, services, 1)
    assert fired(harness, "stock_low") == []


def test_a_rule_that_holds_beside_the_evaluator(harness: Harness) -> None:
    """The evaluator of built-in rules leaves the conditions of rules in Python as they are."""
    pipeline = Pipeline("shop")
    pipeline.alert("many_open_flows", high=50, hold="10m")(lambda _: 100)
    services, one = rules(harness, pipeline), evaluator(harness)
    for minutes in (10, 2):
        assert fired(harness, "many_open_flows") == []
        for _ in range(4 * minutes):
            harness.clock.advance(15 * SECOND)
            services[0].run_once()
            one.run_once()
    assert len(fired(harness, "many_open_flows")) == 1


def test_rules_of_the_same_name(harness: Harness) -> None:
    """Each pipeline's rule is called, has its own alert, and fails for itself."""
    shop, store = Pipeline("shop"), Pipeline("store")
    values: dict[str, float] = {"shop": 0, "store": 5}
    shop.alert("stale", high=1)(lambda _: values["shop"])
    store.alert("stale", critical=2)(lambda _: values["store"])
    service = CustomRules(harness.store, [shop, store], harness.client)

    def step() -> list[tuple[str, str | None, str]]:
        harness.clock.advance(MINUTE)
        assert service.run_once() == 2
        found = [*fired(harness, "stale"), *fired(harness, "alert_rule_failing")]
        return sorted((a.rule, a.pipeline, a.severity) for a in found)

    assert step() == [("stale", "store", "CRITICAL")]
    values["shop"] = 1
    assert step() == [("stale", "shop", "HIGH"), ("stale", "store", "CRITICAL")]
    del values["store"]
    failing = ("alert_rule_failing", "store", "MEDIUM")
    assert step() == [failing, ("stale", "shop", "HIGH"), ("stale", "store", "CRITICAL")]
    values["shop"] = 0
    assert step() == [failing, ("stale", "store", "CRITICAL")]
    values["store"] = 0
    assert step() == []
    (listed,) = [one for one in harness.client.alerts.rules() if one.rule == "stale"]
    assert listed.severities == ["HIGH", "CRITICAL"]
    assert "shop: HIGH" in listed.condition
    assert "store: CRITICAL" in listed.condition


def test_a_rule_beside_earlier_releases(harness: Harness) -> None:
    """A name of one pipeline has the counter and the keys of earlier releases: its alert goes on,
    and its condition is held since it began.
    """
    pipeline = Pipeline("shop")
    pipeline.alert("stale", high=1)(lambda _: 5)
    pipeline.alert("slow", high=1, hold="10m")(lambda _: 5)
    for key, rule in (("stale:pipeline:0", "stale"), ("alert_rule_failing:stale", FAILING_RULE)):
        open_alert(harness.store, key, rule=rule, severity="HIGH")
    conditions = [(f"{name}:pipeline:0:custom:HIGH", name) for name in ("stale", "slow")]
    harness.write(lambda tx: conditions_keep(tx, conditions, ()))
    harness.clock.advance(9 * MINUTE)
    services = rules(harness, pipeline)
    advance(harness, services, 1)
    assert open_keys(harness, "stale") == ["stale:pipeline:0"]
    assert fired(harness, "stale", "resolved") == []
    assert open_keys(harness, "slow") == ["slow:pipeline:0"]
    assert fired(harness, "alert_rule_failing") == []
    harness.clock.advance(MINUTE)
    for name in ("stale", "slow"):  # an older process evaluates: this one does not
        assert harness.write(lambda tx, n=name: pass_take(tx, f"alert_rule:{n}", MINUTE))  # type: ignore[misc]
    assert sum(one.run_once() for one in services) == 0


def test_a_name_that_becomes_shared(harness: Harness) -> None:
    """The alert under the key without pipeline is replaced by that of each pipeline, and back."""
    shop, store = Pipeline("shop"), Pipeline("store")
    shop.alert("stale", high=1)(lambda _: 5)
    store.alert("stale", high=1)(lambda _: 0)
    for declared, key in (
        ([shop], "stale:pipeline:0"),
        ([shop, store], "stale:pipeline:0:shop"),
        ([shop], "stale:pipeline:0"),
    ):
        service = CustomRules(harness.store, declared, harness.client)
        advance(harness, [service], 2)
        assert open_keys(harness, "stale") == [key]
        assert harness.sql("SELECT count(*) FROM alert_conditions") == [(1,)]


def test_a_function_that_raises(harness: Harness) -> None:
    """Its error is an alert, which is resolved when the function works again."""
    pipeline = Pipeline("shop")
    broken = [True]

    @pipeline.alert("flaky", high=1, every="15s")
    def flaky(_: Any) -> bool:
        """Raise while it is broken."""
        if broken[0]:
            raise ValueError("no connection")
        return False

    services = rules(harness, pipeline)
    advance(harness, services, 2)
    (alert,) = fired(harness, "alert_rule_failing")
    assert "the alert rule flaky of shop cannot be evaluated: ValueError" in alert.message
    broken[0] = False
    advance(harness, services, 1)
    assert fired(harness, "alert_rule_failing") == []
    assert fired(harness, "flaky") == []


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("Bad Name", {"high": 1}, "lowercase"),
        ("rule", {}, "threshold"),
        ("rule", {"high": "much"}, "high: expected a number"),
        ("rule", {"high": 1, "every": "1s"}, "every: expected 15 s"),
        ("rule", {"high": 1, "hold": "x"}, "hold"),
        ("rule", {"high": 1, "wrong": 1}, "wrong is not an option"),
    ],
)
def test_invalid_declarations(name: str, options: dict[str, Any], words: str) -> None:
    """Errors name the option."""
    with pytest.raises(DeclarationError, match=words):
        Pipeline("shop").alert(name, **options)(lambda _: 1)


def test_declared_twice() -> None:
    """A name is one rule."""
    pipeline = Pipeline("shop")
    pipeline.alert("one", high=1)(lambda _: 1)
    with pytest.raises(DeclarationError, match="declared twice"):
        pipeline.alert("one", high=1)(lambda _: 1)
