"""Process a month that was never processed: four days at a time, one of which fails at first.

python sales.py
"""

from penstock import BackfillRequest, PermanentError, Pipeline, RunContext, connect, run_pending

sales = Pipeline("sales", partition="day")
load = sales.phase("load")
broken = {"2026-02-13"}


@load.processor
def receipts(run: RunContext) -> None:
    """Copy the receipts of one day."""
    if run.partition in broken:
        raise PermanentError("the file of that day is damaged")


@sales.phase("report", after=load).processor
def totals(run: RunContext) -> None:
    """Add up one day."""


if __name__ == "__main__":
    with connect("sqlite:sales.db") as client:
        client.register([sales])
        request = BackfillRequest(
            pipeline="sales",
            first="2026-02-01",
            last="2026-02-28",
            parallelism=4,
            reason="new table",
        )
        started = client.backfills.start(request)
        print(started.impact.text)
        assert started.backfill is not None, "only a dry run has none"
        backfill_id = started.backfill.backfill_id
        run_pending(client, [sales])
        backfill = client.backfills.get(backfill_id)
        print(backfill.state, backfill.counts)

        broken.clear()  # the file has been repaired
        client.backfills.resume(backfill_id, again=True, reason="repaired")
        run_pending(client, [sales])
        backfill = client.backfills.get(backfill_id)
        print(backfill.state, backfill.counts)
