"""`penstock subscriptions diff` and `apply`: declarations in code, compared with a transport."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import click

from penstock.bus.message import SubscriptionSpec, TopicSpec
from penstock.bus.transports.drift import Drift, differences
from penstock.bus.transports.protocol import Transport
from penstock.cli.app import App, Command, dry_run_option
from penstock.cli.arguments import confirm
from penstock.core.errors import Conflict, InvalidInput

MODULES = click.argument("modules", nargs=-1, metavar="[MODULE]...")
TRANSPORT = click.option(
    "--transport", "where", metavar="URL",
    help="Transport to compare with, such as nats://host:4222; by default the setting "
    "transport_url, or the embedded bus.",
)  # fmt: skip


@click.command("diff", cls=Command)
@MODULES
@TRANSPORT
@click.pass_obj
def diff(app: App, modules: Sequence[str], where: str | None) -> None:
    """Compare declared topics and subscriptions with a transport; exit with 1 if they differ.

    MODULE is a module or a file with `TopicSpec` and `SubscriptionSpec` values at its top level; by
    default, the modules named in the setting `declarations`.
    """
    with _compared(app, modules, where) as (_, _, found):
        _emit(app, found)
    if found:
        raise SystemExit(1)


@click.command("apply", cls=Command)
@MODULES
@TRANSPORT
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@dry_run_option
@click.pass_obj
def apply(app: App, modules: Sequence[str], where: str | None, yes: bool) -> None:
    """Create or change topics and subscriptions as declared; undeclared ones are left unchanged."""
    with _compared(app, modules, where) as (transport, declared, found):
        fixed = [one for one in found if not one.is_mendable]
        if fixed:
            raise Conflict(f"{fixed[0]}; nothing was changed")
        if found and not app.is_dry_run:
            for one in found:
                app.hint(str(one))
            if not yes:
                confirm(f"Apply {len(found)} change(s)?")
            transport.declare(*declared)
        _emit(app, found, verb="would change" if app.is_dry_run else "changed")


@contextlib.contextmanager
def _compared(
    app: App, modules: Sequence[str], where: str | None
) -> Iterator[tuple[Transport, tuple[list[TopicSpec], list[SubscriptionSpec]], list[Drift]]]:
    # Imported here because it loads the store and every transport.
    from penstock.assembly.messaging.transports import declarations, open_transport
    from penstock.bus.transports.over_client import ClientBus  # as above

    settings = app.settings()
    declared = declarations(modules or settings.declarations)
    if not declared[0] and not declared[1]:
        fix = "Name modules with TopicSpec or SubscriptionSpec values, or set declarations."
        raise InvalidInput("modules", "declared topics or subscriptions", "none", fix)
    with contextlib.ExitStack() as stack:
        transport: Transport
        if where or settings.transport_url:
            transport = stack.enter_context(open_transport(where or settings.transport_url))
        else:
            transport = ClientBus(stack.enter_context(app.connect()))
        yield transport, declared, differences(transport, *declared)


def _emit(app: App, found: Sequence[Drift], verb: str = "differs") -> None:
    items: list[dict[str, Any]] = [
        {
            "kind": one.kind,
            "name": one.name,
            "field": one.field or None,
            "declared": str(one.declared) if one.field else None,
            "actual": str(one.actual) if one.field else None,
            "is_mendable": one.is_mendable,
        }
        for one in found
    ]

    def print_text() -> None:
        if not found:
            click.echo("Everything matches the declarations.")
        for one in found:
            click.echo(f"{verb}: {one}")

    app.emit({"items": items}, print_text)
