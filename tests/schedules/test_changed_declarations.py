"""A changed declaration is refused if it does not fit the customers and configs that use it."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Pipeline, day, hour, same_day
from penstock.core.errors import Conflict, InvalidInput
from penstock.flows.records import FlowRequest
from tests.kits.client_harness import Harness
from tests.kits.configs import cfg
from tests.kits.plans import plan_of

ORDERS = same_day("orders")
DAILY = "5 6 * * *"


def declare(*needs: Any, phases: int = 2, **options: Any) -> Pipeline:
    """Return the pipeline `sales`, whose first phase has these needs."""

    def work(run: Any) -> None:
        """Never called here."""

    made = Pipeline("sales", warehouse="w", **{"partition": "day", **options})
    before = None
    for number in range(phases):
        phase = made.phase(f"p{number}", after=before)
        phase.processor(f"job{number}", needs=[] if number else list(needs))(work)
        before = phase
    return made


def digest(harness: Harness) -> str:
    """Return the digest of the stored declaration."""
    (found,) = harness.column("SELECT digest FROM pipelines WHERE name = 'sales'")
    return str(found)


class TestCustomers:
    """Needs that count the rows of all customers, on a pipeline that several customers use."""

    @pytest.mark.parametrize("is_owned", [True, False])
    def test_needs_without_an_owner_are_refused(self, harness: Harness, is_owned: bool) -> None:
        """Before, the pipeline had a customer column or no needs; nothing is stored."""
        old = declare(ORDERS, customer_column="customer") if is_owned else declare()
        harness.client.register([old])
        for customer in ("acme", "bravo", "carol"):
            harness.config(customer, pipeline_template="sales", schedule_cron=DAILY)
        with pytest.raises(Conflict) as refused:
            harness.client.register([declare(ORDERS)])
        assert str(refused.value) == (
            "Pipeline sales serves customer acme, and its needs (orders) count the rows of all "
            "customers. For carol, declare customer_column= on the pipeline or on these needs, or "
            "shared=True for data that all customers have in common, and register it again."
        )
        assert digest(harness) == old.digest
        harness.client.register([old])
        shared, owned = same_day("orders", shared=True), same_day("orders", customer_column="shop")
        for fixed in (declare(shared), declare(owned), declare(ORDERS, customer_column="c")):
            harness.client.register([fixed])
            assert digest(harness) == fixed.digest

    def test_needs_that_were_accepted_before(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An earlier release accepted them: another change passes with an alert until a repair."""
        harness.client.register([declare()])
        for customer in ("acme", "bravo"):
            harness.config(customer, pipeline_template="sales", schedule_cron=DAILY)
        with monkeypatch.context() as patched:
            patched.setattr("penstock.pipelines.store.check_change", lambda *_: None)
            harness.client.register([declare(ORDERS)])
        grown = declare(ORDERS, phases=3)
        harness.client.register([grown])
        assert digest(harness) == grown.digest
        (alert,) = harness.client.alerts.list().items
        assert (alert.rule, alert.pipeline, alert.detail["tables"]) == (
            "needs_unowned", "sales", ["orders"],
        )  # fmt: skip
        assert "(orders) count the rows of all customers" in alert.message
        with pytest.raises(Conflict, match=r"orders, returns"):
            harness.client.register([declare(ORDERS, same_day("returns"))])
        harness.client.register([declare(ORDERS, customer_column="c")])
        assert [one.state for one in harness.client.alerts.list().items] in ([], ["resolved"])

    def test_the_only_customer_keeps_the_pipeline(self, harness: Harness) -> None:
        """One customer uses it: it is accepted, and the next customer is refused."""
        harness.client.register([declare()])
        harness.config("bravo", pipeline_template="sales", schedule_cron=DAILY)
        harness.client.register([declare(ORDERS)])
        with pytest.raises(Conflict, match="serves customer bravo"):
            harness.config("acme", pipeline_template="sales", schedule_cron=DAILY)
        harness.config("bravo", pipeline_template="sales", schedule_cron="6 6 * * *")

    def test_another_customer_than_before(self, harness: Harness) -> None:
        """The customer that uses it now takes the place of the one that used it first."""
        harness.client.register([declare(ORDERS)])
        first = harness.config("acme", pipeline_template="sales", schedule_cron=DAILY)
        harness.client.configs.delete(cfg(first))
        harness.client.register([declare()])
        harness.config("bravo", pipeline_template="sales", schedule_cron=DAILY)
        harness.client.register([declare(ORDERS)])
        with pytest.raises(Conflict, match="serves customer bravo"):
            harness.config("acme", pipeline_template="sales", schedule_cron=DAILY)

    def test_open_flows_count(self, harness: Harness) -> None:
        """A customer without a config uses the pipeline while its flow is open."""
        harness.client.register([declare()])
        harness.config("acme", pipeline_template="sales", schedule_cron=DAILY)
        wanted = FlowRequest(pipeline="sales", customer="bravo", partition="2025-11-16")
        opened = harness.client.flows.trigger(wanted).flow
        with pytest.raises(Conflict, match="For bravo, declare"):
            harness.client.register([declare(ORDERS)])
        harness.client.flows.cancel(opened.flow_id)
        harness.client.register([declare(ORDERS)])

    def test_a_config_is_checked_when_it_is_enabled(self, harness: Harness) -> None:
        """Disabled and deleted configs do not count, so enabling one asks again."""
        harness.client.register([declare()])
        harness.config("acme", pipeline_template="sales", schedule_cron=DAILY)
        disabled = harness.config("bravo", pipeline_template="sales", schedule_cron=DAILY)
        deleted = harness.config("carol", pipeline_template="sales", schedule_cron=DAILY)
        harness.client.configs.disable(cfg(disabled))
        harness.client.configs.delete(cfg(deleted))
        harness.client.register([declare(ORDERS)])
        with pytest.raises(Conflict, match="serves customer acme"):
            harness.client.configs.enable(cfg(disabled))

    def test_an_unchanged_declaration_is_not_checked(self, harness: Harness) -> None:
        """What an earlier version accepted keeps running; its next change is refused."""
        old = declare(ORDERS)
        harness.client.register([old])
        harness.config("acme", pipeline_template="sales", schedule_cron=DAILY)
        harness.config("bravo", schedule_cron=DAILY)
        harness.sql(
            "UPDATE configs SET pipeline = (SELECT pipeline FROM pipelines WHERE name = 'sales')"
        )
        harness.client.register([old])
        with pytest.raises(Conflict, match="For bravo, declare"):
            harness.client.register([declare(ORDERS, same_day("rates"))])

    def test_the_index(self, harness: Harness) -> None:
        """The users of a pipeline are found without reading other pipelines' configs."""
        for name in ("pipeline_users", "config_cadences_of_pipeline"):
            plan = plan_of(harness.store, name, pipeline=1)
            assert "configs_of_pipeline" in plan
            assert "SCAN f" not in plan


