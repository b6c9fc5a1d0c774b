"""Shell completion: commands, options, and names and ids from the database or over the API."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from penstock import connect
from penstock.cli import cli
from penstock.cli.completion import ROWS, SOURCES
from penstock.remote.client import API_MODULES
from tests.kits.shell import Shell
from tests.server.kit import ServedApi

Prepare = Callable[[Shell], str]


def completions(*args: str, incomplete: str = "") -> list[str]:
    """Return what a shell offers for the next word of a command line."""
    found = ShellComplete(cli, {}, "penstock", "_PENSTOCK_COMPLETE")
    return [item.value for item in found.get_completions(list(args), incomplete)]


def _limit(shell: Shell) -> str:
    shell.ok("limits", "set", "crm", "--capacity", "3")
    return "crm"


def _key(shell: Shell) -> str:
    return str(shell.json("keys", "create", "ci", "--role", "viewer")["info"]["key_id"])


def _config(shell: Shell) -> str:
    return str(
        shell.json("configs", "create", "acme", "hello", "--every", "5")["items"][0]["config_id"]
    )


def _customer(shell: Shell) -> str:
    _config(shell)
    return "acme"


def _topic(shell: Shell) -> str:
    shell.ok("topics", "create", "orders")
    return "orders"


def _subscription(shell: Shell) -> str:
    _topic(shell)
    shell.ok("subscriptions", "create", "orders-sub", "--topic", "orders")
    return "orders-sub"


def _backfill(shell: Shell) -> str:
    _flow(shell)
    shell.ok("backfill", "pair", "--partition", "b", "--yes")
    (made,) = shell.json("backfills", "list")["items"]
    return str(made["backfill_id"])


def _flow(shell: Shell) -> str:
    shell.ok("trigger", "pair", "2025-12-31")
    with connect(shell.url) as client:
        (flow,) = client.flows.list(limit=1).items  # type: ignore[attr-defined,unused-ignore]
    return str(flow.flow_id)


CASES: list[tuple[str, Prepare, list[str]]] = [
    ("Views", lambda _: "hello", ["runs", "list", "--pipeline"]),
    ("Views", lambda _: "hello", ["runs", "submit"]),
    ("Views", lambda _: "hello", ["pipelines", "show"]),
    ("Views", lambda _: "hello", ["why"]),
    ("Views", lambda _: "hello", ["pause", "pipeline"]),
    ("Limits", _limit, ["limits", "show"]),
    ("Keys", _key, ["keys", "rotate"]),
    ("Runs", lambda shell: shell.submit(), ["runs", "show"]),
    ("Runs", lambda shell: shell.submit(), ["runs", "retry"]),
    ("Configs", _config, ["configs", "show"]),
    ("Configs", _config, ["configs", "audit", "acme", "--config-id"]),
    ("Configs", _config, ["pause", "config"]),
    ("Configs", _customer, ["runs", "list", "--customer"]),
    ("Configs", _customer, ["configs", "create"]),
    ("Configs", _customer, ["pause", "customer"]),
    ("Flows", _flow, ["flows", "show"]),
    ("Backfills", _backfill, ["backfills", "show"]),
    ("Topics", _topic, ["topics", "publish"]),
    ("Topics", _topic, ["subscriptions", "create", "s", "--topic"]),
    ("Subscriptions", _subscription, ["subscriptions", "pull"]),
    ("Subscriptions", _subscription, ["dlq", "list", "--subscription"]),
]


@pytest.mark.parametrize(
    ("prepare", "words"),
    [case[1:] for case in CASES if case[0] in API_MODULES],
    ids=[" ".join(case[2]) for case in CASES if case[0] in API_MODULES],
)
def test_values(shell: Shell, prepare: Prepare, words: list[str]) -> None:
    """Names and ids are offered, also after a part of them; other beginnings offer nothing."""
    value = prepare(shell)
    given = ["--database-url", shell.url, *words]
    assert value in completions(*given)
    assert completions(*given, incomplete=value[:-1]) == [value]
    assert completions(*given, incomplete="~") == []


def test_every_source_is_tested() -> None:
    """Each list that values come from has a case above."""
    groups = {source.group.capitalize() for source in SOURCES.values()}
    assert groups == {case[0] for case in CASES}


def test_commands_and_options(shell: Shell) -> None:
    """Commands, options and choices are offered as before."""
    assert completions(incomplete="compl") == ["complete", "completion"]
    assert "--pipeline" in completions("runs", "list", incomplete="--")
    assert "open" in completions("alerts", "list", "--state")
    assert completions("completion") == ["bash", "zsh", "fish"]
    shell.ok("keys", "create", "ci", "--role", "viewer")
    assert completions("--database-url", shell.url, "keys", "create") == []
    assert completions("--database-url", shell.url, "pause", "all") == []


def test_the_number_of_rows_is_bounded(shell: Shell) -> None:
    """At most 50 rows are read."""
    for n in range(ROWS + 5):
        shell.ok("limits", "set", f"crm-{n:02}", "--capacity", "1")
    found = completions("--database-url", shell.url, "limits", "show")
    assert found == [f"crm-{n:02}" for n in range(ROWS)]


def test_over_the_api(served: ServedApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a URL the values come from the API."""
    monkeypatch.setenv("PENSTOCK_API_KEY", served.keys["admin"])
    url = f"http://127.0.0.1:{served.server.port}"
    assert completions("--url", url, "pipelines", "show", incomplete="night") == ["nightly"]
    monkeypatch.setenv("PENSTOCK_API_KEY", served.keys["acme-viewer"])
    assert completions("--url", url, "keys", "rotate") == []


@pytest.mark.usefixtures("alone")
def test_errors_offer_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Without a database nothing is offered, printed or created."""
    for url in ("sqlite:missing.db", "nonsense", "sqlite:"):
        assert completions("--database-url", url, "limits", "show") == []
    assert completions("--url", "http://penstock.invalid", "--database-url", "sqlite:x",
                       "limits", "show") == []  # fmt: skip
    assert completions("limits", "show") == []
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_script(shell: Shell, name: str) -> None:
    """The script calls penstock with the variable that asks for completions."""
    out = shell.ok("completion", name)
    assert f"_PENSTOCK_COMPLETE={name}_complete" in out
    assert "penstock" in out
