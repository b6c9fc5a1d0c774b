"""`penstock complete`: report the completion of a processor that Penstock does not run."""

from __future__ import annotations

import sys
from typing import Any

import click

from penstock.cli import output
from penstock.cli.app import App, Command
from penstock.cli.arguments import JSON
from penstock.client import UseCaseGroups
from penstock.core.fields import did_you_mean
from penstock.flows.explain.records import FlowExplanation
from penstock.flows.records import Completeness, CompletionReport

_OUTCOMES = {
    "taken": "Recorded in {flow_id}.",
    "opened": "Opened {flow_id}: no flow of this partition and mode was open.",
    "known": "Already recorded in {flow_id}: nothing changed.",
    "dead": "The pipeline has no such processor: stored as dead letter {dead_letter_id}.{hint}",
}
UNKNOWN = 1
"""Exit code of a completion that no flow can record."""


@click.command("complete", cls=Command)
@click.argument("pipeline")
@click.argument("partition")
@click.argument("processor")
@click.option(
    "--phase", metavar="NAME", help="Phase of the processor. Required if several phases have it."
)
@click.option("--customer", metavar="ID", help="Customer id. Defaults to `default`.")
@click.option("--mode", metavar="NAME", help="Mode of the flow; the open flow's mode if omitted.")
@click.option("--status", type=click.Choice(["success", "partial", "failed"]), default="success",
              show_default=True, help="Result; partial counts as completed.")  # fmt: skip
@click.option("--execution-id", metavar="TEXT", help="Id of the execution, to ignore duplicates.")
@click.option("--correlation-id", metavar="TEXT", help="Correlation id to record.")
@click.option("--records", type=click.IntRange(0), metavar="N", help="Number of processed records.")
@click.option(
    "--quality", type=click.FloatRange(0, 1), metavar="N", help="Quality score from 0 to 1."
)
@click.option("--entities", type=JSON, metavar="JSON|@FILE",
              help="Changed entities: an object of id lists by kind.")  # fmt: skip
@click.option(
    "--dry-run", is_flag=True, help="Show which flow would record the completion; change nothing."
)
@click.pass_obj
def complete(app: App, /, **given: Any) -> None:
    """Report the completion of a processor that Penstock does not run.

    The newest open flow of the partition and mode records it and continues with the next phase. If
    no flow is open, the next generation is opened, unless the report repeats one: by its execution
    id, or, without one, if a COMPLETE or DEGRADED flow recorded the same in the last ten minutes
    and its partitions may not repeat. A completion of an unknown processor is stored as a dead
    letter, and the exit code is 1.
    """
    with app.connect() as client:
        hint = ""
        if given["dry_run"]:
            known = _processors(client, given["pipeline"])
            if given["processor"] not in known:
                hint = did_you_mean(given["processor"], known) or ""
                text = (
                    f"The pipeline has no such processor: nothing would record it. {hint}".strip()
                )
                app.emit({"flow_id": None, "would_open": False, "text": text},
                         lambda: click.echo(text))  # fmt: skip
                sys.exit(UNKNOWN)
            explanation = client.diagnostics.explain(
                given["pipeline"],
                given["partition"],
                customer=given["customer"],
                mode=given["mode"],
            )
            would = _would(explanation)
            app.emit(would, lambda: click.echo(would["text"]))
            return
        receipt = client.flows.complete(_report(given))
        if receipt.outcome == "dead":
            hint = did_you_mean(given["processor"], _processors(client, given["pipeline"])) or ""
    text = _OUTCOMES[receipt.outcome]
    app.emit(
        receipt,
        lambda: click.echo(
            text.format(
                flow_id=receipt.flow_id,
                dead_letter_id=receipt.dead_letter_id,
                hint=f" {hint}" if hint else "",
            )
        ),
    )
    if receipt.outcome == "dead":
        sys.exit(UNKNOWN)


def _processors(client: UseCaseGroups, pipeline: str) -> list[str]:
    """Return the names of a pipeline's processors."""
    return [one.processor for one in client.views.pipeline(pipeline).processors]


def _would(explanation: FlowExplanation) -> dict[str, Any]:
    flow = explanation.open_flow
    if flow is not None:
        text = f"{flow.flow_id} ({flow.mode}, generation {flow.generation}) would record it."
        return {
            "flow_id": flow.flow_id,
            "would_open": False,
            "text": output.escape_control(text),
        }
    return {"flow_id": None, "would_open": True, "text": "It would open the next generation."}


def _report(given: dict[str, Any]) -> CompletionReport:
    quality = given["quality"]
    return CompletionReport(
        pipeline=given["pipeline"],
        partition=given["partition"],
        processor=given["processor"],
        phase=given["phase"],
        customer=given["customer"],
        mode=given["mode"],
        status=given["status"],
        execution_id=given["execution_id"],
        correlation_id=given["correlation_id"],
        records=given["records"],
        completeness=None if quality is None else Completeness(quality_score=quality),
        entities=given["entities"],
    )
