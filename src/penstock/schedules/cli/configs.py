"""`penstock configs`: read and change customers' schedules; `create` has the create command."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, get_args

import click
import msgspec

from penstock.cli import output
from penstock.cli.app import App, Group, dry_run_option
from penstock.cli.arguments import CONFIG, confirm, parse_time_of_day, parse_when
from penstock.cli.rows import collect
from penstock.core.clock import format_duration, parse_duration, parse_iso, to_datetime
from penstock.core.errors import InvalidInput
from penstock.core.records.record import to_json_value
from penstock.core.records.validation import convert_input
from penstock.recovery.records import ConfigEdit, ConfigEditStep
from penstock.schedules.cli.create import (
    api_names,
    config_field_options,
    create,
    given_config_fields,
    target_text,
)
from penstock.schedules.records import ConfigChange, ConfigHealthWord

if TYPE_CHECKING:
    from penstock.client import UseCaseGroups
    from penstock.schedules.records import AuditEntry, FutureOccurrence, StoredConfig

LIMIT = click.IntRange(1, 10_000)
EDITS_SHOWN = 20
REASON = click.option(
    "--reason", default="", metavar="TEXT", help="Reason, recorded in the audit trail."
)


@click.group(cls=Group)
def configs() -> None:
    """Create, change, preview and audit customers' schedules."""


configs.add_command(create)


@configs.command("list")
@click.option("--customer", metavar="ID", help="Only configs of this customer.")
@click.option("--customer-prefix", metavar="TEXT",
              help="Only configs of customers whose id begins with this text.")  # fmt: skip
@click.option("--pipeline", metavar="NAME", help="Only configs of this pipeline.")
@click.option(
    "--active/--inactive", "is_active", default=None, help="Only enabled or disabled configs."
)
@click.option("--failing", "is_failing", is_flag=True, default=None,
              help="Only configs whose last runs failed.")  # fmt: skip
@click.option("--health", type=click.Choice(get_args(ConfigHealthWord)),
              help="Only configs with this health.")  # fmt: skip
@click.option("--due-before", metavar="TIME",
              help="Only configs whose next start is before this time, soonest first.")  # fmt: skip
@click.option("--next", "sort", flag_value="next_run_time", default=None,
              help="Only configs with a next start, soonest first.")  # fmt: skip
@click.option("--after", type=CONFIG, metavar="CONFIG", help="Continue after this config.")
@click.option("--limit", type=LIMIT, default=50, show_default=True, help="Maximum number of rows.")
@click.pass_obj
def list_(app: App, /, **given: Any) -> None:
    """List configs, oldest first."""
    count = given.pop("limit")
    with app.connect() as client:
        if given["due_before"] is not None:
            before = parse_iso(given["due_before"], "--due-before")
            given["due_before"] = to_datetime(before)
        page = collect(lambda n, at: client.configs.list(**given, limit=n, cursor=at), count)
        now = client.now()
    found = page.items

    def print_text() -> None:
        if not found:
            is_narrowed = any(value is not None for value in given.values())
            app.hint("No configs match." if is_narrowed else "No configs yet.")
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


@configs.command("edit")
@click.option("--of-customer", metavar="ID", help="Only configs of this customer.")
@click.option("--of-pipeline", metavar="NAME", help="Only configs of this pipeline.")
@click.option("--where-cron", metavar="CRON", help="Only configs with this cron expression.")
@click.option(
    "--where-active/--where-inactive", default=None, help="Only active or inactive configs."
)
@config_field_options
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Show what would change; change nothing.")
@REASON
@click.pass_obj
def edit(app: App, /, **given: Any) -> None:
    """Change all configs that match a filter, such as the cron of 500 customers.

    Each config is checked and audited like a single change; those that the change cannot be
    applied to are listed with the reason.
    """
    fields = given_config_fields(given)
    if not fields:
        raise InvalidInput("fields", "at least one change", None, "For example --cron '0 3 * * *'.")
    wanted = ConfigEdit(
        change=convert_input(fields, ConfigChange),
        customer=given["of_customer"],
        pipeline=given["of_pipeline"],
        cron=given["where_cron"],
        is_active=given["where_active"],
        reason=given["reason"],
        is_dry_run=True,
    )
    with app.connect() as client, api_names():
        if given["dry_run"] or not (given["yes"] or app.is_json):
            seen = _edited(client, wanted)
            if given["dry_run"]:
                app.emit(seen, lambda: _print_edited(seen))
                return
            _print_edited(seen)
            confirm(f"Change {output.plural(len(seen.changed), 'config')}?")
        done = _edited(client, msgspec.structs.replace(wanted, is_dry_run=False))
    app.emit(done, lambda: _print_edited(done))


