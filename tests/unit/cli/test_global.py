"""What all commands share: options, errors, exit codes, help, completion, quick starts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import penstock
from penstock.cli import cli, faults
from penstock.cli.app import App
from penstock.cli.root import FAMILIES
from tests.unit.cli.conftest import Shell


def python(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *args],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


class TestHelp:
    """Help is quick, complete and the same everywhere."""

    def test_the_list_of_commands_is_that_of_the_commands(self) -> None:
        """What `penstock --help` says of a command is what the command says of itself."""
        context = click.Context(cli)
        for name, (_, text) in FAMILIES.items():
            command = cli.get_command(context, name)
            assert command is not None
            assert (command.help or "").split("\n")[0] == text, name

    def test_nothing_heavy_is_imported(self) -> None:
        """The store, the engine, rich and psycopg stay out until a command needs them."""
        code = (
            "import sys; sys.argv = ['penstock', '--help']\n"
            "import penstock.cli\n"
            "try:\n    penstock.cli.main()\nexcept SystemExit: pass\n"
            "heavy = ('rich', 'psycopg', 'msgspec', 'sqlite3', 'pysqlite3', 'penstock.store',"
            " 'penstock.engine', 'penstock.client', 'importlib.metadata')\n"
            "print([m for m in heavy if m in sys.modules], file=sys.stderr)"
        )
        done = python("-c", code)
        assert done.stderr.strip() == "[]"
        assert "Commands:" in done.stdout

    def test_every_command_has_help_and_json(self) -> None:
        """Each command explains itself and its options, and accepts the global ones."""
        runner = CliRunner()
        context = click.Context(cli)
        paths: list[list[str]] = []
        for name in FAMILIES:
            command = cli.get_command(context, name)
            if isinstance(command, click.Group):
                paths += [[name, child] for child in command.commands]
            paths.append([name])
        for path in paths:
            result = runner.invoke(cli, [*path, "--help"])
            assert result.exit_code == 0, path
            assert "--json" in result.stdout, path
            assert "\\b" not in result.stdout, path
            command = cli.get_command(context, path[0])
            if isinstance(command, click.Group) and path[1:]:
                command = command.commands[path[1]]
            assert command is not None
            options = [param for param in command.params if isinstance(param, click.Option)]
            assert all(option.help for option in options), path

    def test_examples_stand_on_lines_of_their_own(self) -> None:
        """What is to be copied is not wrapped into a paragraph."""
        told = CliRunner().invoke(cli, ["dlq", "replay", "--help"]).stdout.splitlines()
        assert "  penstock dlq replay dl_5m7t0c2d" in told

    def test_version(self) -> None:
        """The version is the package's."""
        assert penstock.__version__ in CliRunner().invoke(cli, ["--version"]).stdout

    def test_completion(self) -> None:
        """The shell gets the commands from click's completion."""
        done = python(
            "-m", "penstock", _PENSTOCK_COMPLETE="bash_complete", COMP_WORDS="penstock con",
            COMP_CWORD="1",
        )  # fmt: skip
        via_name = done.stdout or python(
            "-c", "import penstock.cli as c; c.main()", _PENSTOCK_COMPLETE="bash_complete",
            COMP_WORDS="penstock con", COMP_CWORD="1",
        ).stdout  # fmt: skip
        assert "configs" in via_name


