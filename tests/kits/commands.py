"""Commands that alerts and interventions print, executed against the store of a test."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from click.testing import CliRunner

from penstock.cli import cli
from penstock.cli.app import App
from penstock.client import Client


def printed_commands(text: str) -> list[str]:
    """The commands in a message, up to the end of their sentence, comment or line."""
    found = re.findall(r"penstock [^\n#]+?(?=[.,](?:\s|$)|\s*#|\s*$)", text, re.MULTILINE)
    return [line.strip() for line in found]


def execute(client: Client, line: str, *, codes: Collection[int] = (0,)) -> str:
    """Run a printed command as a person would, confirming it; return what it prints.

    It uses the test's client, whose store has the test's clock.
    """

    @contextmanager
    def connect(app: App) -> Iterator[object]:
        app.where = "the test's database"
        yield client.dry_run() if app.is_dry_run else client

    @contextmanager
    def on_database(*_: object, **__: object) -> Iterator[Client]:
        yield client

    words = shlex.split(line)
    assert words[0] == "penstock", line
    with patch.object(App, "connect", connect), patch.object(App, "client", on_database):
        result = CliRunner().invoke(cli, words[1:], input="y\n")
    assert result.exit_code in codes, (line, result.output, result.exception)
    return result.output


SERVERS = {"scheduler", "worker"}
"""Commands that run until they are stopped; they are only parsed."""


def perform(client: Client, line: str) -> None:
    """Run the command of an alert; one that would run until it is stopped is only parsed."""
    words = shlex.split(line)[1:]
    if words[0] not in SERVERS:
        execute(client, line, codes={0, 1} if words[0] == "doctor" else {0})
        return
    command: Any = cli
    context = command.make_context("penstock", list(words), resilient_parsing=False)
    _, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
    assert not command.make_context(command.name, rest, parent=context).args, line
