"""The command-line interface: one module per group of commands, over the client's use cases.

`main` is the entry point. Heavy modules are imported only when a command needs them, so
`penstock --help` starts quickly. Commands never import the store or the engine; `assembly` builds
the processes that they start.
"""

from __future__ import annotations

from penstock.cli.root import cli

__all__ = ["cli", "main"]


def main() -> None:
    """Run the command line with this process's arguments and exit."""
    cli.main(prog_name="penstock")
