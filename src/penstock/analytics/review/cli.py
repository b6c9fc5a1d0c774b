"""`penstock health` and `penstock report`: the daily checks and the weekly report."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.analytics.review.markdown import markdown
from penstock.analytics.review.page import html_page
from penstock.cli import output
from penstock.cli.app import App, Command
from penstock.core.errors import InvalidInput


@click.command("health", cls=Command)
@click.option("--pipeline", metavar="NAME", help="Only this pipeline.")
@click.option("--customer", metavar="ID", help="Only this customer.")
@click.pass_obj
def health(app: App, pipeline: str | None, customer: str | None) -> None:
    """Run the daily checks: nacks, missing tables, overrides, failures, late starts.

    Exits with 1 if a check fails, so that a scheduled job can detect it.
    """
    with app.connect() as client:
        found = client.reviews.health(pipeline=pipeline, customer=customer)

    def print_text() -> None:
        for one in found.checks:
            verdict = click.style(f"{one.verdict:<4}", fg=output.COLOURS[one.verdict])
            click.echo(f"{verdict}  {one.check:<20}  {output.escape_control(one.text)}")
            if one.command:
                click.echo(f"{'':<28}→ {output.escape_control(one.command)}")
        failed = sum(one.verdict == "FAIL" for one in found.checks)
        click.echo(f"{len(found.checks)} checks, {output.plural(failed, 'failure')}.")

    app.emit(found, print_text)
    if not found.is_healthy:
        raise click.exceptions.Exit(1)


@click.command("report", cls=Command)
@click.option("--week", "days", flag_value=7, type=int, default=7,
              help="Cover the seven days up to today, UTC (default).")  # fmt: skip
@click.option("--days", "chosen", type=click.IntRange(1, 90), metavar="N",
              help="Number of days to cover instead.")  # fmt: skip
@click.option("--format", "form", type=click.Choice(["markdown", "html"]),
              help="Markdown by default; HTML if --file ends with .html.")  # fmt: skip
@click.option("--file", type=click.Path(dir_okay=False, path_type=Path),
              help="File to write to; printed if omitted.")  # fmt: skip
@click.option("--pipeline", metavar="NAME", help="Only this pipeline.")
@click.option("--customer", metavar="ID", help="Only this customer.")
@click.pass_obj
def report(app: App, /, *, days: int, chosen: int | None, form: str | None, file: Path | None,
           pipeline: str | None, customer: str | None) -> None:  # fmt: skip
    """Write the weekly report: failures by kind, trends, and what to do about them.

    The HTML file has its charts inline and loads nothing. With --json, prints the figures.
    """
    with app.connect() as client:
        found = client.reviews.weekly(pipeline=pipeline, customer=customer, days=chosen or days)
    is_html = form == "html" or (form is None and file is not None and file.suffix == ".html")
    text = html_page(found) if is_html else markdown(found)
    if file is None:
        app.emit(found, lambda: click.echo(text, nl=False))
        return
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput("--file", "a file that can be written", str(file), str(error)) from None
    record = {"file": str(file), "actions": len(found.actions)}
    actions = output.plural(len(found.actions), "threshold")
    app.emit(record, lambda: click.echo(f"{file}: {actions} exceeded"))
