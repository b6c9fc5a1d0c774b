"""`penstock demo`: a simulated day of a pipeline, with failures, in just over a minute.

`nba` simulates a pipeline with gates, `saas` the schedules of 1,000 customers. Both run the real
services and worker steps on a real database, in simulated time. Each ends with a summary whose
claims are checked against the database; if one does not hold, the command fails.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from penstock.cli.app import App, Command, reject_url
from penstock.core.clock import HOUR, SystemClock
from penstock.core.errors import InvalidInput, SettingsError
from penstock.demo.dashboard import Audience
from penstock.exports import DISTRIBUTION

if TYPE_CHECKING:
    from penstock.assembly.settings import Settings

__all__ = ["demo"]

OPENING = {
    "nba": """\
A day of a basketball pipeline, simulated in {seconds} s: gates wait for a late
source, a processor fails and is retried, a phase starts degraded.""",
    "saas": """\
A day of many customers' schedules, simulated in {seconds} s: rate limits, a
killed worker, a flood of runs, a scheduler outage; no run is lost.""",
}
"""Two-line introduction for the viewer."""
INSTALL = f"pip install '{DISTRIBUTION}[duckdb]' (in a clone: pip install '.[duckdb]')"
"""How to get the library of the nba demo."""


@click.command("demo", cls=Command)
@click.argument("which", type=click.Choice(["nba", "saas"]), required=False)
@click.option("--customers", type=click.IntRange(10, 20_000), default=1_000, show_default=True,
              help="Number of customers (saas only).")  # fmt: skip
@click.option("--flood", type=click.IntRange(100, 100_000), default=5_000, show_default=True,
              help="Runs that one customer submits at once (saas only).")  # fmt: skip
@click.option("--seconds", type=click.FloatRange(1, 3_600), default=70.0, show_default=True,
              help="Real time for the simulated day.")  # fmt: skip
@click.option(
    "--seed",
    type=int,
    default=1,
    show_default=True,
    help="Seed of the generated data and faults.",
)
@click.option("--engine", type=click.Choice(["sqlite", "postgres"]), default=None,
              help="Database engine; postgres requires the URL of an empty database.")  # fmt: skip
@click.option("--serve", is_flag=True,
              help="Keep the dashboard open after the day, until Ctrl-C.")  # fmt: skip
@click.pass_obj
def demo(
    app: App,
    *,
    which: str | None,
    customers: int,
    flood: int,
    seconds: float,
    seed: int,
    engine: str | None,
    serve: bool,
) -> None:
    """Simulate a day of pipeline runs, with failures, in just over a minute.

    nba (the default if the extra duckdb is installed): gates over a season of basketball data in
    DuckDB. A source is late, a processor fails, a phase runs degraded and is repaired by late data,
    and an operator asks what happened. saas (the default otherwise): a day of 1,000 customers with
    rate limits, a killed worker, a flood of runs and a scheduler outage. The dashboard shows the
    day while it is simulated, and stays open in a terminal or with --serve. The database is kept
    for inspection.
    """
    which = _chosen(app, which)
    folder = _folder()
    settings = _settings(app, engine, folder)
    is_live = sys.stdout.isatty() and not app.is_json and not app.is_quiet
    is_silent = app.is_json or app.is_quiet
    audience = Audience(is_served=serve or not is_silent, is_staying=serve or is_live)
    # The screen shows what happens; without a handler, warnings would be printed between its lines.
    logging.getLogger().addHandler(logging.NullHandler())
    if not is_silent:
        click.echo(OPENING[which].format(seconds=f"{seconds:.0f}"))
    # Imported here because only the demo needs the services and its scenarios.
    if which == "saas":
        from penstock.demo.saas.performance import DemoOptions, run_demo  # as above
        from penstock.demo.saas.play import LEAD_US  # as above

        start = SystemClock().now() // HOUR * HOUR - LEAD_US
        wanted = DemoOptions(
            customers=customers, flood=flood, seconds=seconds, seed=seed, start=start
        )
        run_demo(wanted, settings, is_live=is_live, is_silent=is_silent, audience=audience,
                 show_report=partial(_show, app))  # fmt: skip
    else:
        from penstock.demo.nba import performance  # as above

        performance.run_demo(settings, folder, seconds=seconds, seed=seed, is_live=is_live,
                             is_silent=is_silent, audience=audience,
                             show_report=partial(_show, app))  # fmt: skip


def _folder() -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    except OSError as error:
        expected = f"a folder that this user can write to ({error.strerror or error})"
        where = tempfile.tempdir or "none"
        raise SettingsError("TMPDIR", expected, where, "Set TMPDIR to one.") from None


class _Report(Protocol):
    @property
    def is_true(self) -> bool: ...
    def record(self) -> dict[str, Any]: ...
    def text(self) -> str: ...


def _show(app: App, report: _Report) -> None:
    app.emit(report.record(), lambda: click.echo(report.text()))
    if not report.is_true:
        raise click.exceptions.Exit(1)


def _chosen(app: App, which: str | None) -> str:
    """Return the demo to run: the named one, or nba, or saas if the library of nba is missing."""
    if which == "saas" or importlib.util.find_spec("duckdb") is not None:
        return which or "nba"
    if which == "nba":
        fix = f"Install it: {INSTALL}, or run `penstock demo saas`"
        raise InvalidInput("which", "a demo whose library is installed (duckdb)", "nba", fix)
    if not app.is_quiet:
        about = "This is the saas demo, because the nba demo needs duckdb, which is not installed."
        click.echo(f"{about} To get it: {INSTALL}\n", err=app.is_json)
    return "saas"


def _settings(app: App, engine: str | None, folder: Path) -> Settings:
    """Load settings without the environment and files, which may name a production database."""
    # Imported here because help and completion need no settings.
    from penstock.assembly.settings import load

    reject_url(app.url)
    url = app.database_url
    is_postgres = (url or "").startswith("postgres")
    if engine == "postgres" and not is_postgres:
        fix = "Specify an empty database: --database-url postgresql://user@host/name"
        raise InvalidInput("database_url", "a PostgreSQL database", url, fix)
    if engine == "sqlite" and is_postgres:
        raise InvalidInput("engine", "postgres, to match --database-url", engine)
    if url is None:
        url = f"sqlite:{folder / 'demo.db'}"
    # Any free port: the default one may belong to an installation.
    return load({}, None, {"database_url": url, "catch_up_rate": 2.0, "api_port": 0})
