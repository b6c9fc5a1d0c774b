"""`penstock simulate`: run your pipelines through many random histories with injected faults.

The simulator belongs to `penstock.testing`, which no other package imports, so this command runs it
as a subprocess and forwards its output. It uses no database on disk.
"""

from __future__ import annotations

import subprocess
import sys

import click

from penstock.cli.app import App, Command

MODULE = "penstock.testing.simulate.histories"


@click.command("simulate", cls=Command)
@click.argument("targets", metavar="MODULE...", nargs=-1, required=True)
@click.option("--seeds", type=click.IntRange(1, 1_000_000), default=50, show_default=True,
              help="Number of histories to simulate.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=None, help="Simulate only this seed.")
@click.option("--steps", type=click.IntRange(10, 100_000), default=300, show_default=True,
              help="Random steps per history.")  # fmt: skip
@click.pass_obj
def simulate(app: App, targets: tuple[str, ...], seeds: int, seed: int | None, steps: int) -> None:
    """Simulate pipelines under random faults and check invariants.

    MODULE is a module, module:attribute or file.py with pipelines, as for --pipelines. The seed
    determines which faults occur: duplicated and reordered completions, crashes, late data, failing
    probes, clock jumps. The real flow engine runs over an in-memory SQLite database; processor
    functions are not called. A failing seed prints the command that reproduces it.
    """
    chosen = ["--seeds", str(seeds)] if seed is None else ["--seeds", "1", "--first", str(seed)]
    call = [sys.executable, "-m", MODULE, *targets, *chosen, "--steps", str(steps)]
    if app.is_json:
        call.append("--json")
    done = subprocess.run(call, check=False, text=True, capture_output=True)
    click.echo(done.stdout, nl=False)
    click.echo(done.stderr, nl=False, err=True)
    if done.returncode:
        raise click.exceptions.Exit(done.returncode)
