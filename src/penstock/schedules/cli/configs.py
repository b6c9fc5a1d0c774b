"""`penstock configs`: read and change customers' schedules; `create` has the create command."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from penstock.cli import output
from penstock.cli.app import App, Group
from penstock.cli.arguments import CONFIG, confirm
from penstock.cli.backends.protocol import Shape
from penstock.core.errors import InvalidInput
from penstock.schedules.cli.create import config_field_options, create, given_config_fields

LIMIT = click.IntRange(1, 10_000)
REASON = click.option(
    "--reason", default="", metavar="TEXT", help="Reason, recorded in the audit trail."
)


@click.group(cls=Group)
def configs() -> None:
    """Create, change, preview and audit customers' schedules."""


configs.add_command(create)


@configs.command("list")
@click.option("--customer", metavar="ID", help="Only configs of this customer.")
@click.option("--pipeline", metavar="NAME", help="Only configs of this pipeline.")
@click.option(
    "--active/--inactive", "is_active", default=None, help="Only enabled or disabled configs."
)
@click.option("--after", type=CONFIG, metavar="CONFIG", help="Continue after this config.")
@click.option("--limit", type=LIMIT, default=50, show_default=True, help="Maximum number of rows.")
@click.pass_obj
def list_(app: App, /, **given: Any) -> None:
    """List configs, oldest first."""
    with app.use_cases() as cases:
        found = cases.configs(**given)
        now = cases.now()
    is_more = len(found) == given["limit"]
    record: dict[str, Any] = {"configs": found}
    if is_more:
        record["next_after"] = found[-1]["config_id"]

    def print_text() -> None:
        if not found:
            narrowed = given["customer"] or given["pipeline"] or given["is_active"] is not None
            app.hint("No configs match." if narrowed or given["after"] else "No configs yet.")
            app.hint('Create one: penstock configs create CUSTOMER PIPELINE --cron "0 2 * * *"')
            return
        output.print_table(
            ("CONFIG", "CUSTOMER", "PIPELINE", "SCHEDULE", "NEXT", "LAST", "FAILS", "STATE"),
            [
                (
                    c["config_id"],
                    c["customer_id"],
                    c["pipeline_template"],
                    output.format_schedule(c),
                    output.format_time_short(output.parse_time(c["next_run_time"]), now),
                    c["last_run_status"],
                    c["consecutive_failures"] or "-",
                    _state(c),
                )
                for c in found
            ],
        )
        if is_more:
            app.hint(f"{len(found)} shown; next page: --after {record['next_after']}")

    app.emit(record, print_text)


@configs.command("show")
@click.argument("config_id", type=CONFIG)
@click.pass_obj
def show(app: App, config_id: str) -> None:
    """Show one config with its next three occurrences."""
    with app.use_cases() as cases:
        config = cases.config(config_id)
        fires = cases.preview(config_id, 3) if config["is_active"] and not app.is_json else []
        now = cases.now()

    def print_text() -> None:
        click.echo(f"{config_id}  {click.style(_state(config), bold=True)}")
        hidden = ("config_id", "is_active", "is_paused", "next_run_time", "last_run_time")
        output.print_facts(
            [(name, value) for name, value in config.items() if name not in hidden]
            + [("last run", output.format_time(output.parse_time(config["last_run_time"]), now)),
               *(("next" if n == 0 else "", _fire(fire, now)) for n, fire in enumerate(fires))]
        )  # fmt: skip
        if not config["is_active"]:
            app.hint(f"Enable it: penstock configs enable {config_id}")

    app.emit(config, print_text)


@configs.command("update")
@click.argument("config_id", type=CONFIG)
@config_field_options
@click.option("--version", type=int, metavar="N", help="Fail unless this is the current version.")
@REASON
@click.pass_obj
def update(app: App, /, config_id: str, **given: Any) -> None:
    """Change fields of a config; fields that are not named keep their values."""
    fields = given_config_fields(given)
    if not fields:
        raise InvalidInput("fields", "at least one change", None, "For example --priority 8.")
    with app.use_cases() as cases:
        changed = cases.update(config_id, fields, version=given["version"], reason=given["reason"])
    _changed(app, changed, f"changed ({', '.join(sorted(fields))})")


@configs.command("enable")
@click.argument("config_ids", type=CONFIG, nargs=-1, required=True)
@REASON
@click.pass_obj
def enable(app: App, config_ids: tuple[str, ...], reason: str) -> None:
    """Enable configs and reset their count of consecutive failures."""
    _switch(app, config_ids, reason, is_active=True)


@configs.command("disable")
@click.argument("config_ids", type=CONFIG, nargs=-1, required=True)
@REASON
@click.pass_obj
def disable(app: App, config_ids: tuple[str, ...], reason: str) -> None:
    """Disable configs; their schedules are no longer evaluated."""
    _switch(app, config_ids, reason, is_active=False)


