"""`penstock demo`: a day of a SaaS platform in about a minute, with everything that goes wrong.

The real services and the real worker steps over a real database, under driven time. It ends with
a summary in which every claim was checked against the database; one that does not hold is an error.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.app import App, Command, refuse_url
from penstock.core.clock import HOUR, MINUTE, SystemClock
from penstock.core.errors import InvalidInput

if TYPE_CHECKING:
    from penstock.config import Settings

__all__ = ["demo"]

LEAD_US = 26 * HOUR
"""The simulated day begins so long before now: it and its aftermath lie in the past."""


@click.command("demo", cls=Command)
@click.option("--customers", type=click.IntRange(10, 20_000), default=1_000, show_default=True)
@click.option("--flood", type=click.IntRange(100, 100_000), default=5_000, show_default=True,
              help="Runs one customer submits at once.")  # fmt: skip
@click.option("--seconds", type=click.FloatRange(1, 3_600), default=75.0, show_default=True,
              help="How long the simulated day should take.")  # fmt: skip
@click.option(
    "--seed",
    type=int,
    default=1,
    show_default=True,
    help="The same seed: the same customers and luck.",
)
@click.option("--engine", type=click.Choice(["sqlite", "postgres"]), default=None,
              help="postgres needs --database-url with an empty database.")  # fmt: skip
@click.pass_obj
def demo(
    app: App, customers: int, flood: int, seconds: float, seed: int, engine: str | None
) -> None:
    """Watch a day of 1,000 customers in about a minute, with failures.

    Rate limits, revoked credentials, a killed worker, a flood of 5,000 runs and a scheduler outage
    happen; the summary says what became of every run. The database stays, to look around in.
    """
    # Only the demo loads the services and its own scenes.
    from penstock.cli.demo.performance import Wanted, perform

    settings = _settings(app, engine)
    start = SystemClock().now() // MINUTE * MINUTE - LEAD_US
    wanted = Wanted(customers=customers, flood=flood, seconds=seconds, seed=seed, start=start)
    is_live = sys.stdout.isatty() and not app.is_json and not app.is_quiet
    report = perform(wanted, settings, is_live=is_live, is_silent=app.is_json or app.is_quiet)
    app.emit(report.record(), lambda: click.echo(report.text()))
    if not report.is_true:
        raise click.exceptions.Exit(1)


def _settings(app: App, engine: str | None) -> Settings:
    """Only a database named on the command line is used; the environment's may be a real one."""
    # Loaded when a command needs it.
    from penstock.config import load

    refuse_url(app.url)
    url = app.database_url
    is_postgres = (url or "").startswith("postgres")
    if engine == "postgres" and not is_postgres:
        fix = "Name an empty database: --database-url postgresql://user@host/name"
        raise InvalidInput("database_url", "a PostgreSQL database", url, fix)
    if engine == "sqlite" and is_postgres:
        raise InvalidInput("engine", "postgres, as --database-url says", engine)
    if url is None:
        url = f"sqlite:{Path(tempfile.mkdtemp(prefix='penstock-demo-')) / 'demo.db'}"
    return load({}, None, {"database_url": url, "catch_up_rate": 2.0})
