"""Helps in a terminal of 80 columns: examples and options can be copied."""

import re
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from penstock.cli import cli
from penstock.cli.app import setting_options

LINE_MAX = 78
"""Length of the lines of a help in a terminal of 80 columns."""
OVERLONG = {("configs", "create")}
"""Commands with an example of more characters, which a terminal wraps."""
HYPHENATED = re.compile(r"\S-$")


def paths(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from paths(found, (*path, name))


def help_lines(path: tuple[str, ...]) -> list[str]:
    shown = CliRunner().invoke(cli, [*path, "--help"], terminal_width=LINE_MAX)
    return shown.output.splitlines()


@pytest.mark.parametrize("name", ["", *cli.list_commands(click.Context(cli))])
def test_lines_end_between_words(name: str) -> None:
    """No line is too long, none ends within an option or id, and examples are on one line."""
    command = cli.get_command(click.Context(cli), name) if name else None
    for path in paths(command, (name,)) if command else [()]:
        is_open = False
        for line in help_lines(path):
            assert len(line) <= LINE_MAX or path in OVERLONG, (path, line)
            assert not HYPHENATED.search(line), (path, line)
            is_open = bool(line) and is_open ^ bool(line.count("`") % 2)
            assert not is_open, (path, line)


def test_options_of_settings_show_their_defaults() -> None:
    @click.command()
    @setting_options("pool", "worker_slots", "api_port", "pipelines")
    def command() -> None: ...

    text = CliRunner().invoke(command, ["--help"], terminal_width=200).output
    assert "[default: default; env: PENSTOCK_POOL]" in text
    assert "[default: 5; env: PENSTOCK_WORKER_SLOTS]" in text
    assert "[default: 8080; env: PENSTOCK_API_PORT]" in text
    assert "[env: PENSTOCK_PIPELINES]" in text


@pytest.mark.parametrize("name", ["pause", "resume", "completion"])
def test_a_missing_choice_is_one_line(name: str) -> None:
    shown = CliRunner().invoke(cli, [name])
    assert shown.stderr.count("\n") == 1
    assert "\t" not in shown.stderr
    assert re.search(r"Choose from: \w+, \w+, \w+.*\. See `", shown.stderr), shown.stderr