class TestPartitions:
    """A partition rule under which a schedule would fire several times in one partition."""

    def test_a_larger_partition_is_refused(self, harness: Harness) -> None:
        """The sentence names the configs and the fix; with it the declaration is accepted."""
        harness.client.register([declare(partition=None)])
        hourly = harness.config(pipeline_template="sales", schedule_cron="0 * * * *")
        harness.config("bravo", pipeline_template="sales", schedule_cron="0 * * * *")
        often = harness.config(pipeline_template="sales", schedule_interval_minutes=90)
        harness.config("carol", pipeline_template="sales", schedule_cron=DAILY)
        with pytest.raises(Conflict) as refused:
            harness.client.register([declare(partition=day("d"))])
        assert str(refused.value) == (
            "Pipeline sales would have partitions by day, and the schedules of active configs have "
            f"several occurrences per day: {cfg(hourly)} (0 * * * *), {cfg(often)} (every 1h30m) "
            "and 1 more. To process a partition several times, declare day(..., repeats=True); for "
            "smaller partitions, declare hour(...) or text(...); or change the schedules first: "
            f"penstock configs update {cfg(hourly)} --cron ..."
        )
        for rule in (day("d", repeats=True), hour("h")):
            harness.client.register([declare(partition=rule)])

    def test_inactive_configs_are_checked_when_they_are_enabled(self, harness: Harness) -> None:
        """A disabled config does not count; enabling it is refused as creating it would be."""
        harness.client.register([declare(partition=None)])
        hourly = harness.config(pipeline_template="sales", schedule_cron="0 * * * *")
        harness.client.configs.disable(cfg(hourly))
        harness.client.register([declare(partition=day("d"))])
        with pytest.raises(InvalidInput, match="at most one occurrence per day"):
            harness.client.configs.enable(cfg(hourly))

    def test_what_was_unsafe_before_is_not_refused(self, harness: Harness) -> None:
        """A config that an earlier version kept does not prevent other changes of the rule."""
        harness.client.register([declare(partition=day("d"))])
        harness.config("acme", schedule_cron="0 * * * *")
        harness.sql(
            "UPDATE configs SET pipeline = (SELECT pipeline FROM pipelines WHERE name = 'sales')"
        )
        harness.client.register([declare(partition=day("d"), phases=3)])
        harness.client.register([declare(partition=day("d", offset=-1))])
