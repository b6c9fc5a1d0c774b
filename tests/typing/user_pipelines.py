"""User code: declare pipelines, write processors, test a flow. Type checkers must understand it.

`test_types.py` checks this file with `mypy --strict` and imports it. `assert_type` states the type
of an expression; a line with `type: ignore` must be an error of that kind.
"""

# ruff: noqa: ARG001 - only the signatures matter

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, assert_type

import penstock
from penstock import (
    Collect,
    Dependency,
    Mode,
    PermanentError,
    Phase,
    Pipeline,
    Result,
    RunContext,
    historical,
    optional,
    per,
    register_error,
    same_day,
)
from penstock.testing import FlowStuck, FlowTest, VirtualClock

shop = Pipeline(
    "shop",
    partition="day",
    timezone="America/New_York",
    warehouse="duckdb:shop.duckdb",
    parameters={"type": "object"},
    modes=[Mode("late", proceed_at=90, slo="30m")],
)
load = shop.phase("load", slo=timedelta(minutes=30))
clean = shop.phase("clean", after=load, stragglers="20m")
report = shop.phase("report", after=[load, "clean"], on_late_data="rerun")

assert_type(shop, Pipeline)
assert_type(load, Phase)
assert_type(shop.phases, tuple[Phase, ...])
assert_type(shop.digest, str)
assert_type(same_day("raw.orders", expect=per(10, "raw.stores"), max_age="24h"), Dependency)
assert_type(historical("mart.sales", days=7, degraded_at=3), Dependency)
assert_type(optional("raw.weather"), Dependency)


@load.processor
def orders(run: RunContext) -> Result:
    """Read everything that a context offers."""
    assert_type(run.parameters, Mapping[str, Any])
    assert_type(run.partition, str)
    assert_type(run.mode, str | None)
    assert_type(run.run_id, str)
    assert_type(run.customer_id, str)
    assert_type(run.attempt, int)
    assert_type(run.deadline, datetime)
    assert_type(run.is_cancelled, bool)
    assert_type(run.secret("crm"), str)
    assert_type(run.log, logging.LoggerAdapter[logging.Logger])
    with run.stage("extract") as nothing:
        assert_type(nothing, None)
    run.progress(50, "extract", extracted=10)
    run.entities("players", [1630567, "x"])
    run.records += 1
    run.check()
    run.progress("half")  # type: ignore[arg-type]
    run.nonsense  # type: ignore[attr-defined]  # noqa: B018
    if not run.parameters:
        raise PermanentError("no parameters")
    return Result(summary={"rows": 1}, records=1, bytes=100, status="PARTIAL_SUCCESS")


@clean.processor(
    "sales", needs=[same_day("raw.orders")], timeout=timedelta(minutes=5), runs="async", retry={}
)
async def sales(run: RunContext) -> Mapping[str, Any]:
    """An async processor; decorators keep the function's type."""
    return {"rows": 1}


@report.processor(collect=Collect(30, "5s"))
def mail(runs: list[RunContext]) -> list[Result]:
    """Handle several runs at once."""
    return [Result() for _ in runs]


def decorated(run: RunContext) -> None:
    """Decorators return functions with their own signature."""
    assert_type(orders(run), Result)
    mail(run)  # type: ignore[arg-type]


async def awaited(run: RunContext) -> None:
    """An async processor stays async."""
    assert_type(await sales(run), Mapping[str, Any])


def mistakes() -> None:
    """Type checkers reject wrong declarations."""
    Pipeline("shop", time_zone="UTC")  # type: ignore[call-arg]
    Pipeline("shop", partition=7)  # type: ignore[arg-type]
    shop.phase("x", after=7)  # type: ignore[arg-type]
    shop.phase("x", straglers="20m")  # type: ignore[call-arg]
    load.processor(runs="fiber")  # type: ignore[call-overload]
    load.processor(needs=["raw.orders"])  # type: ignore[list-item]
    same_day("raw.orders", max_agee="24h")  # type: ignore[call-arg]
    Mode("late", proceed_at="90")  # type: ignore[arg-type]
    Result(sumary={"rows": 1})  # type: ignore[call-arg]
    penstock.run_pendin  # type: ignore[attr-defined]  # noqa: B018


class CrmDown(Exception):
    """An error of the user's own."""


def errors() -> None:
    """Errors are typed as well."""
    register_error(CrmDown, "SERVICE_UNAVAILABLE")
    error = penstock.InvalidInput("field", "a number", "x")
    assert_type(error.field, str)
    assert_type(error.code, str)
    assert_type(error.message, str)


def flow_test() -> None:
    """The test kit."""
    with FlowTest(shop, mode="late", start="2025-11-15T15:30:00Z") as t:
        assert_type(t, FlowTest)
        t.arrive("raw.orders", rows=25, after="45m", filled=0.9)
        t.fail("sales", times=3, error=CrmDown("down"))
        t.set_result("sales", lambda run: Result(records=run.attempt))
        assert_type(t.run(upto="2h"), FlowTest)
        assert_type(t.state("clean"), str)
        assert_type(t.flow.generation, int)
        assert_type(t.decision("clean").reasons, tuple[str, ...])
        assert_type(t.elapsed, int)
        assert_type(t.report(), str)
        assert_type(t.clock, VirtualClock)
        t.arrive("raw.orders", row=25)  # type: ignore[call-arg]
        t.fail(sales)  # type: ignore[arg-type]
        try:
            t.run(limit="1h")
        except FlowStuck as stuck:
            assert_type(stuck, FlowStuck)
