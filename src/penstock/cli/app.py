"""Shared by all commands: global options, settings, the client or API connection, and output.

`App` is click's context object. `Command` and `Group` accept the global options in any position,
so `penstock --json runs list` and `penstock runs list --json` are equivalent.
"""

from __future__ import annotations

import contextlib
import difflib
import getpass
import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from urllib.parse import urlsplit

import click

from penstock.assembly.settings import (
    Settings,
    api_key_from_environment,
    key_file,
    load,
    setting_named,
)
from penstock.cli.completion import add_completion
from penstock.cli.layout.help_text import HelpContext
from penstock.cli.typed_words import in_typed_words
from penstock.core.errors import InvalidInput
from penstock.egress.addresses import is_loopback

if TYPE_CHECKING:
    from penstock.client import Client, UseCaseGroups
    from penstock.core.records.record import Page

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")

DEFAULT_FILE = "penstock.toml"
SUMMARY_MAX = 300
"""Maximum length of a command's summary in the help of its group."""


class App:
    """The global options of one invocation, and the settings and connections they select."""

    def __init__(self) -> None:
        self.database_url: str | None = None
        self.url: str | None = None
        self.config: str | None = None
        self.is_json = False
        self.output: str | None = None
        self.columns: str | None = None
        self.is_quiet = False
        self.is_debug = False
        self.is_dry_run = False
        self.where = ""
        """The database (without its password) or the URL, once `connect` was called."""

    def settings(self, **overrides: Any) -> Settings:
        """Load settings from file, environment and flags; `overrides` take precedence."""
        file = Path(self.config) if self.config else None
        if file is None and Path(DEFAULT_FILE).is_file():
            file = Path(DEFAULT_FILE)
        if self.url and self.database_url:
            raise InvalidInput("url", "either --url or --database-url", "both")
        if self.database_url:
            overrides = {"url": "", **overrides}  # --database-url overrides PENSTOCK_URL
        given = {"database_url": self.database_url, "url": self.url}
        return load(os.environ, file, {**given, **overrides})

    def database_settings(self, **overrides: Any) -> Settings:
        """Load settings for a command that needs direct database access; reject --url."""
        settings = self.settings(**overrides)
        reject_url(settings.url)
        return settings

    @contextlib.contextmanager
    def connect(self) -> Iterator[UseCaseGroups]:
        """Open the client: over the API if a URL is set, otherwise on the database."""
        settings = self.settings()
        if not settings.url:
            # Imported here because it loads the store.
            from penstock.assembly.database import describe_database

            self.where = describe_database(settings.database_url)
            with self.client(settings) as client:
                yield client.dry_run() if self.is_dry_run else client
            return
        # Imported here because only commands over a URL need it.
        from penstock.remote import connect

        is_plain = settings.url_plain == "allowed"
        with connect(settings.url, key=_key(settings), allow_plain=is_plain) as remote:
            self.where = remote.transport.url
            yield remote.dry_run() if self.is_dry_run else remote

    @contextlib.contextmanager
    def client(self, settings: Settings | None = None, *, create: bool = False) -> Iterator[Client]:
        """Open a client on the database; one without tables is created only with `create`."""
        chosen = settings or self.database_settings()
        # Imported here because it loads the store.
        from penstock.assembly.database import open_client

        # Disable library logs: a command reports its own errors; only servers log.
        logging.getLogger().addHandler(logging.NullHandler())
        with open_client(chosen, actor=actor(), migrate="new" if create else "never") as client:
            yield client

    def emit(self, value: Any, print_text: Callable[[], None]) -> None:
        """Print `value` as one JSON document under --json, or call `print_text` to print text.

        With --quiet the document is exactly the response of the API; otherwise it is indented.
        """
        # Imported here because help needs none of it.
        from penstock.cli.rows import write_rows
        from penstock.core.records.record import encode_record, to_json_value  # as above

        if self.is_dry_run:
            value = {"dry_run": True, "result": value}
        if self.format == "json" and self.is_quiet:
            click.echo(encode_record(value))
        elif self.format == "json":
            click.echo(json.dumps(to_json_value(value), indent=2, ensure_ascii=False))
        elif self.format != "table" or self.columns is not None:
            write_rows(value, self.format, self.columns)
        else:
            self.hint("Dry run: nothing was changed. It would print:" if self.is_dry_run else "")
            print_text()

    def emit_page(
        self,
        page: Page[R],
        columns: Mapping[str, Callable[[R], object]],
        *,
        empty: str,
        secondary: Sequence[str] = (),
    ) -> None:
        """Print a list: as a table of these columns, or in the format and columns of the options.

        `empty` is the hint for a list without rows; `secondary` is that of `print_table`.
        """
        # Imported here because help does not need it.
        from penstock.cli.output import print_table

        def print_text() -> None:
            if not page.items:
                self.hint(empty)
                return
            rows = [[cell(item) for cell in columns.values()] for item in page.items]
            print_table(tuple(columns), rows, secondary=secondary)
            self.hint_more(page)

        self.emit(page, print_text)

    def hint_more(self, page: Page[Any]) -> None:
        """Print how to see the next page of a list, unless this was the last one."""
        if page.next_cursor is not None:
            shown = len(page.items)
            self.hint(f"{shown} shown, there may be more: add --limit {shown * 2}")

    @property
    def format(self) -> str:
        """Format of the output: table, json, jsonl or csv."""
        return "json" if self.is_json else self.output or "table"

    def hint(self, text: str) -> None:
        """Print a hint that is not part of the result; silent under --quiet and --json."""
        if text and not self.is_quiet and self.format == "table":
            click.echo(text)