class TestOptions:
    """Global options, wherever they stand."""

    def test_before_and_after(self, shell: Shell) -> None:
        """--json means the same on both sides of the command."""
        assert shell.ok("--json", "runs", "list") == shell.ok("runs", "list", "--json")
        assert shell.ok("runs", "--json", "list") == shell.ok("runs", "list", "--json")

    def test_environment_and_file(self, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
        """A file in the folder, then the environment, then the flag."""
        runner = CliRunner()
        Path("penstock.toml").write_text('database_url = "sqlite:from_file.db"\n')
        assert "from_file.db" in runner.invoke(cli, ["db", "path"]).stdout
        Path("other.toml").write_text('database_url = "sqlite:other.db"\n')
        assert "other.db" in runner.invoke(cli, ["--config", "other.toml", "db", "path"]).stdout
        monkeypatch.setenv("PENSTOCK_DATABASE_URL", "sqlite:from_env.db")
        assert "from_env.db" in runner.invoke(cli, ["db", "path"]).stdout
        assert str(shell.path) in shell.ok("db", "path")

    @pytest.mark.parametrize(
        ("variable", "value", "words"),
        [
            ("PENSTOCK_DATABASE_URL", "mysql://x", "sqlite:PATH or postgresql://"),
            ("PENSTOCK_DATABASE_URI", "sqlite:x", "Did you mean PENSTOCK_DATABASE_URL?"),
            ("PENSTOCK_WORKER_SLOTS", "many", "a whole number"),
            ("PENSTOCK_LOG_LEVEL", "loud", "debug, info, warning or error"),
        ],
    )
    def test_bad_settings(
        self, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, words: str
    ) -> None:
        """A setting that cannot be used is named, with what would do."""
        monkeypatch.setenv(variable, value)
        result = CliRunner().invoke(cli, ["status"])
        assert result.exit_code == 2
        assert words in result.stderr

    def test_missing_config_file(self) -> None:
        """A named file must be there."""
        result = CliRunner().invoke(cli, ["--config", "nowhere.toml", "status"])
        assert result.exit_code == 2
        assert "nowhere.toml" in result.stderr


class TestErrors:
    """One line, or JSON; never a traceback."""

    @pytest.mark.parametrize(
        ("args", "words"),
        [
            (["nonsense"], "No such command 'nonsense'"),
            (["statsu"], "Did you mean 'status'?"),
            (["runs", "lits"], "Did you mean 'list'?"),
            (["runs", "nonsense"], "No such command 'nonsense'"),
            (["runs", "list", "--nonsense"], "No such option"),
            (["runs", "show"], "Missing argument 'RUN_ID'"),
            (["runs", "list", "--limit", "x"], "'x' is not a valid integer"),
        ],
    )
    def test_usage(self, shell: Shell, args: list[str], words: str) -> None:
        """The mistake and the help that explains it, in one line; exit code 2."""
        answer = shell(*args)
        assert answer.code == 2
        assert words in answer.err
        assert "--help`" in answer.err
        assert len(answer.err.strip().splitlines()) == 1
        assert shell(*args, "--json").error()["code"] == "usage"

    @pytest.mark.parametrize("args", [[], ["runs"], ["configs"]])
    def test_nothing_asked_is_answered_with_help(self, args: list[str]) -> None:
        """Plain help, no complaint; under --json a record."""
        result = CliRunner().invoke(cli, args)
        assert result.exit_code == 2
        assert result.stderr.startswith("Usage:")
        assert "Error" not in result.stderr
        record = json.loads(CliRunner().invoke(cli, [*args, "--json"]).stderr)
        assert record["message"].split(".")[0] in ("A command is missing", "Missing command")

    def test_an_unforeseen_error(self, capsys: pytest.CaptureFixture[str]) -> None:
        """It says that --debug tells more, and tells more under --debug."""
        assert faults.report(ValueError("odd"), is_json=False, is_debug=False) == 1
        assert "--debug" in capsys.readouterr().err
        faults.report(ValueError("odd"), is_json=True, is_debug=False)
        assert json.loads(capsys.readouterr().err)["code"] == "internal"
        faults.report(ValueError("odd"), is_json=False, is_debug=True)
        assert "ValueError: odd" in capsys.readouterr().err

    def test_ctrl_c(self, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
        """Exit code 130, nothing printed."""

        def interrupt(_: App) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(App, "settings", interrupt)
        answer = shell("status")
        assert (answer.code, answer.out) == (130, "")


class TestPublicNames:
    """`penstock/__init__.py`."""

    def test_every_name_loads(self) -> None:
        """Each name of __all__ is there, and nothing else is promised."""
        for name in penstock.__all__:
            assert getattr(penstock, name) is not None
        assert sorted(penstock.__all__) == dir(penstock)
        with pytest.raises(AttributeError, match="nonsense"):
            penstock.nonsense  # type: ignore[attr-defined]  # noqa: B018


class TestWrongIds:
    """What is asked of the wrong thing is answered with the right command."""

    @pytest.mark.parametrize(
        ("line", "code", "words"),
        [
            (["why", "dl_8fy089d6"], 2, "penstock dlq show dl_8fy089d6"),
            (["explain", "run_8fy089d6"], 2, "penstock why run_8fy089d6"),
            (["explain", "hello"], 2, "hello 2025-12-31, or a flow's id"),
            (["trace", "nobody"], 3, "a correlation id, a flow or a run"),
            (["topics", "publish", "rosters", "{}"], 3, "penstock topics create"),
            (["subscriptions", "pull", "to-table"], 3, "penstock subscriptions list"),
            (["limits", "show", "crm"], 3, "penstock limits list"),
            (["dlq", "show", "dl_8fy089d7"], 3, "penstock dlq list --status all"),
        ],
    )
    def test_the_next_step(self, shell: Shell, line: list[str], code: int, words: str) -> None:
        """In the line for people and in the fix of the JSON."""
        answer = shell(*line)
        assert answer.code == code
        assert words in answer.err
        assert words in shell(*line, "--json").error()["fix"]


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    """It is named with what would do."""
    path = tmp_path / "notes.txt"
    path.write_text("not a database at all, just some words\n" * 50)
    answer = Shell(path)("status")
    assert answer.code == 5
    assert f"cannot open {path}" in answer.err
    assert "Use a SQLite file created by Penstock" in answer.err


def test_an_api_that_is_not_there() -> None:
    """Nothing listens on port 1."""
    result = CliRunner().invoke(cli, ["status", "--url", "http://127.0.0.1:1"])
    assert result.exit_code == 5
    assert "Does `penstock up` or `penstock api` run there?" in result.stderr
