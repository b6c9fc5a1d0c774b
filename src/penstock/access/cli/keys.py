"""`penstock keys`: manage API keys; a key is printed once and stored as a hash."""

from __future__ import annotations

from datetime import datetime

import click

from penstock.access.api_keys import Role
from penstock.access.records import ApiKey, IssuedKey
from penstock.cli import output
from penstock.cli.app import App, Group, dry_run_option
from penstock.cli.arguments import KEY
from penstock.cli.rows import collect
from penstock.core.clock import from_datetime, iso, parse_duration
from penstock.core.errors import Conflict

KEY_SHOWN_ONCE = "The key is not shown again: store it where you keep secrets."


@click.group(cls=Group)
def keys() -> None:
    """Create, list, rotate and revoke API keys."""


@keys.command("create")
@click.argument("name")
@click.option("--role", type=click.Choice([role.value for role in Role]), required=True,
              help="viewer reads; worker claims runs and reports on them; operator may do "
              "everything except manage API keys; admin may do everything.")  # fmt: skip
@click.option("--customer", metavar="ID", help="Restrict the key to this customer's data.")
@click.option(
    "--expires",
    metavar="DURATION",
    help="Lifetime, such as 90d. The key does not expire if omitted.",
)
@click.option(
    "--rate", type=float, metavar="N", help="Requests per second. Defaults to the setting api_rate."
)
@click.pass_obj
def create(
    app: App, name: str, role: str, customer: str | None, expires: str | None, rate: float | None
) -> None:
    """Create a key and print it; it cannot be shown again."""
    if expires is not None:
        parse_duration(expires, "expires")
    with app.connect() as client:
        made = client.keys.create(name, role, customer=customer, expires=expires, rate=rate)
    _show_once(app, made)


@keys.command("list")
@click.option("--customer", metavar="ID", help="Only keys bound to this customer.")
@click.option("--all", "with_revoked", is_flag=True, help="Include revoked keys.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True,
              help="Maximum number of rows.")  # fmt: skip
@click.pass_obj
def list_(app: App, customer: str | None, with_revoked: bool, limit: int) -> None:
    """List keys, oldest first, without their secrets."""
    with app.connect() as client:
        page = collect(
            lambda n, cursor: client.keys.list(
                customer=customer, with_revoked=with_revoked, limit=n, cursor=cursor
            ),
            limit,
        )
        now = client.now()
    app.emit_page(
        page,
        {
            "key": lambda one: one.key_id,
            "name": lambda one: one.name,
            "role": lambda one: one.role.value,
            "customer": lambda one: one.customer or "all",
            "state": lambda one: _state(one, now),
            "last used": lambda one: _when(one.last_used_at, now),
            "expires": lambda one: _when(one.expires_at, now),
        },
        empty="No keys. Create one: penstock keys create NAME --role operator",
    )


@keys.command("rotate")
@click.argument("key_id", type=KEY, metavar="ID")
@click.option("--overlap", default="24h", show_default=True, metavar="DURATION",
              help="How long the old secret stays valid; 0s revokes it now.")  # fmt: skip
@click.pass_obj
def rotate(app: App, key_id: str, overlap: str) -> None:
    """Replace a key's secret and print the new one; it cannot be shown again."""
    parse_duration(overlap, "overlap")
    with app.connect() as client:
        made = client.keys.rotate(key_id, overlap=overlap)
    _show_once(app, made)


@keys.command("revoke")
@click.argument("key_id", type=KEY, metavar="ID")
@click.option("--reason", default="", metavar="TEXT", help="Reason, recorded in the journal.")
@dry_run_option
@click.pass_obj
def revoke(app: App, key_id: str, reason: str) -> None:
    """Revoke a key permanently; servers reject it within a minute."""
    with app.connect() as client:
        changed = client.keys.revoke(key_id, reason=reason).is_changed
    text = f"{key_id} is {'revoked' if changed else 'already revoked'}."
    app.emit({"key_id": key_id, "changed": changed}, lambda: click.echo(text))


def _show_once(app: App, made: IssuedKey) -> None:
    """Print the key on a separate line, so that it can be piped, followed by hints."""
    info = made.info
    if made.key is None:
        raise Conflict(
            f"{info.key_id} was created, but the response with its secret was lost. Replace the "
            f"secret: penstock keys rotate {info.key_id} --overlap 0s"
        )

    def print_text() -> None:
        click.echo(made.key)
        app.hint(f"{info.key_id} ({info.name}, {info.role}, {info.customer or 'all customers'})")
        if info.rotating_until is not None:
            until = iso(from_datetime(info.rotating_until))
            app.hint(f"The old secret is valid until {until}.")
        app.hint(KEY_SHOWN_ONCE)

    app.emit(made, print_text)


def _state(key: ApiKey, now: int) -> str:
    if key.rotating_until is not None:
        return f"rotating, {output.format_time(key.rotating_until, now)}"
    return key.state.value


def _when(at: datetime | None, now: int) -> str:
    return "never" if at is None else output.format_time(at, now)
