"""The reference pages, written from the code: every command with its options, every setting.

    python -m penstock.cli.reference docs/reference

writes them; a test compares them with what this module would write.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from typing import Any

import click

from penstock.assembly.settings import DEFAULT_DATABASE, KEY_VARIABLE, TABLE, Setting
from penstock.cli.app import Command, Group
from penstock.cli.root import FAMILIES, cli
from penstock.core.errors import PenstockError

_WORDS = {
    1: "a check failed (`doctor`, `db verify`, `demo`) or something broke",
    2: "bad input",
    3: "there is no such thing",
    4: "it is not in a condition that allows this",
    5: "the store cannot be reached or is busy; try again",
    6: "the schema does not fit; `penstock db migrate`",
}
NOTE = "Written by `python -m penstock.cli.reference docs/reference`; do not edit."


def cli_page() -> str:
    """The page about the command line."""
    lines = [
        "# The command line",
        "",
        NOTE,
        "",
        cleandoc(cli.help or ""),
        "",
        "## Global options",
        "",
        "Every command accepts these, before or after its name.",
        "",
        *_table(cli),
        "",
        "## Exit codes",
        "",
        "| code | meaning |",
        "| --- | --- |",
        *(f"| {code} | {meaning} |" for code, meaning in sorted(_exit_codes().items())),
        "",
        "Under `--json` an error is one JSON object on standard error: `code`, `message`",
        "and, where it applies, `field`, `expected`, `got` and `fix`.",
        "",
        "## Completion",
        "",
        '`eval "$(_PENSTOCK_COMPLETE=bash_source penstock)"` (or `zsh_source`, `fish_source`).',
    ]
    context = click.Context(cli, info_name="penstock")
    for name in FAMILIES:
        command = cli.get_command(context, name)
        assert command is not None, name
        for path, found in _walk(f"penstock {name}", command):
            lines += ["", f"## {path}", "", *_command(path, found)]
    return "\n".join(lines) + "\n"


def settings_page() -> str:
    """The page about settings."""
    return "\n".join(
        [
            "# Settings",
            "",
            NOTE,
            "",
            "Read once when a process starts: defaults, then `penstock.toml` (or `--config FILE`),",
            "then the environment, then flags. An unknown name is refused, naming the nearest one.",
            "",
            "| setting | environment | default | what it says |",
            "| --- | --- | --- | --- |",
            *(_setting(setting) for setting in TABLE),
            "",
            f"Without any setting, state lives in `{DEFAULT_DATABASE}` in the current folder.",
            "",
            "`url` and `url_plain` are not read from files: a file found in some folder must not",
            f"choose where a key is sent. `{KEY_VARIABLE}` is the key for `url`; it comes from the",
            "environment only, because command lines and files are read by others. For an API on",
            "this machine the development key beside the SQLite file does.",
        ]
    ) + "\n"  # fmt: skip


def _setting(setting: Setting) -> str:
    bounds = []
    unit = " s" if setting.kind == "duration" else ""
    if setting.low is not None:
        bounds.append(f"at least {setting.low:g}{unit}")
    if setting.high is not None:
        bounds.append(f"at most {setting.high:g}{unit}")
    more = f" ({', '.join(bounds)})" if bounds else ""
    default = ",".join(setting.default) if setting.kind == "list" else str(setting.default)
    shown = f"`{default}`" if default else "none"
    return f"| `{setting.name}` | `{setting.variable}` | {shown} | {setting.help}{more} |"


def _walk(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, child in sorted(command.commands.items()):
            yield from _walk(f"{path} {name}", child)


def _command(path: str, command: click.Command) -> list[str]:
    lines = [_help(command)]
    if isinstance(command, click.Group):
        return lines
    arguments = " ".join(
        str(p.make_metavar(click.Context(command)))
        for p in command.params
        if isinstance(p, click.Argument)
    )
    lines += ["", f"`{path} [OPTIONS] {arguments}`".replace(" `", "`")]
    table = _table(command, own=True)
    return [*lines, "", *table] if len(table) > 2 else lines


def _help(command: click.Command) -> str:
    """What a command says of itself; its examples are what follows click's mark."""
    told, _, examples = cleandoc(command.help or "").partition("\b\n")
    return f"{told}```sh\n{examples.rstrip()}\n```" if examples else told


def _table(command: click.Command, *, own: bool = False) -> list[str]:
    lines = ["| option | meaning |", "| --- | --- |"]
    known = command.global_options if isinstance(command, Command | Group) else []
    for param in command.params:
        if not isinstance(param, click.Option) or (param in known) == own:
            continue
        names = ", ".join(f"`{name}`" for name in (*param.opts, *param.secondary_opts))
        lines.append(f"| {names}{_metavar(param)} | {_meaning(param)} |")
    return lines


def _metavar(option: click.Option) -> str:
    if option.is_flag:
        return ""
    is_number = isinstance(option.type, click.types.IntParamType | click.types.FloatParamType)
    text = option.metavar or ("N" if is_number else option.type.name.upper())
    if isinstance(option.type, click.Choice) and not option.metavar:
        text = " or ".join(str(choice) for choice in option.type.choices)
    return f" {text}".replace("|", " or ")


def _meaning(option: click.Option) -> str:
    text = (option.help or "").replace("|", "\\|")
    default: Any = option.default
    is_shown = option.show_default and isinstance(default, str | int | float)
    more = [f"Default {default}." if is_shown else "", "Required." if option.required else "",
            "May be repeated." if option.multiple else ""]  # fmt: skip
    return " ".join(part for part in (text, *more) if part)


def _exit_codes() -> dict[int, str]:
    """Exit codes with what they mean, from the errors themselves."""
    found: dict[int, list[str]] = {}
    waiting: list[type[PenstockError]] = [PenstockError]
    while waiting:
        kind = waiting.pop(0)
        waiting += kind.__subclasses__()
        if kind.__module__ != PenstockError.__module__:
            continue
        if kind.code not in found.setdefault(kind.exit_code, []):
            found[kind.exit_code].append(kind.code)
    meaning = {code: ", ".join(f"`{name}`" for name in names) for code, names in found.items()}
    for code, words in _WORDS.items():
        meaning[code] = f"{words} ({meaning[code]})"
    meaning[0] = "done"
    meaning[130] = "interrupted (Ctrl-C)"
    return meaning


def main(folder: str) -> None:
    """Write both pages."""
    for name, text in (("cli.md", cli_page()), ("settings.md", settings_page())):
        Path(folder, name).write_text(text, "utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
