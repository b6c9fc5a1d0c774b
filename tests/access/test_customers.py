"""`penstock customers` and its use cases: settings, their journal, what a bound caller may do."""

from __future__ import annotations

import json

import pytest

from penstock.core.errors import Forbidden, InvalidInput, NotFound
from penstock.core.ids import encode
from penstock.runs.admitter import Admitter
from penstock.runs.records import Submission
from tests.kits.client_harness import Harness
from tests.kits.shell import Shell


class TestSettings:
    """Use cases."""

    def test_defaults(self, harness: Harness) -> None:
        """A customer without settings has weight 1 and no maximum."""
        harness.submit("outside", customer="acme")
        found = harness.client.customers.get("acme")
        assert (found.weight, found.concurrency, found.updated_by) == (1, None, None)

    def test_changes_are_journalled(self, harness: Harness) -> None:
        """The journal has actor, old and new value; setting the same again changes nothing."""
        harness.submit("outside", customer="acme")
        client = harness.client.as_actor("ann")
        client.customers.set("acme", weight=3)
        for _ in range(2):
            made = client.customers.set("acme", weight=3, concurrency=5)
        assert (made.weight, made.concurrency, made.updated_by) == (3, 5, "ann")
        entries = harness.sql(
            "SELECT actor, action, detail FROM journal WHERE kind = 'customer' ORDER BY seq"
        )
        assert [tuple(row[:2]) for row in entries] == [("ann", "changed")] * 2
        assert [json.loads(row[2]) for row in entries] == [
            {"weight": {"from": 1.0, "to": 3.0}},
            {"concurrency": {"from": None, "to": 5}},
        ]

    def test_bound_callers(self, harness: Harness) -> None:
        """A bound caller reads its own settings and changes none, not even its own."""
        for name in ("acme", "globex"):
            harness.submit("outside", customer=name)
            harness.client.customers.set(name, concurrency=2)
        bound = harness.client.scoped("acme")
        assert bound.customers.get("acme").concurrency == 2
        assert [one.customer for one in bound.views.customers().items] == ["acme"]
        with pytest.raises(NotFound):
            bound.customers.get("globex")
        with pytest.raises(Forbidden):
            bound.customers.set("acme", concurrency=100)
        with pytest.raises(Forbidden):
            bound.limits.declare("customer:acme", capacity=100)

    def test_bound_callers_submit_under_the_maximum(self, harness: Harness) -> None:
        """Runs that a bound caller submits wait for its customer's maximum."""
        harness.submit("outside", customer="acme")
        harness.client.customers.set("acme", concurrency=1)
        Admitter(harness.store).run_once()
        run_id = harness.client.scoped("acme").runs.submit(Submission(pipeline="outside")).run_id
        Admitter(harness.store).run_once()
        assert harness.client.runs.get(run_id).waits == "limited"

    def test_the_limit_is_a_setting(self, harness: Harness) -> None:
        """The limit of a maximum is listed; it is changed as a setting of the customer."""
        harness.submit("outside", customer="acme")
        harness.client.customers.set("acme", concurrency=4)
        Admitter(harness.store).run_once()
        assert harness.client.limits.get("customer:acme").limit.capacity == 4
        with pytest.raises(InvalidInput, match="penstock customers set acme --concurrency"):
            harness.client.limits.declare("customer:acme", capacity=100)

    def test_why(self, harness: Harness) -> None:
        """The cause of a waiting run is the maximum, with the runs in progress and the command."""
        harness.submit("outside", customer="acme")
        waiting = harness.submit("outside", customer="acme")
        harness.client.customers.set("acme", concurrency=1)
        Admitter(harness.store).run_once()
        for client in (harness.client, harness.client.scoped("acme")):
            found = client.diagnostics.why_run(encode("run", waiting))
            (cause,) = [one for one in found.causes if one.kind == "limit"]
            text = "customer acme may have 1 runs at a time and has that many"
            assert cause.text.startswith(text)
            assert cause.action is not None
            assert "customers set acme --concurrency" in cause.action.command


def test_commands(shell: Shell) -> None:
    """Set, show and list print weight and maximum; --dry-run changes nothing."""
    shell.ok("keys", "create", "ci", "--role", "viewer", "--customer", "acme")
    assert "No customers" not in shell.ok("customers", "list")
    out = shell.ok("customers", "set", "acme", "--weight", "2.5", "--concurrency", "3")
    assert out.startswith("acme · weight 2.5 · 3 runs at a time")
    shell.ok("customers", "set", "acme", "--weight", "9", "--dry-run")
    assert shell.json("customers", "show", "acme")["weight"] == 2.5
    assert "any number of runs" in shell.ok("customers", "set", "acme", "--no-concurrency")
    (listed,) = shell.json("customers", "list")["items"]
    assert (listed["customer_id"], listed["weight"], listed["concurrency"]) == ("acme", 2.5, None)


def test_no_customers(shell: Shell) -> None:
    """An empty list says when a customer exists."""
    result = shell("customers", "list")
    assert "first config, run or key" in result.out + result.err
