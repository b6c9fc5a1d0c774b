"""What every command shares: global options, settings, an open client, and how output is shaped.

`App` travels as click's context object. `Command` and `Group` accept the global options anywhere,
so that `penstock --json runs list` and `penstock runs list --json` mean the same.
"""

from __future__ import annotations

import contextlib
import difflib
import getpass
import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from penstock.core.errors import InvalidInput
from penstock.egress.addresses import is_loopback

if TYPE_CHECKING:
    from penstock.assembly.settings import Settings
    from penstock.cli.backends.protocol import UseCases
    from penstock.client import Client

DEFAULT_FILE = "penstock.toml"


class App:
    """The options of this call and what follows from them."""

    def __init__(self) -> None:
        self.database_url: str | None = None
        self.url: str | None = None
        self.config: str | None = None
        self.is_json = False
        self.is_quiet = False
        self.is_debug = False

    def settings(self, **overrides: Any) -> Settings:
        """Settings from file, environment and flags; explicit overrides win."""
        # Help and completion need no settings, so their modules are loaded here.
        from penstock.assembly.settings import load

        file = Path(self.config) if self.config else None
        if file is None and Path(DEFAULT_FILE).is_file():
            file = Path(DEFAULT_FILE)
        if self.url and self.database_url:
            raise InvalidInput("url", "either --url or --database-url", "both")
        if self.database_url:
            overrides = {"url": "", **overrides}  # who names a database means it
        given = {"database_url": self.database_url, "url": self.url}
        return load(os.environ, file, {**given, **overrides})

    def database_settings(self, **overrides: Any) -> Settings:
        """The settings of a command that works on the database itself; it refuses an API."""
        settings = self.settings(**overrides)
        refuse_url(settings.url)
        return settings

    @contextlib.contextmanager
    def use_cases(self) -> Iterator[UseCases]:
        """What a command does, on the database or, with a URL, through the API."""
        settings = self.settings()
        if not settings.url:
            # Loads the store: as in `client`.
            from penstock.cli.backends.database import Here

            with self.client(settings) as client:
                yield Here(client, settings.database_url)
            return
        # Only commands over a URL need the API's client.
        from penstock.cli.backends.http import There
        from penstock.remote import connect  # as above

        key = _key(settings)
        plain = settings.url_plain == "allowed"
        with connect(settings.url, key=key, allow_plain=plain) as api:
            yield There(api)

    @contextlib.contextmanager
    def client(self, settings: Settings | None = None, *, create: bool = False) -> Iterator[Client]:
        """A client on the database; a SQLite file that is not there is only made by `create`."""
        chosen = settings or self.database_settings()
        # Loads the store: only commands that open it pay for that.
        from penstock.assembly.process import open_client

        # Libraries' log lines are for processes that serve; a command says what went wrong itself.
        logging.getLogger().addHandler(logging.NullHandler())
        with open_client(chosen, actor=actor(), create=create) as client:
            yield client

    def emit(self, value: Any, people: Callable[[], None]) -> None:
        """Print one JSON document, or what `people` prints."""
        if self.is_json:
            click.echo(json.dumps(value, indent=None if self.is_quiet else 2, ensure_ascii=False))
        else:
            people()

    def say(self, text: str) -> None:
        """Tell people something that is not the answer itself; silent under --quiet and --json."""
        if not self.is_quiet and not self.is_json:
            click.echo(text)


def refuse_url(url: str | None) -> None:
    """Refuse an API where a command works on the database itself."""
    if url:
        command = click.get_current_context().command_path
        expected = f"nothing, because `{command}` works on the database itself"
        fix = "Leave out --url and PENSTOCK_URL, or name the database with --database-url."
        raise InvalidInput("url", expected, url.rpartition("@")[2], fix)


def _key(settings: Settings) -> str | None:
    """The key for the settings' URL: the environment's, or on this machine the development key."""
    # As in `settings`.
    from penstock.assembly.settings import api_key_of, key_file

    key = api_key_of(os.environ)
    if key is not None or not is_loopback(urlsplit(settings.url).hostname or ""):
        return key
    file = key_file(settings.database_url)
    if file is None:
        return None
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return file.read_text("utf-8").strip() or None
    return None


def actor() -> str:
    """Who is written down for what this command changes."""
    with contextlib.suppress(OSError, KeyError, ImportError):
        return f"cli:{getpass.getuser()}"
    return "cli"


def is_asked_for(flag: str, given: Sequence[str]) -> bool:
    """Whether a flag stands on the command line; errors in parsing are shaped by it too."""
    before = given[: list(given).index("--")] if "--" in given else given
    return flag in before


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Remember a global option wherever it was given; absent ones change nothing."""
    app = ctx.ensure_object(App)
    if value is not None and value is not False and param.name is not None:
        setattr(app, param.name, value)


def _global_options() -> list[click.Option]:
    def option(*names: str, **more: Any) -> click.Option:
        return click.Option(names, expose_value=False, callback=_keep, **more)

    return [
        option("--database-url", metavar="URL",
               help="sqlite:PATH or postgresql://…  [env: PENSTOCK_DATABASE_URL]"),
        option("--url", metavar="URL",
               help="An API to speak to instead of a database.  [env: PENSTOCK_URL]"),
        option("--config", metavar="FILE", type=click.Path(),
               help=f"Settings file.  [default: ./{DEFAULT_FILE} if it exists]"),
        option("--json", "is_json", is_flag=True, help="Answer in JSON; errors too."),
        option("--quiet", "-q", "is_quiet", is_flag=True, help="Only the answer, no remarks."),
        option("--debug", "is_debug", is_flag=True, help="Show tracebacks of errors."),
    ]  # fmt: skip


class _Global(click.Command):
    """Adds the global options, and lists them apart from the command's own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.help:  # docstrings are raw: there click's mark for lines as they stand is two signs
            self.help = self.help.replace("\\b\n", "\b\n")
        self.global_options = _global_options()
        self.params.extend(self.global_options)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The command's options, then the global ones; arguments are in the line of usage."""
        own = [p for p in self.get_params(ctx)
               if p not in self.global_options and not isinstance(p, click.Argument)]  # fmt: skip
        for title, params in (("Options", own), ("Global options", self.global_options)):
            lines = [line for p in params if (line := p.get_help_record(ctx)) is not None]
            if lines:
                with formatter.section(title):
                    formatter.write_dl(lines)
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)


class Command(_Global):
    """A command that accepts the global options."""


class Group(_Global, click.Group):
    """A family of commands; its commands are `Command`s."""

    command_class = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command meant; an unknown one is answered with the nearest."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = difflib.get_close_matches(args[0], self.list_commands(ctx), 1) if args else []
            said = error.format_message()
            if not near or "Did you mean" in said:
                raise
            raise click.UsageError(f"{said} Did you mean '{near[0]}'?", ctx) from None
