"""`penstock demo`: a day in about a minute, with everything that goes wrong.

`nba` is a day of a pipeline with gates, `saas` a day of 1,000 customers' schedules. The real
services and the real worker steps over a real database, under driven time. Each ends with a summary
in which every claim was checked against the database; one that does not hold is an error.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from penstock.cli.app import App, Command, refuse_url
from penstock.core.clock import HOUR, MINUTE, SystemClock
from penstock.core.errors import InvalidInput

if TYPE_CHECKING:
    from penstock.assembly.settings import Settings

__all__ = ["demo"]

LEAD_US = 26 * HOUR
"""The simulated day of `saas` begins so long before now: it and its aftermath lie in the past."""


@click.command("demo", cls=Command)
@click.argument("which", type=click.Choice(["nba", "saas"]), default="nba")
@click.option("--customers", type=click.IntRange(10, 20_000), default=1_000, show_default=True,
              help="How many there are (saas).")  # fmt: skip
@click.option("--flood", type=click.IntRange(100, 100_000), default=5_000, show_default=True,
              help="Runs one customer submits at once (saas).")  # fmt: skip
@click.option("--seconds", type=click.FloatRange(1, 3_600), default=70.0, show_default=True,
              help="How long the simulated day should take.")  # fmt: skip
@click.option(
    "--seed",
    type=int,
    default=1,
    show_default=True,
    help="The same seed: the same data and luck.",
)
@click.option("--engine", type=click.Choice(["sqlite", "postgres"]), default=None,
              help="postgres needs --database-url with an empty database.")  # fmt: skip
@click.pass_obj
def demo(
    app: App,
    *,
    which: str,
    customers: int,
    flood: int,
    seconds: float,
    seed: int,
    engine: str | None,
) -> None:
    """Watch a day of a pipeline in about a minute, with failures.

    nba (the default): gates over a season in DuckDB, in which a source is late, a processor fails,
    a phase goes on degraded and heals, and an operator asks what happened. saas: a day of 1,000
    customers with rate limits, a killed worker, a flood of runs and a scheduler outage. The
    database stays, to look around in.
    """
    folder = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    settings = _settings(app, engine, folder)
    is_live = sys.stdout.isatty() and not app.is_json and not app.is_quiet
    is_silent = app.is_json or app.is_quiet
    # Only the demo loads the services and its own scenes.
    if which == "saas":
        from penstock.demo.saas.performance import Wanted, perform  # as above

        start = SystemClock().now() // MINUTE * MINUTE - LEAD_US
        wanted = Wanted(customers=customers, flood=flood, seconds=seconds, seed=seed, start=start)
        _show(app, perform(wanted, settings, is_live=is_live, is_silent=is_silent))
    else:
        _check_duckdb()
        from penstock.demo.nba import performance  # as above

        _show(app, performance.perform(settings, folder, seconds=seconds, seed=seed,
                                       is_live=is_live, is_silent=is_silent))  # fmt: skip


class _Report(Protocol):
    @property
    def is_true(self) -> bool: ...
    def record(self) -> dict[str, Any]: ...
    def text(self) -> str: ...


def _show(app: App, report: _Report) -> None:
    app.emit(report.record(), lambda: click.echo(report.text()))
    if not report.is_true:
        raise click.exceptions.Exit(1)


def _check_duckdb() -> None:
    if importlib.util.find_spec("duckdb") is None:
        fix = "Install it: pip install 'penstock[duckdb]', or watch `penstock demo saas`"
        raise InvalidInput("which", "a demo whose library is installed (duckdb)", "nba", fix)


def _settings(app: App, engine: str | None, folder: Path) -> Settings:
    """Only a database named on the command line is used; the environment's may be a real one."""
    # Loaded when a command needs it.
    from penstock.assembly.settings import load

    refuse_url(app.url)
    url = app.database_url
    is_postgres = (url or "").startswith("postgres")
    if engine == "postgres" and not is_postgres:
        fix = "Name an empty database: --database-url postgresql://user@host/name"
        raise InvalidInput("database_url", "a PostgreSQL database", url, fix)
    if engine == "sqlite" and is_postgres:
        raise InvalidInput("engine", "postgres, as --database-url says", engine)
    if url is None:
        url = f"sqlite:{folder / 'demo.db'}"
    return load({}, None, {"database_url": url, "catch_up_rate": 2.0})
