"""FlowTest: a flow in memory, on virtual time, with data that is made up."""

import pytest

from penstock import InvalidInput, Mode, Pipeline, Result, RunContext, historical, per, same_day
from penstock.core.clock import HOUR, MINUTE
from penstock.testing.flow import FlowStuck, FlowTest
from penstock.testing.tables import ExpectationNotSet

CALLED: list[str] = []


def _work(run: RunContext) -> Result:
    CALLED.append(f"{run.processor} {run.partition} {run.mode}")
    return Result(records=3)


def shop(**terms: str) -> Pipeline:
    """Load, clean and report, with one external processor."""
    made = Pipeline("shop", partition="day", modes=[Mode("calm", otherwise="WAIT", max_wait="2h")])
    load = made.phase("load")
    clean = made.phase("clean", after=load, **terms)  # type: ignore[arg-type]
    report = made.phase("report", after=clean)
    load.processor("orders", produces="raw.orders")(_work)
    load.external("prices", produces="raw.prices")
    clean.processor(
        "sales",
        needs=[same_day("raw.orders", expect=per(10, "raw.stores"), not_null=["price"],
                        max_age="1h", checks={"no twins": "SELECT 1 FROM twins"})],
        produces="mart.sales",
    )(_work)  # fmt: skip
    report.processor("mail", needs=[historical("mart.sales", days=7, degraded_at=3)])(_work)
    return made


def test_a_flow_runs_to_its_end() -> None:
    """Phases follow each other; what a processor produces is there for the next gate."""
    with FlowTest(shop()) as t:
        t.arrive("raw.stores", rows=4)
        t.arrive("mart.sales", days=7)
        t.run()
        assert t.flow.state == "COMPLETE"
        assert {name: t.state(name) for name in ("load", "clean", "report")} == dict.fromkeys(
            ("load", "clean", "report"), "COMPLETE"
        )
        assert t.elapsed == 3 * MINUTE
        assert [len(t.triggers(name)) for name in ("load", "clean", "report")] == [1, 1, 1]


def test_functions_are_called_only_when_asked_for() -> None:
    """Without `call` no function runs; with it each runs once, in its partition."""
    CALLED.clear()
    for call in (False, True):
        with FlowTest(shop(), call=call, partition="2025-12-31") as t:
            t.arrive("raw.stores", rows=4)
            t.arrive("mart.sales", days=7)
            t.run()
            assert bool(CALLED) is call
    assert [f"{name} 2025-12-31 calm" for name in ("orders", "sales", "mail")] == CALLED


def test_bad_data_in_numbers_and_words() -> None:
    """Empty cells, failed checks, old rows and short counts reach the decision."""
    with FlowTest(shop(), mode="calm") as t:
        t.arrive("raw.stores", rows=4)
        t.arrive("raw.orders", rows=30, filled=0.5, failed=("no twins",), age="20h")
        t.arrive("mart.sales", days=7)
        t.run(upto="10m")
        warning = " ".join(t.decision("clean").warnings)
        assert t.decision("clean").verdict == "WAIT"
    for words in ("30/40 rows", "20.0 hours old", "50 % of required cells", "no twins"):
        assert words in warning


def test_waiting_ends() -> None:
    """What never comes is waited for as long as the mode says, and no longer."""
    with FlowTest(shop(), mode="calm") as t:
        t.arrive("raw.stores", rows=4)
        t.lose("raw.orders")
        t.run(upto="1h")
        assert t.state("clean") == "WAITING"
        t.run(upto="2h")
        assert t.decision("clean").verdict == "FAIL"
        assert t.state("clean") == "BLOCKED"


def test_a_probe_that_fails_is_a_missing_dependency() -> None:
    """The error is the issue; when the probe works again, the flow continues."""
    with FlowTest(shop(), mode="calm") as t:
        t.arrive("raw.stores", rows=4)
        t.arrive("mart.sales", days=7)
        t.lose("raw.orders", error="connection refused")
        t.arrive("raw.orders", after="30m")
        t.run()
        assert "connection refused" in " ".join(t.decisions("clean")[0].warnings)
        assert (t.decision("clean").verdict, t.flow.state) == ("PROCEED", "COMPLETE")


def test_failures_are_retried() -> None:
    """Attempts that fail are repeated after their delay; too long is a timeout."""
    with FlowTest(shop()) as t:
        t.arrive("raw.stores", rows=4)
        t.arrive("mart.sales", days=7)
        t.fail("orders", times=2, error=ConnectionError("gone"))
        t.run()
        assert t.flow.state == "COMPLETE"
        assert t.elapsed > 15 * MINUTE