@configs.command("delete")
@click.argument("config_id", type=CONFIG)
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@REASON
@click.pass_obj
def delete(app: App, config_id: str, yes: bool, reason: str) -> None:
    """Delete a config; its runs and its audit trail are kept."""
    with app.use_cases() as cases:
        config = cases.config(config_id)
        if not yes and not app.is_json:
            name = f"{config['pipeline_template']} of {config['customer_id']}"
            confirm(f"Delete {config_id} ({name})?")
        cases.delete(config_id, reason)
    app.emit({"config_id": config_id, "outcome": "deleted"},
             lambda: click.echo(f"{config_id} is deleted."))  # fmt: skip


@configs.command("start")
@click.argument("config_id", type=CONFIG)
@click.pass_obj
def start(app: App, config_id: str) -> None:
    """Start the runs of a config now, in addition to its schedule."""
    with app.use_cases() as cases:
        ids = cases.start(config_id)

    def print_text() -> None:
        for run_id in ids:
            click.echo(f"Started {run_id}. Follow it: penstock runs show {run_id}")

    app.emit({"config_id": config_id, "run_ids": ids}, print_text)


@configs.command("preview")
@click.argument("config_id", type=CONFIG)
@click.option("--limit", "-n", "count", type=click.IntRange(1, 1000), default=5, show_default=True,
              help="Number of occurrences.")  # fmt: skip
@click.pass_obj
def preview(app: App, config_id: str, count: int) -> None:
    """Show the next occurrences, with notes on daylight-saving changes."""
    with app.use_cases() as cases:
        fires = cases.preview(config_id, count)
        config = cases.config(config_id)
        now = cases.now()

    def print_text() -> None:
        if not fires:
            topic = config["event_topic"]
            app.hint(f"It has no schedule: it starts when a message arrives on {topic}.")
            return
        if not config["is_active"]:
            app.hint("The config is disabled. If enabled, it would start at:")
        output.print_table(
            ("AT", f"IN {config['timezone']}", "NOTE"),
            [
                (output.format_time(output.parse_time(f["at"]), now), f["local"], f["note"])
                for f in fires
            ],
        )

    app.emit({"config_id": config_id, "fires": fires}, print_text)


@configs.command("audit")
@click.argument("customer")
@click.option("--config-id", type=CONFIG, metavar="CONFIG", help="Only changes of this config.")
@click.option("--limit", type=LIMIT, default=100, show_default=True, help="Maximum number of rows.")
@click.pass_obj
def audit(app: App, customer: str, config_id: str | None, limit: int) -> None:
    """Show the audit trail of a customer's configs, oldest change first."""
    with app.use_cases() as cases:
        found = cases.audit(customer, config_id=config_id, limit=limit)

    def print_text() -> None:
        if not found:
            app.hint("No changes recorded.")
            return
        output.print_table(
            ("N", "AT", "ACTION", "CONFIG", "BY", "REASON", "CHANGE"),
            [
                (
                    row["n"], output.format_time(output.parse_time(row["at"])), row["action"],
                    row["config_id"], row["changed_by"], row["change_reason"],
                    output.first_line(_change(row), 70),
                )
                for row in found
            ],
        )  # fmt: skip

    app.emit({"audit": found}, print_text)


@configs.command("ledger")
@click.argument("config_id", type=CONFIG)
@click.option("--limit", type=LIMIT, default=50, show_default=True, help="Maximum number of rows.")
@click.pass_obj
def ledger(app: App, config_id: str, limit: int) -> None:
    """Show occurrences that did not start and why, newest first."""
    with app.use_cases() as cases:
        found = cases.ledger(config_id, limit)
        now = cases.now()

    def print_text() -> None:
        if not found:
            app.hint("Every occurrence so far has started.")
            return
        output.print_table(
            ("FROM", "TO", "OCCURRENCES", "WHY"),
            [
                (
                    output.format_time(output.parse_time(e["slot_from"]), now),
                    output.format_time(output.parse_time(e["slot_to"])), e["slots"], e["outcome"],
                )
                for e in found
            ],
        )  # fmt: skip

    app.emit({"config_id": config_id, "ledger": found}, print_text)


def _switch(app: App, config_ids: Sequence[str], reason: str, *, is_active: bool) -> None:
    word = "enabled" if is_active else "disabled"
    with app.use_cases() as cases:
        for config_id in config_ids:
            fields = {"is_active": is_active}
            _changed(app, cases.update(config_id, fields, version=None, reason=reason), word)


def _changed(app: App, config: Shape, what: str) -> None:
    name = f"{config['pipeline_template']} of {config['customer_id']}"
    text = f"{config['config_id']} ({name}) is {what}; version {config['version']}."
    app.emit(config, lambda: click.echo(text))


def _change(row: Shape) -> str | None:
    values = row["new_values"]
    return None if row["action"] == "CREATED" or values is None else json.dumps(values)


def _fire(fire: Shape, now: int) -> str:
    note = f"  {fire['note']}" if fire["note"] else ""
    return output.format_time(output.parse_time(fire["at"]), now) + note


def _state(config: Shape) -> str:
    if not config["is_active"]:
        reason = config["inactive_reason"]
        return f"off ({reason})" if reason else "off"
    return "paused" if config["is_paused"] else "on"