def reject_url(url: str | None) -> None:
    """Raise InvalidInput if a URL is set for a command that needs direct database access."""
    if url:
        command = click.get_current_context().command_path
        expected = f"no URL, because `{command}` needs direct access to the database"
        fix = "Remove --url and PENSTOCK_URL, or pass --database-url."
        raise InvalidInput("url", expected, url.rpartition("@")[2], fix)


def _key(settings: Settings) -> str | None:
    """Return the API key from the environment; for a loopback URL fall back to the dev key file."""
    key = api_key_from_environment(os.environ)
    if key is not None or not is_loopback(urlsplit(settings.url).hostname or ""):
        return key
    file = key_file(settings.database_url)
    if file is None:
        return None
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return file.read_text("utf-8").strip() or None
    return None


def actor() -> str:
    """Return the actor that the audit journal records for changes made by this command."""
    with contextlib.suppress(OSError, KeyError, ImportError):
        return f"cli:{getpass.getuser()}"
    return "cli"


def is_flag_passed(flag: str, given: Sequence[str]) -> bool:
    """Return whether `flag` was passed; works even if click could not parse the command line."""
    before = given[: list(given).index("--")] if "--" in given else given
    return flag in before


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Store a global option on the App; an option that was not passed changes nothing."""
    app = ctx.ensure_object(App)
    if value is not None and value is not False and param.name is not None:
        setattr(app, param.name, value)


def dry_run_option(function: F) -> F:
    """Add `--dry-run`: the command's client rolls its changes back (`UseCaseGroups.dry_run`)."""
    about = "Show what would happen; change nothing."
    return click.option(
        "--dry-run", "is_dry_run", is_flag=True, expose_value=False, callback=_keep, help=about
    )(function)


def setting_options(*names: str) -> Callable[[F], F]:
    """Add the options of these settings, in this order; each is passed under its setting's name.

    An option that is not given is None, so that `App.settings(**options)` ignores it.
    """

    def decorate(function: F) -> F:
        for name in reversed(names):
            function = click.option(*_names(name), **_attributes(name))(function)
        return function

    return decorate


def _names(setting: str) -> tuple[str, str]:
    flag = setting_named(setting).flag
    assert flag is not None, f"{setting} has no flag"
    return flag, setting


def _attributes(name: str) -> dict[str, Any]:
    """Return click's attributes for the option of a setting, from its declaration."""
    setting = setting_named(name)
    default = f"default: {setting.default}; " if setting.default not in ("", ()) else ""
    found: dict[str, Any] = {
        "help": f"{setting.help}  [{default}env: {setting.variable}]",
        "metavar": setting.metavar,
        "type": int if setting.kind == "int" else str,
    }
    if setting.kind == "list":
        found |= {"multiple": True, "callback": _split_list}
    return found


def _split_list(
    ctx: click.Context,  # noqa: ARG001 - click's own
    param: click.Parameter,  # noqa: ARG001 - click's own
    value: tuple[str, ...],
) -> tuple[str, ...] | None:
    """Join the values of a repeated option, each with or without commas, as in the environment."""
    return tuple(part for one in value for part in one.split(",")) or None


