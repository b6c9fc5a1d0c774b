"""`penstock complete`: report that a processor which Penstock does not run has ended."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli import output
from penstock.cli.app import App, Command
from penstock.cli.arguments import JSON
from penstock.cli.backends.protocol import Shape
from penstock.cli.backends.protocol_flows import Place, open_flow

SAID = {
    "taken": "Taken by {flow_id}.",
    "opened": "It opened {flow_id}: no flow of this partition and mode was open.",
    "known": "Known before, by {flow_id}: nothing changed.",
    "dead": "The pipeline has no such processor: kept as dead letter {dead_letter_id}.",
}


@click.command("complete", cls=Command)
@click.argument("pipeline")
@click.argument("partition")
@click.argument("processor")
@click.option("--phase", metavar="NAME", help="Its phase, where several have such a processor.")
@click.option("--customer", metavar="ID", help="Whose; the default customer unless said.")
@click.option("--mode", metavar="NAME", help="The flow's mode; the open flow's unless said.")
@click.option("--status", type=click.Choice(["success", "partial", "failed"]), default="success",
              show_default=True, help="How it ended; partial counts as completed.")  # fmt: skip
@click.option("--execution-id", metavar="TEXT", help="Tells a repeat from another execution.")
@click.option("--correlation-id", metavar="TEXT", help="What it belongs to.")
@click.option("--records", type=click.IntRange(0), metavar="N", help="Records processed.")
@click.option("--quality", type=click.FloatRange(0, 1), metavar="N", help="Quality from 0 to 1.")
@click.option("--entities", type=JSON, metavar="JSON|@FILE", help="Changed entities: ids by kind.")
@click.option("--dry-run", is_flag=True, help="Only say which flow would take it.")
@click.pass_obj
def complete(app: App, /, **given: Any) -> None:
    """Report a completion from outside; the cascade goes on from there.

    It goes to the newest open flow of its partition and mode, else it opens the next generation.
    """
    with app.use_cases() as cases:
        if given["dry_run"]:
            place = Place(pipeline=given["pipeline"], partition=given["partition"],
                          customer=given["customer"], mode=given["mode"])  # fmt: skip
            would = _would(cases.flows.explain(place))
            app.emit(would, lambda: click.echo(would["text"]))
            return
        outcome = cases.flows.complete(_message(given))
    app.emit(outcome, lambda: click.echo(SAID[outcome["outcome"]].format(**outcome)))


def _would(told: Shape) -> Shape:
    flow = open_flow(told)
    if flow is not None:
        which = f"{flow['mode']}, generation {flow['generation']}"
        text = f"{flow['flow_id']} ({which}) would take it."
        return {"flow_id": flow["flow_id"], "would_open": False, "text": output.printable(text)}
    return {"flow_id": None, "would_open": True, "text": "It would open the next generation."}


def _message(given: dict[str, Any]) -> Shape:
    quality = given["quality"]
    return {
        "pipeline_template": given["pipeline"],
        "partition": given["partition"],
        "processor_name": given["processor"],
        "phase": given["phase"],
        "customer_id": given["customer"],
        "processing_mode": given["mode"],
        "status": given["status"],
        "execution_id": given["execution_id"],
        "correlation_id": given["correlation_id"],
        "records_processed": given["records"],
        "completeness": None if quality is None else {"quality_score": quality},
        "entities_changed": given["entities"],
    }