def test_another_function_in_its_place() -> None:
    """A processor may be replaced, also by a status; a failure of the stand-in counts."""
    with FlowTest(shop(stragglers="30m")) as t:
        t.arrive("raw.stores", rows=4)
        t.arrive("mart.sales", days=7)
        t.set_result("orders", lambda run: {"seen": run.processor})
        t.set_result("sales", "PARTIAL_SUCCESS")
        t.run()
        assert t.phase("clean").state == "DEGRADED"


def test_things_happen_at_their_time() -> None:
    """A call is made when its time has come."""
    seen: list[int] = []
    with FlowTest(shop()) as t:
        t.arrive("raw.stores", rows=4)
        t.arrive("mart.sales", days=7)
        t.at("5h", lambda: seen.append(t.elapsed))
        t.run()
    assert seen == [5 * HOUR]


def test_stuck_tells_its_story() -> None:
    """A flow that does not end in time is an error with every decision in words."""
    with FlowTest(shop(), mode="calm") as t:
        t.arrive("raw.stores", rows=4)
        t.lose("raw.orders")
        with pytest.raises(FlowStuck, match=r"(?s)within 1h.*clean: WAIT.*raw\.orders.*OPEN"):
            t.run(limit="1h")


def test_mistakes_are_named() -> None:
    """Unknown modes and processors are refused with what is known."""
    with pytest.raises(InvalidInput, match="calm"):
        FlowTest(shop(), mode="clam")
    with FlowTest(shop()) as t, pytest.raises(InvalidInput, match="orders"):
        t.fail("order")


def test_same_story_twice() -> None:
    """Nothing in it depends on chance or the clock of the machine."""
    stories = []
    for _ in range(2):
        with FlowTest(shop()) as t:
            t.arrive("raw.stores", rows=4)
            t.arrive("mart.sales", days=2)
            t.fail("orders", times=1)
            t.run()
            stories.append(t.report())
    assert stories[0] == stories[1]


def owned() -> Pipeline:
    """One phase whose need counts the rows of a customer, as many as it has shops."""
    made = Pipeline("owned", partition="day", customer_column="shop")
    needs = [same_day("raw.orders", expect=per(10, "raw.stores"))]
    made.phase("only").processor("sales", needs=needs)(_work)
    return made


def test_a_customer_sees_its_own_rows() -> None:
    """Rows of another customer count neither as data nor as units."""
    with FlowTest(owned(), mode="manual", customer="acme") as t:
        t.arrive("raw.stores", rows=1, customer="acme")
        t.arrive("raw.orders", rows=10, customer="other")
        t.run(upto="1h")
        assert (t.flow.customer_id, t.decision("only").verdict) == ("acme", "FAIL")
        assert "0/10 rows" in t.decision("only").reasons[0]
    with FlowTest(owned(), mode="manual", customer="acme") as t:
        t.arrive("raw.stores", rows=1, customer="acme")
        t.arrive("raw.orders", rows=10, customer="acme")
        t.run()
        assert t.flow.state == "COMPLETE"


def test_an_unset_query_fails_the_test() -> None:
    """An expected count by query is never satisfied by default: the test says which one to set."""
    made = Pipeline("shop", partition="day")
    needs = [same_day("raw.orders", expect="SELECT count(*) FROM calendar")]
    made.phase("only").processor("sales", needs=needs)(_work)
    with FlowTest(made) as t, pytest.raises(ExpectationNotSet, match=r"t\.expect\('raw\.orders'"):
        t.run()
    with FlowTest(made) as t:
        t.expect("raw.orders", 3)
        t.arrive("raw.orders")
        t.run()
        assert t.flow.state == "COMPLETE"


def test_exceptions_of_functions_are_shown(caplog: pytest.LogCaptureFixture) -> None:
    """What a function raised is in the report, in `errors` and in the log of the test."""

    def broken(_run: RunContext) -> None:
        raise KeyError("cents")

    made = Pipeline("shop", partition="day")
    made.phase("only").processor("sales")(broken)
    with FlowTest(made, call=True) as t, caplog.at_level("ERROR"):
        with pytest.raises(FlowStuck, match=r"(?s)sales, attempt 1.*KeyError: 'cents'"):
            t.run(limit="1m")
        assert "KeyError: 'cents'" in t.errors[0]
        assert "KeyError: 'cents'" in caplog.text
