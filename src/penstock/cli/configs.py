"""`penstock configs`: customers' schedules, read and changed; creating them is in `creation`."""

from __future__ import annotations

import sys
from typing import Any

import click

from penstock.cli import shapes
from penstock.cli.app import App, Group
from penstock.cli.creation import create, fields_given, update_options
from penstock.cli.given import CONFIG
from penstock.core.clock import iso
from penstock.core.errors import InvalidInput
from penstock.core.ids import encode
from penstock.core.model import Config

LIMIT = click.IntRange(1, 10_000)
REASON = click.option("--reason", default="", metavar="TEXT", help="Why; goes to the audit trail.")


@click.group(cls=Group)
def configs() -> None:
    """Customers' schedules: create, change, preview, audit."""


configs.add_command(create)


@configs.command("list")
@click.option("--customer", metavar="ID", help="Only this customer's.")
@click.option("--pipeline", metavar="NAME", help="Only of this pipeline.")
@click.option(
    "--active/--inactive", "is_active", default=None, help="Only those switched on or off."
)
@click.option("--after", type=CONFIG, metavar="CONFIG", help="Continue after this config.")
@click.option("--limit", type=LIMIT, default=50, show_default=True, help="At most so many.")
@click.pass_obj
def list_(app: App, /, **given: Any) -> None:
    """List configs in the order of their creation."""
    with app.client() as client:
        found = client.configs.page(
            customer=given["customer"],
            pipeline=given["pipeline"],
            is_active=given["is_active"],
            after=given["after"] or 0,
            limit=given["limit"],
        )
        now = client.store.read(lambda tx: tx.now())
    is_more = len(found) == given["limit"]
    record: dict[str, Any] = {"configs": [shapes.config_record(config) for config in found]}
    if is_more:
        record["next_after"] = encode("cfg", found[-1].config_id)

    def people() -> None:
        if not found:
            narrowed = given["customer"] or given["pipeline"] or given["is_active"] is not None
            app.say("No configs match." if narrowed or given["after"] else "No configs yet.")
            app.say('Create one: penstock configs create CUSTOMER PIPELINE --cron "0 2 * * *"')
            return
        shapes.table(
            ("CONFIG", "CUSTOMER", "PIPELINE", "SCHEDULE", "NEXT", "LAST", "FAILS", "STATE"),
            [
                (
                    encode("cfg", c.config_id), c.customer_id, c.pipeline,
                    shapes.schedule_words(c), shapes.brief(c.next_run_time, now),
                    c.last_run_status, c.consecutive_failures or "-", _state(c),
                )
                for c in found
            ],
        )  # fmt: skip
        if is_more:
            app.say(f"{len(found)} shown; go on with --after {encode('cfg', found[-1].config_id)}")

    app.emit(record, people)


@configs.command("show")
@click.argument("config_id", type=CONFIG)
@click.pass_obj
def show(app: App, config_id: int) -> None:
    """Show one config with its next fires."""
    with app.client() as client:
        config = client.configs.get(config_id)
        fires = client.configs.preview(config_id, 3) if config.is_active else []
        now = client.store.read(lambda tx: tx.now())
    record = shapes.config_record(config)

    def people() -> None:
        click.echo(f"{record['config_id']}  {click.style(_state(config), bold=True)}")
        hidden = ("config_id", "is_active", "is_paused", "next_run_time", "last_run_time")
        shapes.facts(
            [(name, value) for name, value in record.items() if name not in hidden]
            + [("last run", shapes.when(config.last_run_time, now)),
               *(("next" if n == 0 else "", shapes.when(fire.at, now) + _note(fire.note))
                 for n, fire in enumerate(fires))]
        )  # fmt: skip
        if not config.is_active:
            app.say(f"Switch it on again: penstock configs enable {record['config_id']}")

    app.emit(record, people)


@configs.command("update")
@click.argument("config_id", type=CONFIG)
@update_options
@click.option("--version", type=int, metavar="N", help="Refuse unless this is still the version.")
@REASON
@click.pass_obj
def update(app: App, /, config_id: int, **given: Any) -> None:
    """Change fields of a config; what is not named stays."""
    fields = fields_given(given)
    if not fields:
        raise InvalidInput("fields", "at least one change", None, "For example --priority 8.")
    with app.client() as client:
        changed = client.configs.update(
            config_id, fields, version=given["version"], reason=given["reason"]
        )
    _changed(app, changed, f"changed ({', '.join(sorted(fields))})")


@configs.command("enable")
@click.argument("config_ids", type=CONFIG, nargs=-1, required=True)
@REASON
@click.pass_obj
def enable(app: App, config_ids: tuple[int, ...], reason: str) -> None:
    """Switch configs on; past failures are forgotten."""
    with app.client() as client:
        for config_id in config_ids:
            _changed(app, client.configs.enable(config_id, reason=reason), "on")


@configs.command("disable")
@click.argument("config_ids", type=CONFIG, nargs=-1, required=True)
@REASON
@click.pass_obj
def disable(app: App, config_ids: tuple[int, ...], reason: str) -> None:
    """Switch configs off; their slots are no longer evaluated."""
    with app.client() as client:
        for config_id in config_ids:
            _changed(app, client.configs.disable(config_id, reason=reason), "off")


