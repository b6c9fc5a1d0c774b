"""Behaviour shared by all commands: options, errors, exit codes, help, completion, fast start."""

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import penstock
from penstock.cli import cli, errors
from penstock.cli.app import App, Command, Group
from penstock.cli.root import COMMANDS, INSTEAD
from tests.kits.shell import Shell


def python(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    # Coverage would add its own imports to those that the tests below check.
    inherited = {n: value for n, value in os.environ.items() if not n.startswith("COVERAGE_")}
    return subprocess.run(
        [sys.executable, *args],
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


class TestRepeatedOptions:
    """Options that are given more than once."""

    def test_a_single_option_is_refused(self, shell: Shell) -> None:
        """The first value would be ignored silently."""
        result = shell("dlq", "list", "--error", "TIMEOUT", "--error", "UNKNOWN")
        assert result.code == 2
        assert "--error was given 2 times; give it once." in result.err

    def test_flags_and_lists_may_be_repeated(self, shell: Shell) -> None:
        """A repeated flag means the same; a list has several values."""
        shell.ok("status", "--json", "--json")


class TestHelp:
    """Help is fast, complete and consistent."""

    def test_command_summaries_match(self) -> None:
        """The summary in `penstock --help` is the first line of the command's help."""
        context = click.Context(cli)
        for name, (_, text) in COMMANDS.items():
            command = cli.get_command(context, name)
            assert command is not None
            assert (command.help or "").split("\n")[0] == text, name

    def test_nothing_heavy_is_imported(self) -> None:
        """`penstock --help` does not import the store, the worker, rich or psycopg."""
        code = (
            "import sys; sys.argv = ['penstock', '--help']\n"
            "import penstock.cli\n"
            "try:\n    penstock.cli.main()\nexcept SystemExit: pass\n"
            "heavy = ('rich', 'psycopg', 'msgspec', 'sqlite3', 'pysqlite3', 'penstock.db.store',"
            " 'penstock.worker', 'penstock.client', 'importlib.metadata')\n"
            "print([m for m in heavy if m in sys.modules], file=sys.stderr)"
        )
        done = python("-c", code)
        assert done.stderr.strip() == "[]"
        assert "Operate flows:" in done.stdout

    def test_every_command_has_help_and_json(self) -> None:
        """Each command and option has help, and each command accepts the global options."""
        runner = CliRunner()
        context = click.Context(cli)
        paths: list[list[str]] = []
        for name in COMMANDS:
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

    def test_examples_are_not_wrapped(self) -> None:
        """Each example command is on a separate line."""
        lines = CliRunner().invoke(cli, ["dlq", "replay", "--help"]).stdout.splitlines()
        assert "  penstock dlq replay dl_5m7t0c2d" in lines

    def test_version(self) -> None:
        """--version prints the version of the package."""
        assert penstock.__version__ in CliRunner().invoke(cli, ["--version"]).stdout

    def test_completion(self) -> None:
        """Shell completion returns command names."""
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
    """Global options and settings."""

    def test_before_and_after(self, shell: Shell) -> None:
        """--json has the same effect before and after the command."""
        assert shell.ok("--json", "runs", "list") == shell.ok("runs", "list", "--json")
        assert shell.ok("runs", "--json", "list") == shell.ok("runs", "list", "--json")

    def test_environment_and_file(self, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
        """The environment overrides the settings file, and the flag overrides both."""
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
        """The error says what is expected of an invalid setting."""
        monkeypatch.setenv(variable, value)
        result = CliRunner().invoke(cli, ["status"])
        assert result.exit_code == 2
        assert words in result.stderr

    def test_missing_config_file(self) -> None:
        """A file passed with --config must exist."""
        result = CliRunner().invoke(cli, ["--config", "nowhere.toml", "status"])
        assert result.exit_code == 2
        assert "nowhere.toml" in result.stderr


class TestNames:
    """Names of parameters."""

    def test_no_parameter_shares_a_name_with_a_global_option(self) -> None:
        """Both would have the same place: the global option would get the command's value."""
        paths: list[tuple[str, ...]] = []

        def check(command: click.Command, *path: str) -> None:
            assert isinstance(command, (Command, Group)), path
            names = {one.name for one in command.global_options}
            own = [one for one in command.params if one not in command.global_options]
            assert [one.opts for one in own if one.name in names] == [], path
            paths.append(path)
            if isinstance(command, click.Group):
                context = click.Context(command)
                for name in command.list_commands(context):
                    child = command.get_command(context, name)
                    assert child is not None
                    check(child, *path, name)

        check(cli)
        assert ("trigger",) in paths
        assert ("runs", "list") in paths


def test_list_options_take_commas(shell: Shell) -> None:
    """`--pipelines a.py,b.py` is two files, as in the environment."""
    both = shell("worker", "--pipelines", "missing_one.py, missing_two.py")
    assert both.code == 2
    assert "missing_one.py" in both.err
    assert "missing_two.py" not in both.err


class TestErrors:
    """Errors are one line or JSON, never a traceback."""

    @pytest.mark.parametrize(
        ("args", "words"),
        [
            (["nonsense"], "No such command 'nonsense'"),
            (["statsu"], "Did you mean 'status'?"),
            (["runs", "lits"], "Did you mean 'list'?"),
            (["start"], "No such command 'start'. Did you mean 'up'? See"),
            (["version"], "No such command 'version'. Did you mean '--version'? See"),
            (["logs"], "No such command 'logs'. Did you mean 'runs logs RUN'? See"),
            (["list"], "No such command 'list'. Did you mean 'flows list' or 'runs list'? See"),
            (
                ["replay", "nba", "2026-01-30", "totl"],
                "Got unexpected extra argument (totl). To start with a phase, add --from totl.",
            ),
            (["runs", "nonsense"], "No such command 'nonsense'"),
            (["runs", "list", "--nonsense"], "No such option"),
            (["runs", "show"], "Missing argument 'RUN_ID'"),
            (
                ["backfill", "nba", "2026-01-01", "2026-01-10"],
                "Got unexpected extra arguments (2026-01-01 2026-01-10). "
                "Did you mean --from 2026-01-01 --to 2026-01-10?",
            ),
            (["backfill", "nba", "2026-01-01"], "Did you mean --partition 2026-01-01?"),
            (["status", "x", "y"], "Got unexpected extra arguments (x y). See `"),
            (["runs", "list", "--limit", "x"], "'x' is not an integer. See `"),
            (["status", "x"], "Got unexpected extra argument (x). See `"),
        ],
    )
    def test_usage(self, shell: Shell, args: list[str], words: str) -> None:
        """A usage error is one line that points to the help; exit code 2."""
        result = shell(*args)
        assert result.code == 2
        assert words in result.err
        assert "--help`" in result.err
        assert len(result.err.strip().splitlines()) == 1
        assert shell(*args, "--json").error()["code"] == "usage"

    @pytest.mark.parametrize("args", [[], ["runs"], ["configs"]])
    def test_no_command_prints_help(self, args: list[str]) -> None:
        """Without a command the help is printed; under --json an error record."""
        result = CliRunner().invoke(cli, args)
        assert result.exit_code == 2
        assert result.stderr.startswith("Usage:")
        assert "Error" not in result.stderr
        record = json.loads(CliRunner().invoke(cli, [*args, "--json"]).stderr)
        assert record["message"].split(".")[0] == "Missing command"

    def test_unexpected_error(self, capsys: pytest.CaptureFixture[str]) -> None:
        """The message mentions --debug, which prints the traceback."""
        assert errors.report(ValueError("odd"), is_json=False, is_debug=False) == 1
        assert "--debug" in capsys.readouterr().err
        errors.report(ValueError("odd"), is_json=True, is_debug=False)
        assert json.loads(capsys.readouterr().err)["code"] == "internal"
        errors.report(ValueError("odd"), is_json=False, is_debug=True)
        assert "ValueError: odd" in capsys.readouterr().err

    def test_ctrl_c(self, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
        """Ctrl-C exits with 130 and prints nothing."""

        def interrupt(_: App) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(App, "settings", interrupt)
        result = shell("status")
        assert (result.code, result.out) == (130, "")


class TestWrongIds:
    """Errors about a wrong id suggest the right command."""

    @pytest.mark.parametrize(
        ("line", "code", "words"),
        [
            (["why", "dl_8fy089d6"], 2, "penstock dlq show dl_8fy089d6"),
            (["why", "no-such-thing"], 2, "penstock subscriptions list"),
            (["why", "hello"], 2, "Add a partition"),
            (["explain", "run_8fy089d6"], 2, "penstock why run_8fy089d6"),
            (["explain", "hello"], 2, "(penstock explain hello 2025-12-31), or pass a flow id"),
            (["trace", "unknown"], 3, "see `penstock find`"),
            (["topics", "publish", "rosters", "{}"], 3, "penstock topics create"),
            (["subscriptions", "pull", "to-table"], 3, "penstock subscriptions list"),
            (["limits", "show", "crm"], 3, "penstock limits list"),
            (["dlq", "show", "dl_8fy089d7"], 3, "penstock dlq list --status all"),
        ],
    )
    def test_suggestion(self, shell: Shell, line: list[str], code: int, words: str) -> None:
        """The suggestion is in the text and in the JSON's `fix`."""
        result = shell(*line)
        assert result.code == code
        assert words in result.err
        assert words in shell(*line, "--json").error()["fix"]


def test_file_that_is_not_a_database(tmp_path: Path) -> None:
    """The error names the file and what is expected."""
    path = tmp_path / "notes.txt"
    path.write_text("not a database at all, just some words\n" * 50)
    result = Shell(path)("status")
    assert result.code == 5
    assert f"{path} is not a SQLite database" in result.err
    assert "use another file with --database-url" in result.err


def test_unreachable_api() -> None:
    """The error for a URL without a server (port 1) suggests what to check."""
    result = CliRunner().invoke(cli, ["status", "--url", "http://127.0.0.1:1"])
    assert result.exit_code == 5
    assert "Check that `penstock up` or `penstock api` is running" in result.stderr


def test_words_of_other_programs_lead_to_commands() -> None:
    """Each suggestion for a word that is no command is itself a command or an option."""
    context = click.Context(cli)
    for word, meant in INSTEAD.items():
        assert word not in COMMANDS
        for one in meant:
            name, *more = one.split()
            if name.startswith("--"):
                assert CliRunner().invoke(cli, [name]).exit_code == 0
                continue
            command = cli.get_command(context, name)
            assert command is not None, one
            assert not more or (isinstance(command, click.Group) and more[0] in command.commands)
