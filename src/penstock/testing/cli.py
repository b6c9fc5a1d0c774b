"""`penstock simulate`: one's own pipeline under seeded faults, many histories in a minute.

The simulation is part of the test kit, which nothing in the product imports; it runs in a process
of its own and this command passes on what it says. No database is touched.
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
              help="How many histories.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=None, help="One history alone.")
@click.option("--steps", type=click.IntRange(10, 100_000), default=300, show_default=True,
              help="Steps of chaos in each history.")  # fmt: skip
@click.pass_obj
def simulate(app: App, targets: tuple[str, ...], seeds: int, seed: int | None, steps: int) -> None:
    """Run pipelines under seeded faults and check that nothing breaks.

    MODULE is a module, module:attribute or file.py with pipelines, as for --pipelines. Duplicated
    and reordered completions, crashes, late data, failing looks and clock jumps happen by the seed,
    to the real cascade over SQLite in memory; processors' functions are not called. A seed that
    fails prints how to see it again.
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