def _global_options() -> list[click.Option]:
    def option(*names: str, **more: Any) -> click.Option:
        return click.Option(names, expose_value=False, callback=_keep, **more)

    return [
        option(*_names("database_url"), **_attributes("database_url")),
        option(*_names("url"), **_attributes("url")),
        option("--config", metavar="FILE", type=click.Path(),
               help=f"TOML file with settings.  [default: ./{DEFAULT_FILE} if it exists]"),
        option("--json", "is_json", is_flag=True, help="Print results and errors as JSON."),
        option("--output", type=click.Choice(["table", "json", "jsonl", "csv"]),
               help="Format of the results. --json is short for --output json."),
        option("--columns", metavar="A,B",
               help="Print only these fields, in this order; for table, jsonl and csv."),
        option("--quiet", "-q", "is_quiet", is_flag=True, help="Print only results, no hints."),
        option("--debug", "is_debug", is_flag=True, help="Print the traceback of an error."),
    ]  # fmt: skip


class _Global(click.Command):
    """Base of all commands: adds the global options and lists them in their own help section."""

    context_class = HelpContext

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # In a raw docstring click's no-wrap marker \b is two characters; make it the control char.
        if self.help:
            self.help = self.help.replace("\\b\n", "\b\n")
        add_completion(self.params)
        self.global_options = _global_options()
        self.params.extend(self.global_options)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own options, then the global ones; omit arguments (see usage)."""
        own = [p for p in self.get_params(ctx)
               if p not in self.global_options and not isinstance(p, click.Argument)]  # fmt: skip
        self._section(ctx, formatter, "Options", own)
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)
        if ctx.parent is None:
            self._section(ctx, formatter, "Global options", self.global_options)
            return
        names = " ".join(one.opts[0] for one in self.global_options)
        with formatter.section(f"Global options, see `{ctx.find_root().info_name} --help`"):
            formatter.write_text(names)

    @staticmethod
    def _section(
        ctx: click.Context, formatter: click.HelpFormatter, title: str, params: list[Any]
    ) -> None:
        lines = [line for p in params if (line := p.get_help_record(ctx)) is not None]
        if lines:
            with formatter.section(title):
                formatter.write_dl(lines)

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Parse the arguments; an error about a value names the option."""
        with self._typed():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error about a field names the option."""
        with self._typed():
            return super().invoke(ctx)

    @contextlib.contextmanager
    def _typed(self) -> Iterator[None]:
        try:
            yield
        except InvalidInput as error:
            if not hasattr(error, "text"):  # the innermost command defines the options
                error.text = in_typed_words(error, self.params)  # type: ignore[attr-defined]
            raise


class Command(_Global):
    """A command that accepts the global options and rejects repeated single-valued options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments; reject a repeated option, of which click would use only the last."""
        _, extra, order = self.make_parser(ctx).parse_args(args=list(args))
        for option, times in Counter(order).items():
            is_single = isinstance(option, click.Option) and not (
                option.multiple or option.count or option.is_flag
            )
            if is_single and times > 1:
                raise click.UsageError(
                    f"{option.opts[0]} was given {times} times; give it once.", ctx
                )
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            hint = self.hint_at_extra(extra)
            if type(error) is not click.UsageError or not hint:
                raise
            raise click.UsageError(f"{error.format_message()}. {hint}", ctx) from None

    def hint_at_extra(self, extra: Sequence[str]) -> str:  # noqa: ARG002 - for subclasses
        """Return what was probably meant by arguments that the command does not take, if known."""
        return ""


class Group(_Global, click.Group):
    """A group of commands that creates its subcommands as `Command`."""

    command_class = Command
    instead: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """What to suggest for words that are no commands, where the closest name would mislead."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each command with its whole first sentence; click would cut it to one line."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        lines = [
            (name, command.get_short_help_str(SUMMARY_MAX))
            for name, command in found
            if command is not None and not command.hidden
        ]
        if lines:
            with formatter.section("Commands"):
                formatter.write_dl(lines)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a subcommand; the error for an unknown name suggests the closest match."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            known, word = self.list_commands(ctx), args[0] if args else ""
            near = self.instead.get(word) or difflib.get_close_matches(word, known, 1)
            message = error.format_message()
            if word not in self.instead and (not near or "Did you mean" in message):
                raise
            message = message.partition(" Did you mean")[0]
            meant = " or ".join(f"'{one}'" for one in near)
            raise click.UsageError(f"{message} Did you mean {meant}?", ctx) from None
