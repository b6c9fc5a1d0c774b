"""`penstock configs`: read and change customers' schedules; `create` has the create command."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from penstock.cli import output
from penstock.cli.app import App, Group, dry_run_option
from penstock.cli.arguments import CONFIG, confirm
from penstock.cli.rows import collect
from penstock.core.clock import format_duration
from penstock.core.errors import InvalidInput
from penstock.core.records.record import to_json_value
from penstock.core.records.validation import convert_input
from penstock.schedules.cli.create import (
    api_names,
    config_field_options,
    create,
    given_config_fields,
    target_text,
)
from penstock.schedules.records import ConfigChange

if TYPE_CHECKING:
    from penstock.schedules.records import AuditEntry, FutureOccurrence, StoredConfig

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
    count = given.pop("limit")
    with app.connect() as client:
        page = collect(lambda n, at: client.configs.list(**given, limit=n, cursor=at), count)
        now = client.now()
    found = page.items

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
                    config.config_id,
                    config.customer,
                    config.pipeline,
                    _schedule(config),
                    output.format_time_short(config.next_run_time, now),
                    config.last_run_status,
                    config.consecutive_failures or "-",
                    _state(config),
                )
                for config in found
            ],
        )
        if page.next_cursor is not None:
            app.hint(f"{len(found)} shown; next page: --after {found[-1].config_id}")

    app.emit(page, print_text)


@configs.command("show")
@click.argument("config_id", type=CONFIG)
@click.pass_obj
def show(app: App, config_id: str) -> None:
    """Show one config with its next three occurrences."""
    with app.connect() as client:
        config = client.configs.get(config_id)
        is_previewed = config.is_active and not app.is_json
        following = client.configs.preview(config_id, 3).occurrences if is_previewed else []
        now = client.now()

    def print_text() -> None:
        click.echo(f"{config_id}  {click.style(_state(config), bold=True)}")
        hidden = ("config_id", "is_active", "is_paused", "next_run_time", "last_run_time")
        fields = {"customer_id": config.customer, **to_json_value(config)}
        output.print_facts(
            [(name, value) for name, value in fields.items() if name not in hidden]
            + [("last run", output.format_time(config.last_run_time, now)),
               *(("next" if n == 0 else "", _next(one, now)) for n, one in enumerate(following))]
        )  # fmt: skip
        if not config.is_active:
            app.hint(f"Enable it: penstock configs enable {config_id}")

    app.emit(config, print_text)


@configs.command("update")
@click.argument("config_id", type=CONFIG)
@config_field_options
@click.option("--version", type=int, metavar="N", help="Fail unless this is the current version.")
@REASON
@dry_run_option
@click.pass_obj
def update(app: App, /, config_id: str, **given: Any) -> None:
    """Change fields of a config; fields that are not named keep their values."""
    fields = given_config_fields(given)
    if not fields:
        raise InvalidInput("fields", "at least one change", None, "For example --priority 8.")
    change = convert_input(fields, ConfigChange)
    with app.connect() as client, api_names():
        changed = client.configs.update(
            config_id, change, version=given["version"], reason=given["reason"]
        )
    _changed(app, changed, f"changed ({', '.join(sorted(fields))})")


@configs.command("enable")
@click.argument("config_ids", type=CONFIG, nargs=-1, required=True)
@REASON
@dry_run_option
@click.pass_obj
def enable(app: App, config_ids: tuple[str, ...], reason: str) -> None:
    """Enable configs and reset their count of consecutive failures."""
    _switch(app, config_ids, reason, is_active=True)


@configs.command("disable")
@click.argument("config_ids", type=CONFIG, nargs=-1, required=True)
@REASON
@dry_run_option
@click.pass_obj
def disable(app: App, config_ids: tuple[str, ...], reason: str) -> None:
    """Disable configs; their schedules are no longer evaluated."""
    _switch(app, config_ids, reason, is_active=False)


@configs.command("delete")
@click.argument("config_id", type=CONFIG)
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@REASON
@dry_run_option
@click.pass_obj
def delete(app: App, config_id: str, yes: bool, reason: str) -> None:
    """Delete a config; its runs and its audit trail are kept."""
    with app.connect() as client:
        config = client.configs.get(config_id)
        if not (yes or app.is_json or app.is_dry_run):
            confirm(f"Delete {config_id} ({config.pipeline} of {config.customer})?")
        client.configs.delete(config_id, reason=reason)
    app.emit({"config_id": config_id, "outcome": "deleted"},
             lambda: click.echo(f"{config_id} is deleted."))  # fmt: skip


@configs.command("start")
@click.argument("config_id", type=CONFIG)
@dry_run_option
@click.pass_obj
def start(app: App, config_id: str) -> None:
    """Start the runs of a config now, in addition to its schedule."""
    with app.connect() as client:
        started = client.configs.start(config_id)

    if app.is_dry_run:  # the ids will never exist
        count = len(started.run_ids)
        text = f"Started {output.plural(count, 'run')} of {config_id}."
        app.emit({"config_id": config_id, "runs": count}, lambda: click.echo(text))
        return

    def print_text() -> None:
        for run_id in started.run_ids:
            click.echo(f"Started {run_id}. Follow it: penstock runs show {run_id}")

    app.emit(started, print_text)


@configs.command("preview")
@click.argument("config_id", type=CONFIG)
@click.option("--limit", "-n", "count", type=click.IntRange(1, 1000), default=5, show_default=True,
              help="Number of occurrences.")  # fmt: skip
@click.pass_obj
def preview(app: App, config_id: str, count: int) -> None:
    """Show the next occurrences: partition, mode, and notes on daylight-saving changes."""
    with app.connect() as client:
        found = client.configs.preview(config_id, count)
        config = client.configs.get(config_id)
        now = client.now()

    def print_text() -> None:
        if not found.occurrences:
            topic = config.event_topic
            app.hint(f"It has no schedule: it starts when a message arrives on {topic}.")
            return
        if not config.is_active:
            app.hint("The config is disabled. If enabled, it would start at:")
        output.print_table(
            ("AT", f"IN {config.timezone}", "PARTITION", "MODE", "NOTE"),
            [
                (output.format_time(one.at, now), one.local, one.partition, one.mode, one.note)
                for one in found.occurrences
            ],
        )

    app.emit(found, print_text)


@configs.command("audit")
@click.argument("customer")
@click.option("--config-id", type=CONFIG, metavar="CONFIG", help="Only changes of this config.")
@click.option("--limit", type=LIMIT, default=100, show_default=True, help="Maximum number of rows.")
@click.pass_obj
def audit(app: App, customer: str, config_id: str | None, limit: int) -> None:
    """Show the audit trail of a customer's configs, oldest change first."""
    with app.connect() as client:
        page = collect(
            lambda n, at: client.configs.audit(customer, config_id=config_id, limit=n, cursor=at),
            limit,
        )
    app.emit_page(
        page,
        {
            "N": lambda row: row.n,
            "AT": lambda row: output.format_time(row.at),
            "ACTION": lambda row: row.action,
            "CONFIG": lambda row: row.config_id,
            "BY": lambda row: row.changed_by,
            "REASON": lambda row: row.reason,
            "CHANGE": lambda row: output.first_line(_change(row), 70),
        },
        empty="No changes recorded.",
    )


