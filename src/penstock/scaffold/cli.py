"""`penstock init`: create a project that runs, with a pipeline, a test, settings and a README."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.cli.app import App, Command
from penstock.scaffold.project import TEMPLATES, project_files, write_project

_TEMPLATE_HELP = "; ".join(f"{name}: {what}" for name, what in TEMPLATES.items()) + "."


@click.command("init", cls=Command)
@click.argument("name")
@click.option("--template", type=click.Choice(tuple(TEMPLATES)), default="daily",
              show_default=True, help=_TEMPLATE_HELP)  # fmt: skip
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), metavar="FOLDER",
              help="Folder to write to. Defaults to a new folder NAME.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="List the files; write nothing.")
@click.pass_obj
def init(app: App, name: str, template: str, folder: Path | None, *, dry_run: bool) -> None:
    """Create a project with a pipeline, a test, settings and a README.

    NAME is the name of the pipeline and of the new folder. Files that exist are never overwritten.
    The README of the project explains how to run it.
    """
    chosen = Path(name) if folder is None else folder
    files = project_files(name, template, chosen)
    if not dry_run:
        write_project(files)
    record = {
        "name": name,
        "template": template,
        "folder": str(chosen),
        "files": [file.path.name for file in files],
        "dry_run": dry_run,
    }

    def print_text() -> None:
        click.echo(f"{'Would create' if dry_run else 'Created'} {chosen}/ ({template})")
        for file in files:
            click.echo(f"  {file.path.name}")
        app.hint(f"Next: cd {chosen}, then follow README.md: test it, run it, break it.")

    app.emit(record, print_text)
