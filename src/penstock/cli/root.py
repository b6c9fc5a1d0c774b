"""The top of the command line: global options, lazy loading of families, one place for errors.

A family's module is imported when one of its commands is called, so that help and completion stay
quick. Every error ends here: as one line with what to do next, or as JSON under `--json`; the exit
code is the error's own. A traceback is shown only under `--debug`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from penstock.cli.app import App, Group, is_asked_for
from penstock.cli.errors import INTERRUPTED, report

FAMILIES: dict[str, tuple[str, str]] = {
    "up": (
        "assembly.cli",
        "Run everything here: scheduler, services, a worker and the API, in one process.",
    ),
    "api": ("assembly.cli", "Serve the HTTP API alone; any number of replicas may run."),
    "worker": ("assembly.cli", "Run a worker: it claims runs and executes them."),
    "scheduler": ("assembly.cli", "Run the scheduler and the other services, without a worker."),
    "status": (
        "monitoring.cli.status",
        "Show what is going on: the queue, today, live processes, alerts.",
    ),
    "explain": (
        "flows.explain.cli.explain",
        "Explain a flow: what was decided, why, what is awaited, what to do.",
    ),
    "why": (
        "flows.explain.cli.why",
        "Prove why a flow, a phase or a run waits, and when that can clear.",
    ),
    "trace": (
        "flows.explain.cli.trace",
        "Follow one cause: what happened, in order, and what never did.",
    ),
    "flows": ("flows.cli.flows", "List, show and cancel flows."),
    "trigger": ("flows.cli.trigger", "Open a flow for a partition, or start one at a phase."),
    "complete": (
        "flows.cli.complete",
        "Report a completion from outside; the cascade goes on from there.",
    ),
    "gate": ("flows.gates.cli.gate", "Gates: check now, history, what-if, backtest."),
    "override": (
        "flows.gates.cli.override",
        "Approvals to go on without a dependency: grant, list, revoke.",
    ),
    "interventions": (
        "flows.gates.cli.interventions",
        "What only a person can resolve: list, show, resolve.",
    ),
    "runs": ("runs.cli", "List, show, submit, cancel and retry runs."),
    "limits": ("limits.cli", "Shared capacity and rates: who holds, who waits, what was learned."),
    "topics": ("bus.cli.topics", "Topics: create, publish, find a message again."),
    "subscriptions": (
        "bus.cli.subscriptions",
        "Who takes messages: create, look, pull, seek, pause.",
    ),
    "dlq": ("dead_letters.cli.dlq", "Dead letters of runs and messages: look, replay, discard."),
    "configs": ("schedules.cli.configs", "Customers' schedules: create, change, preview, audit."),
    "pipelines": ("pipelines.cli", "The pipelines this database knows; register new ones."),
    "pause": (
        "schedules.cli.pauses",
        "Stop starting runs: of everything, a customer, a pipeline, a config.",
    ),
    "resume": ("schedules.cli.pauses", "Lift a pause."),
    "pauses": ("schedules.cli.pauses", "List the pauses in force."),
    "alerts": ("monitoring.cli.alerts", "What needs somebody's attention."),
    "keys": ("access.cli", "API keys: create, list, rotate, revoke."),
    "db": ("db.cli", "The database: migrate, verify, path; the key that signs pushes."),
    "doctor": (
        "monitoring.cli.doctor",
        "Check the installation and say how to mend what is wrong.",
    ),
    "simulate": ("testing.cli", "Run pipelines under seeded faults and check that nothing breaks."),
    "demo": ("demo", "Watch a day of a pipeline in about a minute, with failures."),
}
"""Command → (module below `penstock`, what `penstock --help` says of it)."""


class Root(Group):
    """The group of all commands; imports a family on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's own
        """Every command, in the order of the table."""
        return list(FAMILIES)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's own
        cmd_name: str,
    ) -> click.Command | None:
        """The command, its module imported now."""
        if cmd_name not in FAMILIES:
            return None
        module = importlib.import_module(f"penstock.{FAMILIES[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's own
        formatter: click.HelpFormatter,
    ) -> None:
        """The list of commands, without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in FAMILIES.items()])

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: ARG002 - errors end here in any case
        **extra: Any,
    ) -> NoReturn:
        """Run, report errors in one place, and exit with the code that says what happened."""
        given = list(sys.argv[1:] if args is None else args)
        try:
            code = super().main(given, prog_name, complete_var, standalone_mode=False, **extra)
        except (KeyboardInterrupt, click.Abort):
            sys.exit(INTERRUPTED)
        except Exception as error:
            sys.exit(report(error, is_json=is_asked_for("--json", given),
                            is_debug=is_asked_for("--debug", given)))  # fmt: skip
        sys.exit(code if isinstance(code, int) else 0)


@click.group(
    cls=Root,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="New here? Try `penstock demo`, then `penstock up --pipelines my_pipelines.py`.",
)
@click.version_option(package_name="penstock", message="penstock %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Penstock runs data pipelines that never fail silently.

    State lives in ./penstock.db (SQLite) unless --database-url or PENSTOCK_DATABASE_URL names
    another database. Options such as --json may stand before or after the command.
    """
    ctx.ensure_object(App)
