"""A gate: the report waits until every open shop has sent its receipts."""

from penstock import Pipeline, RunContext, per, same_day
from penstock.testing import FlowTest

shops = Pipeline("shops", partition="day")


@shops.phase("report").processor(needs=[same_day("receipts", expect=per(3, "open_shops"))])
def totals(run: RunContext) -> None:
    """Add up the receipts of the day: three from each open shop."""


if __name__ == "__main__":
    with FlowTest(shops, partition="2026-03-02") as day:  # virtual time, no server
        day.arrive("open_shops", 4)  # so 12 receipts are expected
        day.arrive("receipts", 7)
        day.arrive("receipts", 12, after="8m")
        for decision in day.run().decisions("report"):
            print(decision.verdict, *decision.warnings)