@configs.command("delete")
@click.argument("config_id", type=CONFIG)
@click.option("--yes", is_flag=True, help="Do not ask.")
@REASON
@click.pass_obj
def delete(app: App, config_id: int, yes: bool, reason: str) -> None:
    """Delete a config: it stops firing, its history and audit trail stay."""
    public = encode("cfg", config_id)
    with app.client() as client:
        config = client.configs.get(config_id)
        if not yes and not app.is_json:
            _confirm(f"Delete {public} ({config.pipeline} of {config.customer_id})?")
        client.configs.delete(config_id, reason=reason)
    app.emit({"config_id": public, "outcome": "deleted"},
             lambda: click.echo(f"{public} is deleted."))  # fmt: skip


@configs.command("start")
@click.argument("config_id", type=CONFIG)
@click.pass_obj
def start(app: App, config_id: int) -> None:
    """Start a config now, outside its schedule."""
    with app.client() as client:
        ids = [encode("run", run_id) for run_id in client.configs.start(config_id)]

    def people() -> None:
        for run_id in ids:
            click.echo(f"Started {run_id}. Follow it: penstock runs show {run_id}")

    app.emit({"config_id": encode("cfg", config_id), "run_ids": ids}, people)


@configs.command("preview")
@click.argument("config_id", type=CONFIG)
@click.option("-n", "count", type=click.IntRange(1, 1000), default=5, show_default=True)
@click.pass_obj
def preview(app: App, config_id: int, count: int) -> None:
    """Show the next fires, with notes where daylight saving plays in."""
    with app.client() as client:
        fires = client.configs.preview(config_id, count)
        config = client.configs.get(config_id)
        now = client.store.read(lambda tx: tx.now())
    record = {
        "config_id": encode("cfg", config_id),
        "fires": [
            {"at": iso(f.at), "local": f.local, "utc_offset": f.utc_offset, "note": f.note}
            for f in fires
        ],
    }

    def people() -> None:
        if not fires:
            app.say(f"It has no clock: it starts when a message arrives on {config.event_topic}.")
            return
        if not config.is_active:
            app.say("It is switched off: it would fire")
        shapes.table(
            ("AT", f"IN {config.timezone}", "NOTE"),
            [(shapes.when(f.at, now), f.local, f.note) for f in fires],
        )

    app.emit(record, people)


@configs.command("audit")
@click.argument("customer")
@click.option("--config-id", type=CONFIG, metavar="CONFIG", help="Only this config's.")
@click.option("--limit", type=LIMIT, default=100, show_default=True, help="At most so many.")
@click.pass_obj
def audit(app: App, customer: str, config_id: int | None, limit: int) -> None:
    """Show who changed what of a customer's configs, oldest first."""
    with app.client() as client:
        found = client.configs.audit(customer, config_id=config_id, limit=limit)
    record = {
        "audit": [
            {
                "n": row.n, "at": iso(row.at), "action": row.action,
                "config_id": encode("cfg", row.config_id) if row.config_id else None,
                "actor": row.actor, "reason": row.reason,
                "old": shapes.parsed(row.old_values), "new": shapes.parsed(row.new_values),
                "hash": row.hash,
            }
            for row in found
        ]
    }  # fmt: skip

    def people() -> None:
        if not found:
            app.say("Nothing was changed.")
            return
        shapes.table(
            ("N", "AT", "ACTION", "CONFIG", "BY", "REASON", "CHANGE"),
            [
                (
                    row.n, shapes.when(row.at), row.action,
                    encode("cfg", row.config_id) if row.config_id else None, row.actor, row.reason,
                    shapes.first_line(_change(row.action, row.new_values), 70),
                )
                for row in found
            ],
        )  # fmt: skip

    app.emit(record, people)


@configs.command("ledger")
@click.argument("config_id", type=CONFIG)
@click.option("--limit", type=LIMIT, default=50, show_default=True, help="At most so many.")
@click.pass_obj
def ledger(app: App, config_id: int, limit: int) -> None:
    """Show slots that did not start, and why, newest first."""
    with app.client() as client:
        found = client.configs.ledger(config_id, limit)
        now = client.store.read(lambda tx: tx.now())
    record = {
        "config_id": encode("cfg", config_id),
        "ledger": [
            {"slot_from": iso(e.slot_from), "slot_to": iso(e.slot_to), "slots": e.slots,
             "outcome": e.outcome, "at": iso(e.at)}
            for e in found
        ],
    }  # fmt: skip

    def people() -> None:
        if not found:
            app.say("Every slot so far has started.")
            return
        shapes.table(
            ("FROM", "TO", "SLOTS", "WHY"),
            [
                (shapes.when(e.slot_from, now), shapes.when(e.slot_to), e.slots, e.outcome)
                for e in found
            ],
        )

    app.emit(record, people)


def _confirm(question: str) -> None:
    """Go on only after a yes; where nobody can answer, say how to do without."""
    try:
        is_wanted = click.confirm(question)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise click.UsageError("Nobody can be asked here: add --yes.") from None
    if not is_wanted:
        raise click.Abort


def _changed(app: App, config: Config, what: str) -> None:
    record = shapes.config_record(config)
    name = f"{record['config_id']} ({config.pipeline} of {config.customer_id})"
    app.emit(record, lambda: click.echo(f"{name} is {what}; version {config.version}."))


def _change(action: str, new_values: str | None) -> str | None:
    return None if action == "CREATED" else new_values


def _note(note: str | None) -> str:
    return f"  {note}" if note else ""


def _state(config: Config) -> str:
    if not config.is_active:
        return f"off ({config.inactive_reason})" if config.inactive_reason else "off"
    return "paused" if config.is_paused else "on"