@configs.command("ledger")
@click.argument("config_id", type=CONFIG)
@click.option("--limit", type=LIMIT, default=50, show_default=True, help="Maximum number of rows.")
@click.pass_obj
def ledger(app: App, config_id: str, limit: int) -> None:
    """Show occurrences that did not start and why, newest first."""
    with app.connect() as client:
        page = collect(
            lambda n, at: client.configs.occurrences(config_id, limit=n, cursor=at), limit
        )
        now = client.now()
    app.emit_page(
        page,
        {
            "FROM": lambda row: output.format_time(row.first, now),
            "TO": lambda row: output.format_time(row.last),
            "OCCURRENCES": lambda row: row.occurrences,
            "WHY": lambda row: row.outcome,
        },
        empty="Every occurrence so far has started.",
    )


def _switch(app: App, config_ids: Sequence[str], reason: str, *, is_active: bool) -> None:
    word = "enabled" if is_active else "disabled"
    change = ConfigChange(is_active=is_active)
    with app.connect() as client:
        for config_id in config_ids:
            _changed(app, client.configs.update(config_id, change, reason=reason), word)


def _changed(app: App, config: StoredConfig, what: str) -> None:
    name = f"{config.pipeline} of {config.customer}"
    text = f"{config.config_id} ({name}) is {what}; version {config.version}."
    app.emit(config, lambda: click.echo(text))


def _change(row: AuditEntry) -> str | None:
    is_shown = row.action != "CREATED" and row.new_values is not None
    return json.dumps(row.new_values) if is_shown else None


def _next(one: FutureOccurrence, now: int) -> str:
    return (
        output.format_time(one.at, now) + target_text(one) + (f"  {one.note}" if one.note else "")
    )


def _schedule(config: StoredConfig) -> str:
    """Return a config's schedule: its cron expression, interval or event topic."""
    if config.cron is not None:
        return f"{config.cron} {config.timezone}"
    if config.interval is not None:
        return f"every {format_duration(config.interval // timedelta(microseconds=1))}"
    return f"on {config.event_topic}"


def _state(config: StoredConfig) -> str:
    if not config.is_active:
        return f"off ({config.inactive_reason})" if config.inactive_reason else "off"
    return "paused" if config.is_paused else "on"
