"""Every setting, route, command, event, metric and alert is in the documentation, by its name.

Pages under `docs/reference` are compared with the code elsewhere; this proves that each name has
its row or heading, and fails for a name that a generator leaves out. A setting that is a table has
a section on the page about it, with every key of every table in it.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click
import pytest

from benchmarks.__main__ import BENCHES
from penstock.alerts.declared import (
    AlertSettings,
    ChannelSpec,
    HeartbeatSpec,
    RouteSpec,
    RuleSpec,
    WindowSpec,
)
from penstock.alerts.rules import BUILT_IN
from penstock.assembly.routes import ROUTES
from penstock.assembly.settings import SETTINGS
from penstock.assets.alert_metrics import all_metrics
from penstock.assets.events_page import TOPICS, process_events
from penstock.audit.telemetry import event_name
from penstock.bus.incoming.inbound_push import parse_incoming
from penstock.bus.message import BUILTIN_TOPICS, PHASE_TOPICS
from penstock.bus.transports.bridges import parse_bridges
from penstock.cli.root import cli
from penstock.core.errors import InvalidInput
from penstock.core.records.record import Record
from penstock.slos.declared import SloSettings, TargetSpec
from penstock.telemetry.declared import TelemetrySettings
from penstock.web.login.identity import parse_identity

DOCS = Path(__file__).parents[2] / "docs"


def commands() -> Iterator[str]:
    def walk(path: str, command: click.Command) -> Iterator[str]:
        context = click.Context(command, info_name=path)
        if not isinstance(command, click.Group):
            yield f"## {path}"
            return
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from walk(f"{path} {name}", found)

    yield from walk("penstock", cli)


DOCUMENTED = {
    "settings": (
        "reference/settings.md",
        [f"| `{one.name}` | `{one.variable}` |" for one in SETTINGS],
    ),
    "routes": ("reference/api.md", [f"`{one.method} {one.path}`" for one in ROUTES.all]),
    "commands": ("reference/cli.md", list(commands())),
    "events": ("reference/events.md", [f"| `{event_name(one)}` |" for one in process_events()]),
    "topics": ("reference/events.md", [f"| `{name}` |" for name in BUILTIN_TOPICS]),
    "metrics": ("reference/metrics.md", [f"| `{one.name}`" for one in all_metrics()]),
    "alerts": ("operations/alerts.md", [f"### {one.name}" for one in BUILT_IN]),
    "benchmarks": ("benchmarks.md", [f"| `{name}` |" for name in BENCHES]),
}


def missing(names: Collection[str], text: str) -> list[str]:
    """Return the names without a place: a whole line, such as a heading, or the start of a row."""
    lines = text.splitlines()
    rows = [line for line in lines if line.startswith("|")]

    def is_there(name: str) -> bool:
        return name in lines or (name[0] == "|" and any(row.startswith(name) for row in rows))

    return [name for name in names if not is_there(name)]


@pytest.mark.parametrize("kind", DOCUMENTED)
def test_every_name_has_its_place(kind: str) -> None:
    page, names = DOCUMENTED[kind]
    assert len(names) > 5
    assert missing(names, (DOCS / page).read_text("utf-8")) == []


def test_a_longer_name_is_no_place() -> None:
    text = "## penstock backfills\n\nSee `## penstock top`.\n| `pools` | x |\n"
    assert missing(["## penstock backfill", "## penstock top", "| `pool` |"], text) == [
        "## penstock backfill", "## penstock top", "| `pool` |",
    ]  # fmt: skip
    assert missing(["## penstock backfills", "| `pools` |"], text) == []


def keys_of(record: type[Record]) -> set[str]:
    """Return the keys of a table that is read as this record."""
    return set(record.__struct_encode_fields__)


def accepted(parse: Callable[[Any], object], table: Any) -> set[str]:
    """Return the keys of a table that its parser names when it refuses another one."""
    with pytest.raises(InvalidInput) as refused:
        parse(table)
    names = re.fullmatch(r"(?:only|one of) ([a-z_]+(?:, [a-z_]+)+)", refused.value.expected)
    assert names is not None, refused.value.expected
    return set(names[1].split(", "))


OTHER: Final = {"no_such_key": "x"}
PARTS: Final[Mapping[str, tuple[str, type[Record]]]] = {
    "channels": ("[alerts.channels.NAME]", ChannelSpec),
    "routes": ("[[alerts.routes]]", RouteSpec),
    "rules": ("[alerts.rules.NAME]", RuleSpec),
    "windows": ("[alerts.windows.NAME]", WindowSpec),
    "heartbeat": ("[alerts.heartbeat]", HeartbeatSpec),
}
TABLES: Final[Mapping[str, tuple[str, Mapping[str, Collection[str]]]]] = {
    "alerts": (
        "how-to/alerts.md",
        {
            "[alerts]": keys_of(AlertSettings) - set(PARTS),
            **{name: keys_of(record) for name, record in PARTS.values()},
        },
    ),
    "slos": (
        "how-to/slos.md",
        {"[slos]": keys_of(SloSettings) - {"targets"}, "[[slos.targets]]": keys_of(TargetSpec)},
    ),
    "login": (
        "how-to/dashboard.md",
        {"[login.oidc]": accepted(parse_identity, {"oidc": OTHER}) - {"roles"}},
    ),
    "telemetry": ("how-to/telemetry.md", {"": keys_of(TelemetrySettings)}),
    "bridges": (
        "how-to/move-between-transports.md",
        {"[bridges.NAME]": accepted(parse_bridges, {"main": OTHER})},
    ),
    "incoming_push": (
        "how-to/push-messages.md",
        {"[incoming_push.NAME]": accepted(parse_incoming, {"main": OTHER})},
    ),
}
"""Settings that are tables: the page about each, and the keys of every table in it.

A name that is empty stands for a section with one row for each key.
"""


def documented(text: str, setting: str, table: str) -> set[str]:
    """Return the keys that the section about the fields of a setting lists for a table."""
    section = re.search(rf"^## All fields of `{setting}`\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    rows = [] if section is None else re.findall(r"^\| (.+?) \| (.*) \|$", section[1], re.M)
    cells = [what if table else name for name, what in rows if name == f"`{table}`" or not table]
    return {key for cell in cells for key in re.findall(r"`(\w+)`", cell)}


@pytest.mark.parametrize("setting", TABLES)
def test_every_key_of_a_table_is_documented(setting: str) -> None:
    page, tables = TABLES[setting]
    text = (DOCS / page).read_text("utf-8")
    assert all(keys for keys in tables.values())
    lacking = {name: sorted(set(keys) - documented(text, setting, name))
               for name, keys in tables.items()}  # fmt: skip
    assert {name: keys for name, keys in lacking.items() if keys} == {}


def test_no_table_is_forgotten() -> None:
    assert {one.name for one in SETTINGS if one.kind == "table"} == set(TABLES)
    assert {name for name, _ in PARTS.values()} <= set(TABLES["alerts"][1])
    assert set(PARTS) <= keys_of(AlertSettings)


def test_topics_are_all_described() -> None:
    described = {name for name in TOPICS if not name.startswith("<")}
    assert described == BUILTIN_TOPICS
    assert {re.sub(r"^<\w+>\.<\w+>", "", name) for name in TOPICS if name[0] == "<"} == set(
        PHASE_TOPICS
    )
