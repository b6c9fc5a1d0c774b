"""The root command: lazy loading of command modules, and the only error handler.

The module of a command is imported when the command is called, so help and completion stay fast.
Every error is reported here: as one line that says what to do next, or as JSON under `--json`. The
exit code comes from the error's class. `--debug` adds a traceback.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

import click

from penstock.cli.app import App, Group, is_flag_passed
from penstock.cli.errors import INTERRUPTED, report
from penstock.cli.terminal import terminal_streams
from penstock.exports import DISTRIBUTION

GROUPS: Final[Mapping[str, Mapping[str, tuple[str, str]]]] = {
    "Start": {
        "init": (
            "scaffold.cli",
            "Create a project with a pipeline, a test, settings and a README.",
        ),
        "demo": (
            "demo",
            "Simulate a day of pipeline runs, with failures, in just over a minute.",
        ),
        "up": (
            "assembly.cli",
            "Run the scheduler, all services, a worker and the API in one process.",
        ),
        "api": (
            "assembly.cli",
            "Serve the HTTP API only; with --pubsub-port also Google Pub/Sub's services.",
        ),
        "worker": (
            "assembly.cli",
            "Run a worker that claims and executes runs.",
        ),
        "scheduler": (
            "assembly.cli",
            "Run the scheduler and the other services, but no worker.",
        ),
    },
    "See what happens": {
        "status": (
            "monitoring.cli.status",
            "Show the queue, today's totals, live processes and open alerts.",
        ),
        "today": (
            "monitoring.cli.today",
            "Show the flows and the scheduled runs of today, and their progress.",
        ),
        "top": (
            "monitoring.cli.top",
            "Show runs in progress, limits and backlogs, live.",
        ),
        "flows": (
            "flows.cli.flows",
            "List, show and cancel flows.",
        ),
        "runs": (
            "runs.cli.runs",
            "List, show, submit, cancel and retry runs.",
        ),
        "customers": (
            "monitoring.cli.customers",
            "List customers by health; set their weight, concurrency and start tolerance.",
        ),
        "explain": (
            "flows.explain.cli.explain",
            "Explain what a flow decided, what it waits for and what you can do.",
        ),
        "why": (
            "flows.explain.cli.why",
            "Show why a flow, run, config, message, subscription or customer waits, as a tree.",
        ),
        "trace": (
            "flows.explain.cli.trace",
            "Show everything that one cause started, and the expected steps that have not "
            "happened.",
        ),
        "entity": (
            "flows.explain.cli.entity",
            "Show how far the changes of an entity have progressed, phase by phase.",
        ),
        "executions": (
            "tracking.cli",
            "List all executions that belong to one cause, newest first.",
        ),
        "find": (
            "tracking.cli",
            "Find an object by a fragment of its id, a message id, an entity, a customer or "
            "a name.",
        ),
    },
    "Operate flows": {
        "trigger": (
            "flows.cli.trigger",
            "Open a flow for a partition, or start one at a given phase.",
        ),
        "replay": (
            "recovery.cli.replay",
            "Run a partition again, starting at a phase, in a new generation.",
        ),
        "backfill": (
            "recovery.cli.backfill",
            "Process a range of partitions in the background, a bounded number at a time.",
        ),
        "backfills": (
            "recovery.cli.backfill",
            "List, follow, pause, resume and cancel backfills.",
        ),
        "cancel": (
            "recovery.cli.replay",
            "Cancel all open flows and single runs of a customer, a pipeline or a range of "
            "partitions.",
        ),
        "complete": (
            "flows.cli.complete",
            "Report the completion of a processor that Penstock does not run.",
        ),
        "items": (
            "flows.items.cli",
            "Count, list and retry the items of a flow.",
        ),
        "gate": (
            "flows.gates.cli.gate",
            "Check gates now, list decisions and try other settings.",
        ),
        "override": (
            "flows.gates.cli.override",
            "Grant, list and revoke approvals to start without a dependency.",
        ),
        "interventions": (
            "flows.gates.cli.interventions",
            "List, show and resolve items that need a human decision.",
        ),
        "breakers": (
            "flows.breakers.cli",
            "List, explain and reset the breakers that stop a phase after five failures.",
        ),
        "pipelines": (
            "pipelines.cli",
            "List, show and register pipelines.",
        ),
    },
    "Schedules and limits": {
        "configs": (
            "schedules.cli.configs",
            "Create, change, preview and audit customers' schedules.",
        ),
        "schedules": (
            "schedules.cli.load_map",
            "Show scheduled starts; spread those of busy minutes.",
        ),
        "pause": (
            "schedules.cli.pauses",
            "Stop starting runs: all runs, or those of a customer, a pipeline or a config.",
        ),
        "resume": (
            "schedules.cli.pauses",
            "End a pause so that runs start again.",
        ),
        "pauses": (
            "schedules.cli.pauses",
            "List the pauses in force.",
        ),
        "limits": (
            "limits.cli",
            "Show and set shared capacity and rate limits; release leases.",
        ),
    },
    "Messages and dead letters": {
        "topics": (
            "bus.cli.topics",
            "Create topics, publish messages, look up a message.",
        ),
        "subscriptions": (
            "bus.cli.subscriptions",
            "Create, inspect, pull, seek and pause subscriptions.",
        ),
        "snapshots": (
            "bus.cli.snapshots",
            "Take, list and delete snapshots of subscriptions; set a subscription to one.",
        ),
        "schemas": (
            "bus.cli.schemas",
            "Create and list message schemas; add, list and roll back revisions.",
        ),
        "spool": (
            "bus.cli.spool",
            "List and deliver events spooled on disk.",
        ),
        "dlq": (
            "dead_letters.cli.dlq",
            "List, replay and discard dead letters of runs and messages.",
        ),
    },
    "Notice trouble": {
        "alerts": (
            "alerts.cli",
            "List, acknowledge, silence and resolve alerts; show rules and channels.",
        ),
        "detect": (
            "detection.cli",
            "List what is late, stuck, missing or at risk now, with the command that fixes it.",
        ),
        "risk": (
            "detection.cli",
            "Show when a flow will probably end, and how likely it is to miss its service level.",
        ),
        "freshness": (
            "detection.cli",
            "Show the age of tables that have a freshness policy.",
        ),
        "slo": (
            "slos.cli",
            "Show service levels: targets, error budgets, burn rates, breaches.",
        ),
        "health": (
            "analytics.review.cli",
            "Run the daily checks: nacks, missing tables, overrides, failures, late starts.",
        ),
        "doctor": (
            "monitoring.cli.doctor",
            "Check the installation and suggest fixes.",
        ),
    },
    "Report": {
        "report": (
            "analytics.review.cli",
            "Write the weekly report: failures by kind, trends, and what to do about them.",
        ),
        "analytics": (
            "analytics.cli",
            "Show statistics on ended work: dependencies, trends, acknowledgments, durations.",
        ),
        "slowest": (
            "recovery.cli.replay",
            "List processors by how long their successful runs take, slowest first.",
        ),
        "anomalies": (
            "usage.cli",
            "List executions outside the range of earlier ones, with that history.",
        ),
        "budgets": (
            "usage.cli",
            "Set, list, lift and remove budgets of pipelines and customers.",
        ),
        "pools": (
            "usage.cli",
            "Show the load of pools and the number of workers they need.",
        ),
    },
    "Install and administer": {
        "db": (
            "db.cli",
            "Migrate and copy the database; rotate the push signing key.",
        ),
        "keys": (
            "access.cli.keys",
            "Create, list, rotate and revoke API keys.",
        ),
        "assets": (
            "assets.cli",
            "Generate Grafana dashboards, Prometheus rules and an Alertmanager config.",
        ),
        "completion": (
            "cli.completion_script",
            "Print the script that completes commands, options, ids and names in a shell.",
        ),
        "simulate": (
            "testing.cli",
            "Simulate pipelines under random faults and check invariants.",
        ),
    },
    "Audit": {
        "verify": (
            "monitoring.cli.verify",
            "Prove from the journal and the audit chains that nothing was lost, repeated or "
            "changed.",
        ),
        "seals": (
            "monitoring.cli.verify",
            "List and publish the sealed blocks of the journal.",
        ),
        "sink": (
            "shipping.cli",
            "Ship the journal and the logs to the audit sink; show the progress.",
        ),
        "query": (
            "shipping.cli",
            "Execute one SELECT over the audit sink: journal, history and the logs of flows.",
        ),
        "export": (
            "monitoring.cli.export",
            "Export ended runs, flows, journal entries or executions.",
        ),
    },
}
"""Section of `penstock --help` → command → (module below `penstock`, its summary there)."""
COMMANDS: Final = {name: one for group in GROUPS.values() for name, one in group.items()}
"""Every command, in the order of `GROUPS`."""

INSTEAD: Final[Mapping[str, tuple[str, ...]]] = {
    "help": ("--help",),
    "list": ("flows list", "runs list"),
    "log": ("runs logs RUN",),
    "logs": ("runs logs RUN",),
    "serve": ("up",),
    "start": ("up",),
    "version": ("--version",),
}
"""What other programs call a command → what it is called here."""


class RootGroup(Group):
    """The group of all commands; imports a command's module on first use."""

    instead = INSTEAD

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's own
        """Return every command name, in the order of the help."""
        return list(COMMANDS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's own
        cmd_name: str,
    ) -> click.Command | None:
        """Import the command's module and return the command; None if the name is unknown."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"penstock.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's own
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the sections of commands without importing their modules."""
        width = max(map(len, COMMANDS))
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:{width}}", text) for name, (_, text) in group.items()])

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: ARG002 - errors end here in any case
        **extra: Any,
    ) -> NoReturn:
        """Run a command, report its error if it raises one, and exit with the matching code."""
        given = list(sys.argv[1:] if args is None else args)
        with terminal_streams():
            self._run(given, prog_name, complete_var, extra)

    def _run(
        self,
        given: list[str],
        prog_name: str | None,
        complete_var: str | None,
        extra: dict[str, Any],
    ) -> NoReturn:
        try:
            code = super().main(given, prog_name, complete_var, standalone_mode=False, **extra)
        except (KeyboardInterrupt, click.Abort):
            sys.exit(INTERRUPTED)
        except Exception as error:
            sys.exit(report(error, is_json=is_flag_passed("--json", given),
                            is_debug=is_flag_passed("--debug", given)))  # fmt: skip
        sys.exit(code if isinstance(code, int) else 0)


@click.group(
    cls=RootGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="To get started: `penstock demo`, then `penstock init my_pipeline`.",
)
@click.version_option(package_name=DISTRIBUTION, message="penstock %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Penstock runs data pipelines that never fail silently.

    State is stored in ./penstock.db (SQLite) unless --database-url or PENSTOCK_DATABASE_URL names
    another database. Global options such as --json can precede or follow the command.
    """
    ctx.ensure_object(App)
