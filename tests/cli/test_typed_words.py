"""Errors name what was typed, help lists commands first."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock import connect
from penstock.cli import cli
from penstock.cli.errors import report
from penstock.cli.root import COMMANDS
from penstock.core.errors import Conflict
from tests.cli.shop import hello, pair


@pytest.fixture
def url(tmp_path: Path) -> str:
    database = f"sqlite:{tmp_path / 'penstock.db'}"
    with connect(database) as client:
        client.register([hello])
    return database


def run(url: str, *args: str) -> Result:
    return CliRunner().invoke(cli, ["--database-url", url, *args])


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("configs create acme hello --every 0", "--every: expected more than 0"),
        ("configs create acme hello --every x", "--every: expected a number of minutes, or"),
        ("configs create acme hello --cron 61", "--cron: expected a cron expression"),
        ("configs create acme hello", "--cron: expected one of --cron, --every or --event"),
        (
            "configs create acme hello --every 5 --event-topic o",
            "--event-topic: expected only one of --every, --",
        ),
        ("configs create acme nope --every 5", "PIPELINE: expected a registered pipeline"),
        ("configs create acme hello --every 5 --retry tries=2", "--retry tries: expected"),
        ("runs submit hello --customer a/b", "--customer: expected 1 to 128"),
        ("runs list --since foo", "--since: expected"),
        ("topics create a/b", "NAME: expected 3 to 255"),
        ("limits set x --lease 0s", "--lease: expected from 1s"),
    ],
)
def test_errors(url: str, line: str, text: str) -> None:
    """A person reads the option; a field of the API is not mentioned."""
    shown = run(url, *line.split())
    assert shown.exit_code == 2
    assert shown.stderr.startswith(f"Error: {text}"), shown.stderr
    for name in ("schedule_interval_minutes", "schedule_cron", "pipeline_template", "customer_id"):
        assert name not in shown.stderr


@pytest.mark.parametrize("typed", ["0 6 * * mo", "00 6  * * mon-xyz", "0 6 31 feb *"])
def test_an_invalid_cron_expression_is_shown_as_typed(url: str, typed: str) -> None:
    """The canonical spelling, in upper case, would not be found in what was typed."""
    shown = run(url, "configs", "create", "acme", "hello", "--cron", typed)
    assert (shown.exit_code, f"got '{typed}'" in shown.stderr) == (2, True), shown.stderr


def test_a_parameter_with_its_option_is_only_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    error = Conflict("Done. To repeat it, pass force (--force). A range (--from … --to …).")
    report(error, is_json=False, is_debug=False)
    assert (
        capsys.readouterr().err
        == "Error: Done. To repeat it, pass --force. A range (--from … --to …).\n"
    )


def test_json_errors_keep_the_names_of_the_api(url: str) -> None:
    shown = run(url, "configs", "create", "acme", "hello", "--every", "0", "--json")
    assert json.loads(shown.stderr)["field"] == "schedule_interval_minutes"


@pytest.mark.parametrize("args", [(), ("runs",), ("runs", "list")])
def test_help(args: tuple[str, ...]) -> None:
    """Commands come first; only the root explains the global options."""
    text = CliRunner().invoke(cli, [*args, "--help"]).output
    place = text.index("\nGlobal options")
    assert "Commands:" not in text[place:]
    assert ("Database to use" in text) is (args == ())
    assert "--json" in text[place:]


@pytest.mark.parametrize("name", list(COMMANDS))
def test_help_of_a_group_cuts_no_summary(name: str) -> None:
    """Each command of a group is listed with its whole first sentence."""
    assert "..." not in CliRunner().invoke(cli, [name, "--help"]).output.partition("Commands:")[2]


def test_columns_are_stable(url: str) -> None:
    """A column without values is printed; scripts and eyes find the others where they were."""
    run(url, "runs", "submit", "hello", "--at", "10m")
    first = run(url, "runs", "list").output.splitlines()[0].split()
    run(url, "runs", "submit", "hello", "--customer", "acme", "--partition", "2026-01-01")
    assert run(url, "runs", "list").output.splitlines()[0].split() == first


def test_unknown_columns_are_refused_with_the_names_of_the_fields(url: str) -> None:
    """`--columns` takes fields of the result, not the options of the command."""
    run(url, "runs", "submit", "hello")
    shown = run(url, "runs", "list", "--columns", "run,state")
    assert shown.exit_code == 2
    assert shown.stderr.startswith("Error: --columns: expected columns from run_id, config_id, ")
    assert shown.stderr.endswith("got 'run'. Did you mean 'run_id'?\n")
    assert "pipeline_template" in shown.stderr
    assert run(url, "runs", "list", "--columns", "run_id,pipeline_template").exit_code == 0


def test_a_row_does_not_depend_on_other_rows(tmp_path: Path) -> None:
    """The processor and the attempt of a run are shown, whatever other rows there are."""
    database = f"sqlite:{tmp_path / 'penstock.db'}"
    with connect(database) as client:
        client.register([pair])
    for name in ("left", "right"):
        run(database, "runs", "submit", "pair", "--processor", name)
    first, *_ = run(database, "runs", "list", "--limit", "1").output.splitlines()[1:]
    both = run(database, "runs", "list", "--limit", "2").output.splitlines()[1:]
    assert "pair" in first
    assert first.split() in [line.split() for line in both]
    assert {"left", "right"} & set(first.split())
    assert "1" in first.split()
