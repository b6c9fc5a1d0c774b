"""The service that evaluates the alert rules that pipelines declare in Python.

It runs where the code is: in scheduler processes that load the pipelines. One process at a time
calls the function of a rule, at most once in its interval. Pipelines may declare rules of the same
name, each of which has its own alert: only then is the pipeline part of its keys, which otherwise
are those of earlier releases, so that both versions may run during an upgrade. A function that
raises opens the alert `alert_rule_failing`, and leaves the alerts of its rule as they are.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from penstock.alerts.built_in.rule import Condition, Rule
from penstock.alerts.catalog import declared_rows
from penstock.alerts.evaluator import alert_of
from penstock.alerts.measures import CUSTOM, Measurement
from penstock.alerts.rules import Evaluation, alert_key, evaluate
from penstock.alerts.severity import SEVERITIES
from penstock.alerts.store.measures import (
    conditions_keep,
    conditions_read,
    open_alerts,
    rules_declare,
)
from penstock.audit.rows import NewAlert
from penstock.audit.store.alerts import alert_open, alert_resolve
from penstock.core.clock import MINUTE
from penstock.core.errors import StoreError
from penstock.db.store import Transactions, Tx
from penstock.flows.ladder.store import pass_take
from penstock.pipelines.declare.alert_rule import DeclaredAlertRule
from penstock.pipelines.declare.pipeline import Pipeline

log = logging.getLogger(__name__)

ACTOR: Final = "alert-rules"
FAILING_RULE: Final = "alert_rule_failing"
PYTHON: Final = "python"


class CustomRules:
    """Service that evaluates the rules of pipelines."""

    name = ACTOR

    def __init__(self, store: Transactions, pipelines: Sequence[Pipeline], client: object) -> None:
        """`client` is the argument passed to the functions of rules."""
        self._store = store
        self._client = client
        self._declared = [(one.name, rule) for one in pipelines for rule in one.alerts]
        self._rules = [_rule(declared) for _, declared in self._declared]
        names = Counter(rule.name for rule in self._rules)
        self._shared = {name for name, count in names.items() if count > 1}
        """Names of rules that several pipelines declare."""

    def run_once(self) -> int:
        """Evaluate the rules that are due; return their number."""
        if not self._declared:
            return 0
        if self._store.write(lambda tx: pass_take(tx, "alert_rules_declared_at", MINUTE)):
            rows = _rows(
                [(one, rule) for (one, _), rule in zip(self._declared, self._rules, strict=True)]
            )
            self._store.write(lambda tx: rules_declare(tx, rows, source=PYTHON))
        done = 0
        for (pipeline, declared), rule in zip(self._declared, self._rules, strict=True):
            owner = f"{pipeline}:" if rule.name in self._shared else ""
            name, every = f"alert_rule:{owner}{rule.name}", declared.every_us
            if self._store.write(lambda tx, n=name, e=every: pass_take(tx, n, e)):  # type: ignore[misc]
                self._evaluate(pipeline, declared, rule)
                done += 1
        return done

    def _evaluate(self, pipeline: str, declared: DeclaredAlertRule, rule: Rule) -> None:
        owner = pipeline if rule.name in self._shared else ""
        key = f"{FAILING_RULE}:{owner and owner + ':'}{rule.name}"
        try:
            value = declared.function(self._client)
            measured = [] if value is None else [_measurement(pipeline, owner, rule, float(value))]
        except StoreError:
            raise
        except Exception as error:
            log.exception("the alert rule %s of %s failed", rule.name, pipeline)
            failing = _failing(pipeline, rule, key, f"{type(error).__name__}: {error}"[:500])
            self._store.write(lambda tx: alert_open(tx, failing))
            return

        def body(tx: Tx) -> None:
            own = _own_keys(pipeline, rule)
            now, known = tx.now(), conditions_read(tx)
            known = {one: at for one, at in known.items() if alert_key(one) in own}
            found = evaluate([rule], measured, known, now)
            opened = open_alerts(tx, [rule.name, FAILING_RULE])
            _apply(tx, found, known, {one: opened[one] for one in own & opened.keys()})

        self._store.write(body)


def _own_keys(pipeline: str, rule: Rule) -> frozenset[str]:
    """Return the keys of a rule's alerts, with and without its pipeline.

    Those of the other form are from before its name was shared, or no longer was.
    """
    key, failing = f"{rule.name}:pipeline:0", f"{FAILING_RULE}:{rule.name}"
    return frozenset({key, f"{key}:{pipeline}", failing, f"{FAILING_RULE}:{pipeline}:{rule.name}"})


def _apply(
    tx: Tx, found: Evaluation, known: Mapping[str, int], opened: Mapping[str, tuple[str, int]]
) -> None:
    """Open and resolve alerts; those under former keys, and of a function that failed, end."""
    since = {key for key, at in known.items() if at <= tx.now()}
    begun = [(key, rule) for key, rule in found.held.items() if key not in since]
    ended = [key for key in known if key not in found.held or key not in since]
    conditions_keep(tx, (), ended)
    conditions_keep(tx, begun, ())
    for key, firing in found.firing.items():
        if opened.get(key, ("", 0))[0] != firing.severity:
            alert_open(tx, alert_of(firing))
    for key in opened.keys() - found.firing.keys():
        alert_resolve(tx, key, ACTOR)


def _rows(rules: Sequence[tuple[str, Rule]]) -> list[tuple[str, str, list[str], str]]:
    """Return the rules as they are stored: one for each name, with the condition of each pipeline
    if they differ.
    """
    found: dict[str, list[tuple[str, Rule]]] = {}
    for pipeline, rule in rules:
        found.setdefault(rule.name, []).append((pipeline, rule))
    rows = []
    for same in found.values():
        made = [declared_rows((rule,))[0] for _, rule in same]
        name, condition, severities, source = made[0]
        if len({row[1] for row in made}) > 1:
            condition = "; ".join(
                f"{one}: {row[1]}" for (one, _), row in zip(same, made, strict=True)
            )
            severities = [s for s in SEVERITIES if any(s in row[2] for row in made)]
        rows.append((name, condition, severities, source))
    return rows


def _rule(declared: DeclaredAlertRule) -> Rule:
    conditions = tuple(
        Condition(metric=CUSTOM, severity=severity, threshold=threshold, hold_us=declared.hold_us)
        for severity, threshold in declared.thresholds
    )
    return Rule(
        name=declared.name,
        conditions=conditions,
        message=declared.message,
        command=declared.command,
        source=PYTHON,
    )


def _measurement(pipeline: str, owner: str, rule: Rule, value: float) -> Measurement:
    return Measurement(
        metric=CUSTOM, value=value, subject_kind="pipeline", name=pipeline, pipeline=pipeline,
        key=owner, facts={"rule": rule.name},
    )  # fmt: skip


def _failing(pipeline: str, rule: Rule, key: str, error: str) -> NewAlert:
    return NewAlert(
        rule=FAILING_RULE,
        dedupe_key=key,
        severity="MEDIUM",
        subject_kind="pipeline",
        subject=0,
        message=f"the alert rule {rule.name} of {pipeline} cannot be evaluated: {error}",
        pipeline=pipeline,
        detail={
            "values": {"rule": rule.name, "error": error},
            "threshold": "an error of its function",
            "fix": "penstock alerts rules",
        },
    )
