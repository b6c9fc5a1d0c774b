"""The command line: one file per command family, over the client's use cases.

`main` is the program. Nothing heavy is imported until a command needs it: `penstock --help` answers
at once. Commands never touch the store or the engine; `assembly` builds what they start.
"""

from __future__ import annotations

from penstock.cli.root import cli

__all__ = ["cli", "main"]


def main() -> None:
    """Run the command line of this process and exit."""
    cli.main(prog_name="penstock")
