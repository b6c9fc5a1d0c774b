"""Output of an action's blast radius."""

from __future__ import annotations

import click

from penstock.cli import output
from penstock.recovery.records import BlastRadius


def print_impact(impact: BlastRadius, *, is_dry_run: bool) -> None:
    """Print the blast radius of an action; for a dry run also the command that performs it."""
    click.echo(output.escape_control(impact.text))
    for effect in impact.effects:
        click.echo(output.escape_control(f"  {effect.kind:<10} {effect.text}"))
    if is_dry_run:
        click.echo(f"Nothing was changed. To apply it: {output.escape_control(impact.command)}")
