"""A gate: the report waits until every open shop has sent its receipts."""

from penstock import Pipeline, RunContext, per, same_day
from penstock.testing import FlowTest

shops = Pipeline("shops", partition="day")
load = shops.phase("load")
report = shops.phase("report", after=load)


@load.processor(retry={"max_attempts": 5})
def receipts(run: RunContext) -> None:
    """Copy the receipts of one day."""


@report.processor(needs=[same_day("receipts", expect=per(3, "open_shops"))])
def totals(run: RunContext) -> None:
    """Add them up once each open shop has sent three."""


if __name__ == "__main__":
    with FlowTest(shops, partition="2026-03-02") as day:  # virtual time, no server
        day.expect("receipts", 12)  # four shops are open
        day.arrive("receipts", 7)
        day.arrive("receipts", 12, after="40m")
        first, *_, last = day.run().decisions("report")
        print(first.verdict, *first.warnings)
        print(last.verdict, *last.warnings)
