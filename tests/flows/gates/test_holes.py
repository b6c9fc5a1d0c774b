"""Four ways in which a gate once let missing data pass, from declaration to verdict.

The data lies in a real file and is queried by the real probes, on both engines.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock import Pipeline, per, same_day
from penstock.client import Client
from penstock.core.clock import parse_iso
from penstock.core.errors import Conflict
from penstock.db.store import Store
from penstock.flows.orchestrator import Orchestrator
from penstock.flows.records import FlowRequest, FlowTrigger
from penstock.probes.runner import ProbeRunner
from penstock.runs.records import Submission
from penstock.schedules.scheduler import Scheduler
from penstock.testing.clock import VirtualClock
from tests.kits.configs import create_config
from tests.kits.flows import chain, work

DAY = "2025-11-16"
CONFIG = {
    "pipeline_template": "sales",
    "provider": "p",
    "domain": "d",
    "schedule_cron": "5 6 * * *",
}


class Shop:
    """A pipeline of one gated phase over a file with orders and open shops."""

    def __init__(self, store: Store, clock: VirtualClock, path: Path) -> None:
        self.path = path
        self.store = store
        self.probes = ProbeRunner(clock, names={"shop": f"sqlite:{path}"})
        self.client = Client(store, actor="tester", probe=self.probes.probe)
        with closing(sqlite3.connect(path)) as db, db:
            for name in ("orders", "open_shops", "returns", "prices", "stock"):
                db.execute(f"CREATE TABLE {name} (day, customer, cents)")

    def fill(self, table: str, customer: str, rows: int, day: str = DAY) -> None:
        """Add rows of a customer."""
        with closing(sqlite3.connect(self.path)) as db, db:
            row = (day, customer, 1)
            db.executemany(f"INSERT INTO {table} VALUES (?, ?, ?)", [row] * rows)

    def declare(self, *needs: Any, **options: Any) -> None:
        """Register the pipeline."""
        made = Pipeline("sales", partition="day", warehouse="shop", **options)
        made.phase("total").processor("totals", needs=list(needs))(work)
        self.client.register([made])

    def trigger(self, customer: str, **fields: Any) -> FlowTrigger:
        """Open a flow, and let the orchestrator decide its gate."""
        given = {"mode": "manual", "partition": DAY, **fields}
        request = FlowRequest(pipeline="sales", customer=customer, **given)
        opened = self.client.flows.trigger(request)
        Orchestrator(self.store, self.probes.probe).run_once()
        return opened

    def verdict(self, customer: str) -> tuple[str, str]:
        """Return the last verdict about a customer and its reason."""
        (found, *_) = self.client.gates.decisions("sales", customer=customer).items
        return found.verdict, found.reasons[0]


@pytest.fixture
def shop(store: Store, clock: VirtualClock, tmp_path: Path) -> Iterator[Shop]:
    """Return an empty shop."""
    made = Shop(store, clock, tmp_path / "shop.db")
    yield made
    made.probes.close()


class TestAnotherCustomersRows:
    """A gate counts the rows of its customer, or refuses to serve a second one."""

    def test_rows_and_references_are_those_of_the_customer(self, shop: Shop) -> None:
        """Without rows of its own a customer fails, however many another customer has."""
        shop.declare(same_day("orders", expect=per(3, "open_shops")), customer_column="customer")
        shop.fill("open_shops", "acme", 2)
        shop.fill("orders", "acme", 6)
        shop.fill("open_shops", "bravo", 1)
        shop.trigger("acme")
        shop.trigger("bravo")
        assert shop.verdict("acme")[0] == "PROCEED"
        assert shop.verdict("bravo") == (
            "FAIL",
            "Absent: orders (0/3 rows (0 %)). Mode manual does not wait.",
        )

    def test_a_check_without_a_flow_sees_the_customers_rows(self, shop: Shop) -> None:
        """`gate check` for a bound customer counts its rows only."""
        shop.declare(same_day("orders"), customer_column="customer")
        shop.fill("orders", "acme", 6)
        shop.trigger("acme")
        shop.trigger("bravo")
        for customer, rows in (("acme", 6), ("bravo", 0)):
            scoped = shop.client.scoped(customer)
            (found,) = scoped.gates.check("sales", "total", partition=DAY).dependencies
            assert found.found_rows == rows

    def test_a_second_customer_is_refused_with_the_fix(self, shop: Shop) -> None:
        """Wherever it first uses the pipeline; the first customer continues."""
        shop.declare(same_day("orders"))
        shop.fill("orders", "acme", 6)
        shop.trigger("acme")
        fix = "customer_column= .*shared=True"
        with pytest.raises(Conflict, match=fix):
            shop.trigger("bravo")
        with pytest.raises(Conflict, match=fix):
            shop.client.previews.trigger(FlowRequest(pipeline="sales", customer="bravo"))
        with pytest.raises(Conflict, match=fix):
            shop.client.runs.submit(Submission(pipeline="sales", customer="bravo"))
        with pytest.raises(Conflict, match=fix):
            create_config(shop.client, "bravo", CONFIG)
        shop.client.register([chain("plain", "plainer", name="other")])
        shop.client.flows.trigger(FlowRequest(pipeline="other", customer="bravo"))
        bound = shop.client.scoped("bravo")
        with pytest.raises(Conflict, match=fix) as refused:
            bound.gates.check("sales", "total", partition=DAY)
        assert "acme" not in str(refused.value)
        with pytest.raises(Conflict, match="serves another customer") as refused:
            bound.runs.submit(Submission(pipeline="sales", customer="bravo"))
        assert "acme" not in str(refused.value)
        with pytest.raises(Conflict, match="serves another customer") as refused:
            bound.flows.trigger(FlowRequest(pipeline="sales", customer="bravo"))
        assert "acme" not in str(refused.value)
        shop.trigger("acme", force=True)
        shop.declare(same_day("orders", shared=True))
        shop.trigger("bravo")
        assert shop.verdict("bravo")[0] == "PROCEED"

    def test_the_refusal_names_both_customers(self, shop: Shop) -> None:
        """To callers that are not bound to one of them; a similar name may be a typing error."""
        shop.declare(same_day("orders"))
        shop.trigger("default")
        with pytest.raises(Conflict) as refused:
            create_config(shop.client, "defualt", CONFIG)
        assert str(refused.value).startswith(
            "Pipeline sales serves customer default, and its needs (orders) count the rows of all "
            "customers. Did you mean 'default'? For defualt, declare customer_column= "
        )
        with pytest.raises(Conflict) as refused:
            shop.trigger("bravo")
        assert "customers. For bravo, declare" in str(refused.value)


class TestEmptyReference:
    """Nothing to count by is missing, not complete."""

    @pytest.mark.parametrize(("zero", "verdict"), [("missing", "FAIL"), ("off_day", "PROCEED")])
    def test_no_open_shops(self, shop: Shop, zero: str, verdict: str) -> None:
        shop.declare(same_day("orders", expect=per(3, "open_shops", zero=zero)))
        shop.trigger("acme")
        found, reason = shop.verdict("acme")
        assert found == verdict
        if verdict == "FAIL":
            assert "orders (0 expected because open_shops has no rows)" in reason

    @pytest.mark.parametrize(
        ("query", "verdict", "words"),
        [
            ("SELECT 0", "PROCEED", "Complete"),
            ("SELECT NULL", "FAIL", "returned NULL"),
            ("SELECT sum(cents) FROM open_shops WHERE day = :partition", "FAIL", "returned NULL"),
        ],
    )
    def test_a_query_returns_zero_or_nothing(
        self, shop: Shop, query: str, verdict: str, words: str
    ) -> None:
        shop.declare(same_day("orders", expect=query))
        shop.trigger("acme")
        found, reason = shop.verdict("acme")
        assert found == verdict
        assert words in reason


def test_one_percent_of_one_need(shop: Shop) -> None:
    """Ten of a thousand rows do not pass because three other needs are full."""
    others = [same_day(name) for name in ("returns", "prices", "stock")]
    shop.declare(same_day("orders", expect=1_000), *others)
    for name in ("returns", "prices", "stock"):
        shop.fill(name, "acme", 5)
    shop.fill("orders", "acme", 10)
    shop.trigger("acme")
    found, reason = shop.verdict("acme")
    assert found == "FAIL"
    assert "orders (10/1000 rows (1 %))" in reason


class TestEveningSchedule:
    """An evening occurrence processes the day of its scheduled time, in the config's time zone."""

    def test_the_partition_of_an_evening(self, shop: Shop, clock: VirtualClock) -> None:
        """At 19:47 in New York it is tomorrow in UTC; the partition is the day in New York."""
        shop.declare(same_day("orders"))
        shop.fill("orders", "acme", 1, "2025-11-17")
        clock.advance_to(parse_iso("2025-11-17T12:00:00Z"))
        fields = {**CONFIG, "schedule_cron": "47 19 * * *", "timezone": "America/New_York"}
        create_config(shop.client, "acme", fields)
        clock.advance_to(parse_iso("2025-11-18T00:48:00Z"))
        Scheduler(shop.store).run_once()
        Orchestrator(shop.store, shop.probes.probe).run_once()
        (flow,) = shop.client.flows.list().items
        assert (flow.partition, flow.mode) == ("2025-11-17", "daily")
        assert shop.verdict("acme")[0] == "PROCEED"
