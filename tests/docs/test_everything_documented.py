"""Every setting, route, command, event, metric and alert is in the documentation, by its name.

Pages under `docs/reference` are compared with the code elsewhere; this proves that each name has
its row, and fails for a name that a generator leaves out.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from benchmarks.__main__ import BENCHES
from penstock.alerts.rules import BUILT_IN
from penstock.assembly.routes import ROUTES
from penstock.assembly.settings import SETTINGS
from penstock.assets.alert_metrics import all_metrics
from penstock.assets.events_page import TOPICS, process_events
from penstock.audit.telemetry import event_name
from penstock.bus.message import BUILTIN_TOPICS, PHASE_TOPICS
from penstock.cli.root import cli

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
    "alerts": ("operations/alerts.md", [f"### {one.name}\n" for one in BUILT_IN]),
    "benchmarks": ("benchmarks.md", [f"| `{name}` |" for name in BENCHES]),
}


@pytest.mark.parametrize("kind", DOCUMENTED)
def test_every_name_has_its_place(kind: str) -> None:
    page, names = DOCUMENTED[kind]
    text = (DOCS / page).read_text("utf-8")
    assert len(names) > 5
    assert [name for name in names if name not in text] == []


def test_topics_are_all_described() -> None:
    described = {name for name in TOPICS if not name.startswith("<")}
    assert described == BUILTIN_TOPICS
    assert {re.sub(r"^<\w+>\.<\w+>", "", name) for name in TOPICS if name[0] == "<"} == set(
        PHASE_TOPICS
    )
