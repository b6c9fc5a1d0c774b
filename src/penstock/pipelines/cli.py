"""`penstock pipelines`: list registered pipelines, and register declarations without a worker."""

from __future__ import annotations

import difflib
import json
from typing import Any

import click

from penstock.cli.app import App, Group
from penstock.core.errors import InvalidInput
from penstock.core.records.record import Page
from penstock.pipelines.declare.producers import misspelt_needs, produced_tables
from penstock.pipelines.draw import draw


@click.group(cls=Group)
def pipelines() -> None:
    """List, show and register pipelines."""


@pipelines.command("list")
@click.pass_obj
def list_(app: App) -> None:
    """List registered pipelines with their processors and pools."""
    with app.connect() as client:
        found = client.views.pipelines()
    app.emit_page(
        Page(items=found),
        {
            "PIPELINE": lambda one: one.pipeline,
            "PROCESSORS": lambda one: ", ".join(f"{p.phase}.{p.processor}" for p in one.processors),
            "POOLS": lambda one: ", ".join(sorted({p.pool for p in one.processors})),
        },
        empty="No pipelines yet. A worker registers its pipelines when it starts:\n"
        "  penstock up --pipelines my_pipelines.py",
    )


@pipelines.command("show")
@click.argument("name")
@click.pass_obj
def show(app: App, name: str) -> None:
    """Show a pipeline's phases, processors and parameters."""
    with app.connect() as client:
        known = {one.pipeline: one for one in client.views.pipelines()}
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        fix = f"Did you mean {near[0]!r}?" if near else "See `penstock pipelines list`."
        raise InvalidInput("pipeline", "a registered pipeline", name, fix)
    info = known[name]

    def print_text() -> None:
        title, *lines = draw(info.definition)
        click.echo(click.style(title, bold=True))
        for line in lines:
            click.echo(line)
        _print_parameters(info.definition.get("parameters"))

    app.emit(info, print_text)


@pipelines.command("register")
@click.argument("targets", nargs=-1, metavar="[MODULE OR FILE]…")
@click.pass_obj
def register(app: App, targets: tuple[str, ...]) -> None:
    """Register pipelines without starting a worker; creates a missing database.

    Several modules or files can be separated by spaces or commas.
    """
    # Imported here because only this command imports users' modules and opens the store.
    from penstock.assembly.process import load_pipelines

    listed = tuple(part for one in targets for part in one.split(","))
    settings = app.database_settings(pipelines=listed or None)
    if not settings.pipelines:
        fix = "penstock pipelines register my_pipelines.py, or set PENSTOCK_PIPELINES."
        raise InvalidInput("pipelines", "a module or file that declares pipelines", None, fix)
    found = load_pipelines(settings.pipelines)
    with app.client(settings, create=True) as client:
        client.register(found)
        known = [one.definition for one in client.views.pipelines()]
    names = sorted(p.name for p in found)
    tables = {table for definition in known for table in produced_tables(definition)}
    warnings = [text for one in found for text in misspelt_needs(one.definition(), tables)]

    def print_text() -> None:
        click.echo(f"Registered: {', '.join(names)}")
        for text in warnings:
            click.echo(f"{click.style('Warning:', fg='yellow', bold=True)} {text}", err=True)

    app.emit({"registered": names, "warnings": warnings}, print_text)


def _print_parameters(schema: Any) -> None:
    properties = (schema or {}).get("properties")
    if not properties:
        return
    click.echo("  parameters")
    for name, part in properties.items():
        needed = " (required)" if name in schema.get("required", ()) else ""
        default = f"  default {json.dumps(part['default'])}" if "default" in part else ""
        choice = f"  one of {json.dumps(part['enum'])}" if "enum" in part else ""
        click.echo(f"    {name}: {part.get('type', 'anything')}{needed}{default}{choice}")
