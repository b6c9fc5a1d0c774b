"""Every command line in the documentation parses, and the first ones run as shown."""

import re
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from penstock.cli import cli
from penstock.core.errors import InvalidInput

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
TOPICS = ROOT / "docs" / "how-to" / "topics-and-dead-letters.md"
_LINE = re.compile(
    r"^(?:\$ | {4})?(?:[A-Z_]+=\S+ )*penstock ((?:[^\n]*\\\n)*[^\n]*)$", re.MULTILINE
)


def commands(text: str) -> list[list[str]]:
    """Return the arguments of a page's command lines, without shell syntax."""
    found = []
    for line in _LINE.findall(text):
        args = shlex.split(line.replace("\\\n", " "), comments=True)
        args = args[: args.index(">")] if ">" in args else args
        if args and args[0] in cli.list_commands(click.Context(cli)) and "…" not in args:
            found.append(args)
    return found


def fault(args: list[str]) -> str:
    """Return why a command line does not parse, or ""; execute nothing."""
    try:
        context = cli.make_context("penstock", list(args))
        command: click.Command = cli
        while isinstance(command, click.Group):
            name, found, rest = command.resolve_command(
                context, [*context._protected_args, *context.args]
            )
            assert found is not None
            context, command = found.make_context(name, rest, parent=context), found
    except (click.UsageError, InvalidInput) as error:
        return str(getattr(error, "message", error))
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_parses(page: Path) -> None:
    """No page shows a command or an option that does not exist."""
    errors = [
        (" ".join(args), why) for args in commands(page.read_text("utf-8")) if (why := fault(args))
    ]
    assert errors == []


def test_the_bus_from_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first commands about topics work in an empty folder and print what the page shows."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PENSTOCK_DATABASE_URL", raising=False)
    block = TOPICS.read_text("utf-8").split("```console\n")[1].split("```")[0]
    shown = [part.partition("\n") for part in block.split("$ penstock ")[1:]]
    assert len(shown) > 4
    for line, _, output in shown:
        result = CliRunner().invoke(cli, shlex.split(line))
        assert result.exit_code == 0, (line, result.output)
        assert result.stdout.endswith(output), line
