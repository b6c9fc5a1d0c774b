"""Parse command-line arguments: ids, times, key=value pairs, JSON and files.

Every error names the field, what was expected and how to fix it.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from penstock.cli.completion import SOURCES, complete
from penstock.core.clock import MINUTE, parse_duration
from penstock.core.clock import parse_when as parse_when
from penstock.core.errors import InvalidInput
from penstock.core.ids import decode, encode

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # generic for type checkers only, from click 8.2 on

FILE_MAX_BYTES = 200_000_000


class PublicId(ParamType):
    """A public id such as run_7h2kq0v3, validated and normalized."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.name = f"{kind}_id"

    def convert(self, value: Any, param: click.Parameter | None, _: click.Context | None) -> str:
        """Return the id in its canonical spelling."""
        number = decode(self.kind, value, param.name if param is not None else None)
        return encode(self.kind, number)

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG002 - click's own
        incomplete: str,
    ) -> list[CompletionItem]:
        """Return the ids that start with `incomplete`."""
        return complete(ctx, self.kind, incomplete) if self.kind in SOURCES else []


class JsonObject(ParamType):
    """A JSON object given inline, or as @FILE to read it from a file."""

    name = "json"

    def convert(
        self, value: Any, param: click.Parameter | None, _: click.Context | None
    ) -> dict[str, Any]:
        """Parse and return the object."""
        if isinstance(value, dict):
            return value
        field = (param.name if param is not None else None) or "json"
        text = str(value)
        if text.startswith("@"):
            text = read_text(Path(text[1:]), field)
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(field, "a JSON object", value, f"{error}.") from None
        if not isinstance(found, dict):
            raise InvalidInput(field, 'a JSON object such as {"region": "eu"}', value)
        return found


class Minutes(ParamType):
    """A number of minutes, or a duration with units such as 90s, 5m or 1h30m."""

    name = "minutes"

    def convert(self, value: Any, param: click.Parameter | None, _: click.Context | None) -> float:
        """Return the number of minutes."""
        field = (param.name if param is not None else None) or "minutes"
        with contextlib.suppress(ValueError):
            number = float(value)
            return int(number) if number.is_integer() else number
        try:
            minutes = parse_duration(str(value), field) / MINUTE
        except InvalidInput:
            expected = 'a number of minutes, or a duration such as "90s", "5m" or "1h30m"'
            raise InvalidInput(field, expected, value) from None
        return int(minutes) if minutes.is_integer() else minutes


RUN = PublicId("run")
CONFIG = PublicId("cfg")
KEY = PublicId("key")
FLOW = PublicId("flow")
OVERRIDE = PublicId("ovr")
INTERVENTION = PublicId("int")
BACKFILL = PublicId("bf")
JSON = JsonObject()
MINUTES = Minutes()


RUN_PREFIX, FLOW_PREFIX, CONFIG_PREFIX = "run_", "flow_", "cfg_"


def run_id(text: str) -> str:
    """Validate a run id and return its canonical spelling."""
    return encode("run", decode("run", text))


def flow_id(text: str) -> str:
    """Validate a flow id and return its canonical spelling."""
    return encode("flow", decode("flow", text))


def missing_partition_error(thing: str) -> InvalidInput:
    """Return the error for a command that got `thing` but no partition."""
    if thing.startswith("dl_"):
        fix = f"That is a dead letter: penstock dlq show {thing}"
    elif thing.startswith(RUN_PREFIX):
        fix = f"That is a run: penstock why {thing}"
    else:
        command = f"penstock {click.get_current_context().info_name}"
        fix = (
            f"Add a partition ({command} {thing} 2025-12-31), or pass a flow id "
            "(penstock flows list)."
        )
    return InvalidInput("partition", "a partition such as 2025-12-31", None, fix)


def parse_time_of_day(text: str, timezone: str, now: int) -> int | None:
    """Parse HH:MM to its next occurrence in a time zone; None if the text has another form."""
    hour, colon, minute = text.partition(":")
    is_time = colon and len(minute) == 2 and len(hour) <= 2 and (hour + minute).isdecimal()
    if not is_time or not hour or not (int(hour) < 24 and int(minute) < 60):
        return None
    # Imported here because few commands need it.
    from penstock.schedules.cadence import cron, next_after

    return next_after(cron(f"{int(minute)} {int(hour)} * * *", timezone), now - 1)


def parse_pairs(given: Sequence[str], field: str) -> dict[str, Any]:
    """Parse key=value pairs; a value that is valid JSON is decoded, any other stays text."""
    found: dict[str, Any] = {}
    for item in given:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise InvalidInput(field, "key=value", item, 'For example --param region="eu-west-1".')
        try:
            found[key] = json.loads(value)
        except (ValueError, RecursionError):
            found[key] = value
    return found


def read_records(path: Path, field: str = "file") -> list[tuple[str, dict[str, Any]]]:
    """Read the objects of a JSON, JSON-lines or TOML file, each with its location in the file."""
    text = read_text(path, field)
    if path.suffix.lower() == ".toml":
        found = _toml(path, text, field)
    else:
        found = _json_objects(path, text, field)
    if not found:
        raise InvalidInput(field, "at least one config", str(path))
    for where, item in found:
        if not isinstance(item, dict):
            raise InvalidInput(f"{path.name} {where}", "an object", item)
    return found


def confirm(question: str) -> None:
    """Ask a yes/no question and abort on no; without a terminal, fail and suggest --yes."""
    try:
        is_wanted = click.confirm(question)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        click.echo(err=True)  # the prompt did not end its line
        raise click.UsageError("Cannot ask for confirmation (no terminal): add --yes.") from None
    if not is_wanted:
        raise click.Abort


def read_text(path: Path, field: str) -> str:
    """Read a UTF-8 file (`-` is standard input); errors name `field`."""
    try:
        if str(path) == "-":
            return sys.stdin.read()
        if path.stat().st_size > FILE_MAX_BYTES:
            raise InvalidInput(field, f"at most {FILE_MAX_BYTES:,} bytes", str(path))
        return path.read_text("utf-8")
    except OSError as error:
        raise InvalidInput(field, "a readable file", str(path), f"{error.strerror}.") from None
    except UnicodeDecodeError:
        raise InvalidInput(field, "a file in UTF-8", str(path)) from None


def _toml(path: Path, text: str, field: str) -> list[tuple[str, Any]]:
    try:
        found = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also a number that is too long
        raise InvalidInput(field, "valid TOML", str(path), f"{error}.") from None
    items = found.get("configs")
    if not isinstance(items, list):
        raise InvalidInput(field, "a list of [[configs]] tables", str(path))
    return [(f"configs[{n}]", item) for n, item in enumerate(items)]


def _json_objects(path: Path, text: str, field: str) -> list[tuple[str, Any]]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as whole:
        lines = [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
        if len(lines) < 2:
            raise InvalidInput(field, "JSON or JSON lines", str(path), f"{whole}.") from None
        items: list[tuple[str, Any]] = []
        for n, line in lines:
            try:
                items.append((f"line {n}", json.loads(line)))
            except (ValueError, RecursionError) as error:
                fix = f"line {n}: {error}."
                raise InvalidInput(field, "JSON or JSON lines", str(path), fix) from None
        return items
    if isinstance(found, list):
        return [(f"item {n}", item) for n, item in enumerate(found, 1)]
    return [("item 1", found)]
