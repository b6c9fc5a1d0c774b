"""Flows: trigger a pipeline of two phases, execute it, explain it."""

from penstock import FlowRequest, Pipeline, RunContext, connect, run_pending

nba = Pipeline("nba", partition="day")
raw = nba.phase("raw")


@raw.processor
def boxscores(run: RunContext) -> None:
    """Load the box scores of a day."""


@nba.phase("analytics", after=raw).processor
def ratings(run: RunContext) -> None:
    """Rate the players of a day."""


if __name__ == "__main__":
    with connect("sqlite:flows.db") as client:
        client.register([nba])
        trigger = client.flows.trigger(
            FlowRequest(pipeline="nba", customer="acme", partition="2025-12-31")
        )
        print(trigger.is_new, run_pending(client, [nba]), "run of the first phase")
        print(client.flows.get(trigger.flow.flow_id).flow.state)
        print(client.diagnostics.explain("nba", "2025-12-31", customer="acme").summary)