@configs.command("due")
@click.option("--at", required=True, metavar="WHEN",
              help="Start of the window: HH:MM, an ISO time, or an age.")  # fmt: skip
@click.option("--for", "window", default="1m", show_default=True, metavar="DURATION",
              help="Length of the window, at most 32d.")  # fmt: skip
@click.option("--timezone", default="UTC", show_default=True, help="Time zone of HH:MM.")
@click.option("--customer", metavar="ID", help="Only configs of this customer.")
@click.option("--pipeline", metavar="NAME", help="Only configs of this pipeline.")
@click.option("--limit", type=LIMIT, default=50, show_default=True, help="Maximum number of rows.")
@click.pass_obj
def due(app: App, /, *, at: str, window: str, timezone: str, limit: int, **given: Any) -> None:
    """List the active configs that fire in a window, such as `--at 03:00 --for 1h`."""
    with app.connect() as client:
        now = client.now()
        begin = _window_start(at, timezone, now)
        start, end = to_datetime(begin), to_datetime(begin + parse_duration(window, "for"))
        page = collect(
            lambda n, place: client.configs.due(start, end, **given, limit=n, cursor=place), limit
        )
    app.emit_page(
        page,
        {
            "CONFIG": lambda one: one.config_id,
            "CUSTOMER": lambda one: one.customer,
            "PIPELINE": lambda one: one.pipeline,
            "SCHEDULED": lambda one: output.format_time_short(one.at, now),
            "STARTS": lambda one: output.format_time_short(one.starts_at, now),
            "TIMES": lambda one: one.occurrences,
            "PAUSED": lambda one: "yes" if one.is_paused else None,
        },
        empty=f"No active config starts between {output.format_time(start)} and "
        f"{output.format_time(end)}.",
    )


def _window_start(text: str, timezone: str, now: int) -> int:
    """Return the start of a window: the next HH:MM in a time zone, an ISO time, or an age."""
    begin = parse_time_of_day(text, timezone, now)
    try:
        begin = parse_when(text, "at", now) if begin is None else begin
    except InvalidInput as error:
        expected = 'HH:MM such as "03:00", or an ISO 8601 time such as "2025-11-17T02:00:00Z"'
        raise InvalidInput("at", expected, text, error.fix) from None
    assert begin is not None
    return begin


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
@click.option("--config-id", type=CONFIG, metavar="CONFIG", help="Only changes to this config.")
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


def _edited(client: UseCaseGroups, wanted: ConfigEdit) -> ConfigEditStep:
    """Change, or only check, all configs that match, in steps; return the total of all steps."""
    step = client.recovery.edit_configs(wanted)
    changed, refused, unchanged = list(step.changed), list(step.refused), step.unchanged
    while step.next_after is not None:
        step = client.recovery.edit_configs(msgspec.structs.replace(wanted, after=step.next_after))
        changed += step.changed
        refused += step.refused
        unchanged += step.unchanged
    return msgspec.structs.replace(
        step, changed=changed, refused=refused, unchanged=unchanged, next_after=None
    )


def _print_edited(step: ConfigEditStep) -> None:
    verb = "would change" if step.is_dry_run else "changed"
    click.echo(f"{output.plural(len(step.changed), 'config')} {verb}, {step.unchanged} already "
               f"match, {len(step.refused)} refused.")  # fmt: skip
    for one in step.changed[:EDITS_SHOWN]:
        words = ", ".join(f"{name} {one.before.get(name)} -> {value}"
                          for name, value in one.after.items())  # fmt: skip
        click.echo(output.escape_control(f"  {one.config_id} {one.customer}: {words}"))
    if len(step.changed) > EDITS_SHOWN:
        click.echo(f"  and {len(step.changed) - EDITS_SHOWN} more: --json lists them all")
    for refusal in step.refused[:EDITS_SHOWN]:
        click.echo(output.escape_control(f"  refused {refusal.config_id}: {refusal.why}"))


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
