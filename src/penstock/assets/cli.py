"""`penstock assets`: dashboards and rules for other monitoring systems, generated."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.assets.grafana import dashboards
from penstock.assets.prometheus import alertmanager_file, rules_file, scrape_file
from penstock.cli.app import App, Command, Group
from penstock.core.errors import InvalidInput

OUT = click.option(
    "--out",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder to write the files to; printed if omitted.",
)


@click.group("assets", cls=Group)
def assets() -> None:
    """Generate Grafana dashboards, Prometheus rules and an Alertmanager config.

    The files are generated from the metrics and alert rules of this version: generate them again
    after an upgrade.
    """


@assets.command("grafana", cls=Command)
@OUT
@click.pass_obj
def grafana(app: App, /, out: Path | None) -> None:
    """Write dashboards: health, trends, and queue, bus and limits."""
    _write(app, out, {f"{name}.json": text for name, text in dashboards().items()})


@assets.command("prometheus", cls=Command)
@OUT
@click.pass_obj
def prometheus(app: App, /, out: Path | None) -> None:
    """Write alerting and recording rules, and an example scrape config."""
    files = {"penstock.rules.yml": rules_file(), "prometheus.example.yml": scrape_file()}
    _write(app, out, files)


@assets.command("alertmanager", cls=Command)
@OUT
@click.pass_obj
def alertmanager(app: App, /, out: Path | None) -> None:
    """Write an example Alertmanager config: routes by severity, inhibitions."""
    _write(app, out, {"alertmanager.example.yml": alertmanager_file()})


def _write(app: App, out: Path | None, files: dict[str, str]) -> None:
    if out is None:
        shown: list[dict[str, str]] = [{"name": name, "text": text} for name, text in files.items()]
        app.emit({"files": shown}, lambda: _print(files))
        return
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (out / name).write_text(text, "utf-8")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InvalidInput("out", "a folder that can be written to", str(out), reason) from None
    written = [str(out / name) for name in files]
    app.emit(
        {"files": [{"name": name} for name in written]}, lambda: click.echo("\n".join(written))
    )


def _print(files: dict[str, str]) -> None:
    for name, text in files.items():
        if len(files) > 1:
            click.echo(f"# {name}")
        click.echo(text, nl=False)
