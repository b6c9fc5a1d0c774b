"""One run per picture, then one run over all of them: fan-out and fan-in.

python thumbnails.py
"""

from penstock import (
    FlowRequest,
    PermanentError,
    Pipeline,
    Result,
    RunContext,
    connect,
    run_pending,
    upstream,
)

album = Pipeline("album", partition="day")
listing = album.phase("list")
resizing = album.phase("resize", after=listing)
indexing = album.phase("index", after=resizing)


@listing.processor
def pictures(run: RunContext) -> list[dict[str, object]]:
    """Name the items: in production a listing of a bucket, or a query."""
    return [{"name": f"{run.partition}/{n:02}.png", "bytes": 1_000 * n} for n in range(1, 21)]


@resizing.processor(each=upstream("pictures"), item_key="name", min_items=0.9)
def thumbnail(run: RunContext) -> Result:
    """Make one thumbnail; each has its own attempts, and its own dead letter."""
    if run.item["name"].endswith("13.png"):
        raise PermanentError("not a picture")
    return Result(records=1, bytes=run.item["bytes"] // 10)


@indexing.processor
def index(run: RunContext) -> dict[str, object]:
    """Run once, after the last thumbnail; 90 percent suffice, and it knows what is missing."""
    return {"is_complete": not run.missing, "missing": sorted(run.missing)}


if __name__ == "__main__":
    with connect("sqlite:album.db") as client:
        client.register([album])
        request = FlowRequest(pipeline="album", partition="2026-03-02")
        flow = client.flows.trigger(request).flow
        print(run_pending(client, [album]), "runs")
        counts = client.items.summary(flow.flow_id).items[0]
        print(f"{counts.succeeded} of {counts.total} thumbnails, {counts.failed} failed")
        detail = client.flows.get(flow.flow_id)
        print({phase.phase: phase.state.value for phase in detail.phases})
        print(client.runs.list(processor="index").items[0].result)
