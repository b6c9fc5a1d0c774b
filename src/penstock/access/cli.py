"""`penstock keys`: manage API keys; a key is printed once and stored as a hash."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from penstock.access.api_keys import Role
from penstock.cli import output
from penstock.cli.app import App, Group
from penstock.cli.arguments import KEY
from penstock.core.clock import parse_duration

KEY_SHOWN_ONCE = "The key is not shown again: store it where you keep secrets."


@click.group(cls=Group)
def keys() -> None:
    """Create, list, rotate and revoke API keys."""


@keys.command("create")
@click.argument("name")
@click.option("--role", type=click.Choice([role.value for role in Role]), required=True,
              help="viewer reads; worker claims and reports runs; operator may do everything "
              "except manage API keys; admin may do everything.")  # fmt: skip
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
    wanted = {"name": name, "role": role, "customer_id": customer, "expires": expires, "rate": rate}
    with app.use_cases() as cases:
        made = cases.key_create(wanted)
    _show_once(app, made)


@keys.command("list")
@click.option("--customer", metavar="ID", help="Only keys bound to this customer.")
@click.option("--all", "with_revoked", is_flag=True, help="Include revoked keys.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True,
              help="Maximum number of rows.")  # fmt: skip
@click.pass_obj
def list_(app: App, customer: str | None, with_revoked: bool, limit: int) -> None:
    """List keys, oldest first, without their secrets."""
    with app.use_cases() as cases:
        found = cases.keys(customer=customer, with_revoked=with_revoked, limit=limit)
        now = cases.now()

    def print_text() -> None:
        if not found:
            app.hint("No keys. Create one: penstock keys create NAME --role operator")
            return
        output.print_table(
            ("key", "name", "role", "customer", "state", "last used", "expires"),
            [
                (k["key_id"], k["name"], k["role"], k["customer_id"] or "all",
                 _state(k, now), _when(k["last_used_at"], now), _when(k["expires_at"], now))
                for k in found
            ],
        )  # fmt: skip
        if len(found) == limit:
            app.hint(f"{len(found)} shown, there may be more: add --limit {limit * 2}")

    app.emit({"keys": found}, print_text)


@keys.command("rotate")
@click.argument("key_id", type=KEY, metavar="ID")
@click.option("--overlap", default="24h", show_default=True, metavar="DURATION",
              help="How long the old secret stays valid; 0s ends it now.")  # fmt: skip
@click.pass_obj
def rotate(app: App, key_id: str, overlap: str) -> None:
    """Replace a key's secret and print the new one; it cannot be shown again."""
    parse_duration(overlap, "overlap")
    with app.use_cases() as cases:
        made = cases.key_rotate(key_id, overlap)
    _show_once(app, made)


@keys.command("revoke")
@click.argument("key_id", type=KEY, metavar="ID")
@click.option("--reason", default="", metavar="TEXT", help="Reason, recorded in the journal.")
@click.pass_obj
def revoke(app: App, key_id: str, reason: str) -> None:
    """Revoke a key permanently; servers reject it within a minute."""
    with app.use_cases() as cases:
        changed = cases.key_revoke(key_id, reason)
    text = f"{key_id} is {'revoked' if changed else 'already revoked'}."
    app.emit({"key_id": key_id, "changed": changed}, lambda: click.echo(text))


def _show_once(app: App, made: Mapping[str, Any]) -> None:
    """Print the key on a line of its own, so that it can be piped, followed by hints."""
    info = made["info"]

    def print_text() -> None:
        click.echo(made["key"])
        scope = info["customer_id"] or "all customers"
        app.hint(f"{info['key_id']} ({info['name']}, {info['role']}, {scope})")
        if info["rotating_until"] is not None:
            app.hint(f"The old secret is valid until {info['rotating_until']}.")
        app.hint(KEY_SHOWN_ONCE)

    app.emit(made, print_text)


def _state(key: Mapping[str, Any], now: int) -> str:
    if key["rotating_until"] is not None:
        return f"rotating, {output.format_time(output.parse_time(key['rotating_until']), now)}"
    return str(key["state"])


def _when(text: str | None, now: int) -> str:
    return "never" if text is None else output.format_time(output.parse_time(text), now)
