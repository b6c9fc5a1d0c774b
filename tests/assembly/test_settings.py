"""Settings: precedence of sources, refused values and the errors about them."""

import re
from collections.abc import Iterator
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

from penstock.assembly.settings import (
    DEFAULT_DATABASE,
    NOT_SETTINGS,
    SETTINGS,
    api_key_from_environment,
    load,
    sqlite_path,
)
from penstock.assembly.settings.warnings import settings_warnings
from penstock.bus.push.pusher import PusherOptions
from penstock.core.clock import DAY, SECOND
from penstock.core.errors import SettingsError
from penstock.egress.addresses import parse_named_addresses
from penstock.schedules.scheduler import SchedulerOptions
from penstock.server.context import ApiOptions
from penstock.services.store import Retention
from penstock.worker.options import WorkerOptions

ROOT = Path(__file__).parents[2]
OF_OUR_TESTS = {"PENSTOCK_SEED", "PENSTOCK_STEPS"}


def _texts() -> Iterator[Path]:
    """Yield the files in which variables are mentioned."""
    yield from (ROOT / "src").rglob("*.py")
    yield from (ROOT / "docs").rglob("*.md")
    yield from (one for one in (ROOT / "examples").rglob("*.*") if one.suffix != ".pyc")
    yield from ROOT.glob("*.md")


def refused(**overrides: Any) -> SettingsError:
    with pytest.raises(SettingsError) as caught:
        load({}, overrides=overrides)
    return caught.value


class TestDefaults:
    """No settings given."""

    def test_defaults(self) -> None:
        """Without file, environment and overrides every setting has its checked default."""
        settings = load({})
        assert settings.database_url == DEFAULT_DATABASE
        assert settings.pipelines == ()
        assert settings.session_lease == 30 * SECOND
        assert settings.session_beat == 10 * SECOND
        assert settings.history_retention == 365 * DAY
        assert settings.worker_slots == 5
        assert settings_warnings(settings) == []

    def test_settings_are_frozen(self) -> None:
        """A setting cannot be changed after it was read."""
        with pytest.raises(FrozenInstanceError):
            load({}).pool = "other"  # type: ignore[misc]

    def test_declarations(self) -> None:
        """Each setting has a sentence of help, and a lower bound if it is a number."""
        flags = [setting.flag for setting in SETTINGS if setting.flag is not None]
        assert len(set(flags)) == len(flags)
        for setting in SETTINGS:
            assert setting.help.endswith((".", "…")), setting.name
            assert setting.help[0].isupper(), setting.name
            if setting.kind in ("text", "list", "table"):
                assert setting.low is None
                assert setting.high is None
            else:
                assert setting.low is not None, f"{setting.name} has no lower bound"

    def test_components_have_the_same_defaults(self) -> None:
        """A component built without options behaves like one built from default settings."""
        settings = load({})
        api, scheduler, pusher = ApiOptions(), SchedulerOptions(), PusherOptions()
        assert (api.threads, api.inflight) == (settings.api_threads, settings.api_inflight)
        assert api.worker_inflight == settings.api_worker_inflight
        assert (api.rate, api.body_max) == (settings.api_rate, settings.api_body_max)
        assert scheduler.batch == settings.scheduler_batch
        assert scheduler.catch_up_rate == settings.catch_up_rate
        assert pusher.threads == settings.push_threads
        kept = Retention()
        assert (kept.history_us, kept.journal_us) == (
            settings.history_retention,
            settings.journal_retention,
        )
        assert (kept.flows_us, kept.logs_us) == (settings.flows_retention, settings.logs_retention)
        for name in ("alerts", "dead_letters", "interventions", "overrides"):
            assert getattr(kept, f"{name}_us") == getattr(settings, f"{name}_retention")
        worker = WorkerOptions()
        assert (worker.pool, worker.concurrency) == (settings.pool, settings.worker_slots)
        assert (worker.lease_us, worker.heartbeat_us) == (
            settings.session_lease,
            settings.session_beat,
        )
        assert (worker.batch_max, worker.drain_us) == (settings.worker_batch, settings.drain)

    def test_every_variable_that_is_mentioned_exists(self) -> None:
        """Messages, docs and examples name no environment variable that is not read."""
        known = {setting.variable for setting in SETTINGS} | OF_OUR_TESTS
        unknown = set()
        for path in _texts():
            for name in re.findall(r"(?<![A-Z_])PENSTOCK_[A-Z_]+", path.read_text("utf-8")):
                if name not in known and not name.startswith(NOT_SETTINGS):
                    unknown.add(f"{path.relative_to(ROOT)}: {name}")
        assert not unknown

    @pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: s.name)
    def test_defaults_lie_within_their_bounds(self, setting: Any) -> None:
        """Giving a default explicitly changes nothing, from the environment or as an override."""
        default = setting.default
        text = ",".join(default) if setting.kind == "list" else str(default)
        assert load({setting.variable: text}) == load({})
        assert load({}, overrides={setting.name: default}) == load({})


class TestPrecedence:
    """File, environment, overrides."""

    def test_later_sources_win(self, tmp_path: Path) -> None:
        """A file is overruled by the environment, and that by an explicit override."""
        file = tmp_path / "penstock.toml"
        file.write_text('pool = "file"\nworker_slots = 7\npipelines = ["a", " b "]\n')
        environment = {"PENSTOCK_POOL": "env", "PENSTOCK_SESSION_LEASE": "1m"}
        settings = load(environment, file, {"pool": "flag", "drain": 5})
        assert settings.pool == "flag"
        assert settings.session_lease == 60 * SECOND
        assert settings.worker_slots == 7
        assert settings.pipelines == ("a", "b")
        assert settings.drain == 5 * SECOND
        assert load(environment, file).pool == "env"
        assert load({}, file).pool == "file"

    def test_an_override_of_none_is_no_override(self) -> None:
        """A flag that was not given leaves the environment's value in force."""
        assert load({"PENSTOCK_POOL": "env"}, overrides={"pool": None}).pool == "env"

    def test_other_variables_are_ignored(self) -> None:
        """Variables of other programs and of the test harness are ignored."""
        environment = {"POOL": "x", "penstock_pool": "x", "PENSTOCK_TEST_DATABASE_URL": "x"}
        assert load(environment) == load({})


class TestUnknownNames:
    """Names that are not in the table."""

    @pytest.mark.parametrize("source", ["environment", "file", "override"])
    def test_a_near_name_is_suggested(self, source: str, tmp_path: Path) -> None:
        """A misspelt name is refused in every source, and the error suggests the right one."""
        file = tmp_path / "p.toml"
        file.write_text('databse_url = "sqlite:x.db"' if source == "file" else "")
        environment = {"PENSTOCK_DATABSE_URL": "x"} if source == "environment" else {}
        overrides = {"databse_url": "x"} if source == "override" else {}
        with pytest.raises(SettingsError) as caught:
            load(environment, file, overrides)
        assert "databse_url" in caught.value.field.lower()
        assert "database_url" in caught.value.message.lower()
        assert "Did you mean" in caught.value.message

    def test_an_unrelated_name_lists_the_known_ones(self) -> None:
        """When no name is similar, the error lists the known names."""
        with pytest.raises(SettingsError, match="Known: PENSTOCK_ALERTS, "):
            load({"PENSTOCK_ZZZZZZ": "1"})


@pytest.mark.parametrize("name", ["url", "url_plain"])
def test_a_file_cannot_choose_where_a_key_is_sent(name: str, tmp_path: Path) -> None:
    """A penstock.toml in some folder cannot send the environment's key elsewhere."""
    file = tmp_path / "penstock.toml"
    file.write_text(f'{name} = "allowed"')
    with pytest.raises(SettingsError, match="where a key is sent"):
        load({}, file)


def test_the_api_key_is_not_a_setting() -> None:
    """The API key is read from the environment only and never shown."""
    environment = {"PENSTOCK_API_KEY": "pnk_secret"}
    assert "pnk_secret" not in repr(load(environment))
    assert api_key_from_environment(environment) == "pnk_secret"
    assert api_key_from_environment({"PENSTOCK_API_KEY": ""}) is None
    with pytest.raises(SettingsError):
        load({}, overrides={"api_key": "pnk_secret"})


class TestValues:
    """Values that are refused."""

    @pytest.mark.parametrize(
        ("name", "value", "expected"),
        [
            ("worker_slots", "five", "a whole number"),
            ("worker_slots", "5.0", "a whole number"),
            ("worker_slots", 5.7, "a whole number"),
            ("worker_slots", True, "a whole number"),
            ("worker_slots", [5], "a whole number"),
            ("worker_slots", "", "a whole number"),
            ("worker_slots", 0, "at least 1"),
            ("worker_slots", "-3", "at least 1"),
            ("worker_slots", 10_001, "at most 10000"),
            ("worker_slots", "9" * 400, "at most 10000"),
            ("worker_slots", "9" * 5000, "a whole number"),
            ("pool_size", 1, "at least 2"),
            ("catch_up_rate", "nan", "a number"),
            ("catch_up_rate", float("inf"), "a number"),
            ("catch_up_rate", "1e999", "a number"),
            ("catch_up_rate", False, "a number"),
            ("catch_up_rate", 0, "at least 0.01"),
            ("catch_up_rate", "2e6", "at most 1e+06"),
            ("session_lease", "4s", "at least 5 seconds"),
            ("session_lease", "soon", "a duration"),
            ("session_lease", -1, "a duration"),
            ("session_lease", True, "a duration"),
            ("session_lease", None, "a duration"),
            ("history_retention", "59m", "at least 3600 seconds"),
            ("history_retention", "200000d", "a duration"),
            ("pipelines", 3, "a list of strings"),
            ("pipelines", ["a", 3], "a list of strings"),
            ("pipelines", {"a": 1}, "a list of strings"),
            ("pool", 3, "a string"),
            ("pool", "a\x00b", "a string"),
            ("database_url", {}, "a string"),
            ("log_format", "xml", "human or json"),
            ("log_level", "loud", "debug, info, warning or error"),
            ("session_beat", "30s", "less than half of session_lease (30s)"),
            ("session_beat", "15s", "less than half of session_lease (30s)"),
        ],
    )
    def test_a_bad_value_names_its_setting(self, name: str, value: Any, expected: str) -> None:
        """A value of the wrong type or out of bounds is refused with its setting's name."""
        if value is None:
            with pytest.raises(SettingsError) as caught:
                load({f"PENSTOCK_{name.upper()}": ""})
            error = caught.value
        else:
            error = refused(**{name: value})
        assert error.field == name
        assert expected in error.message
        assert error.code == "settings.invalid"

    @pytest.mark.parametrize("url", ["mysql://u:hunter2@h/db", "/var/lib/x.db", "", "sqlite"])
    def test_a_database_of_another_kind_is_refused(self, url: str) -> None:
        """An unusable URL is refused with an example, and without the password it may contain."""
        error = refused(database_url=url)
        assert error.field == "database_url"
        assert "sqlite:penstock.db" in error.message
        assert "hunter2" not in str(error.detail) + error.message

    @pytest.mark.parametrize("slashes", ["//", "///"])
    def test_a_file_in_an_unclear_folder_is_refused(self, slashes: str) -> None:
        """`sqlite:///pen.db` is this folder for some programs, and would be the root folder."""
        error = refused(database_url=f"sqlite:{slashes}pen.db")
        assert error.message == (
            "database_url: expected sqlite:FILE, for example sqlite:penstock.db (in this folder) "
            f"or sqlite:/data/penstock.db, got 'sqlite:{slashes}pen.db'."
        )

    @pytest.mark.parametrize(
        ("url", "path"),
        [
            ("sqlite:pen.db", "pen.db"),
            ("sqlite:./pen.db", "pen.db"),
            ("sqlite:/data/pen.db", "/data/pen.db"),
            ("sqlite:////data/pen.db", "/data/pen.db"),
        ],
    )
    def test_a_file(self, url: str, path: str) -> None:
        """Four slashes are an absolute path for every program."""
        assert sqlite_path(load({}, overrides={"database_url": url}).database_url) == Path(path)

    @pytest.mark.parametrize("text", ["pool = ", "\x00", "pool = 'a'\npool = 'b'"])
    def test_a_file_that_is_not_toml(self, text: str, tmp_path: Path) -> None:
        """The error about a file that cannot be parsed names the file."""
        file = tmp_path / "bad.toml"
        file.write_text(text)
        with pytest.raises(SettingsError, match=r"valid TOML.*bad\.toml"):
            load({}, file)

    def test_a_file_that_cannot_be_read(self, tmp_path: Path) -> None:
        """The error about a missing file, a folder or a binary file names it."""
        with pytest.raises(SettingsError, match="a readable file"):
            load({}, tmp_path / "missing.toml")
        with pytest.raises(SettingsError, match="a readable file"):
            load({}, tmp_path)
        (tmp_path / "raw").write_bytes(b"\xff\xfe\x00")
        with pytest.raises(SettingsError, match="valid TOML"):
            load({}, tmp_path / "raw")

    @pytest.mark.parametrize(
        ("text", "micros"),
        [("90s", 90 * SECOND), ("1h30m", 5400 * SECOND), ("45", 45 * SECOND), ("2d", 2 * DAY)],
    )
    def test_durations(self, text: str, micros: int) -> None:
        """A duration is text with units, or a number of seconds."""
        assert load({"PENSTOCK_DRAIN": text}).drain == micros


class TestWarnings:
    """Settings that work but are probably mistakes."""

    def test_a_rare_heartbeat(self) -> None:
        """A heartbeat interval of more than a third of the lease causes a warning."""
        settings = load({"PENSTOCK_SESSION_BEAT": "11s"})
        assert any("session_beat" in line for line in settings_warnings(settings))

    def test_a_small_pool(self) -> None:
        """A tiny connection pool causes a warning on PostgreSQL, and not on SQLite."""
        small = {"pool_size": 3, "database_url": "postgresql://h/db"}
        assert any("pool_size" in line for line in settings_warnings(load({}, overrides=small)))
        assert settings_warnings(load({}, overrides={"pool_size": 3})) == []


class TestWarehouses:
    """Named warehouses that gates probe."""

    def test_names_and_addresses(self) -> None:
        """Comma-separated in the environment, a list in a file; the address is kept unchanged."""
        text = "season=duckdb:season.duckdb, shop=postgresql://u:p=1@h/d"
        assert parse_named_addresses(load({"PENSTOCK_WAREHOUSES": text}).warehouses, "w") == {
            "season": "duckdb:season.duckdb",
            "shop": "postgresql://u:p=1@h/d",
        }
        assert load({}).warehouses == ()

    @pytest.mark.parametrize(
        "items",
        [["season"], ["=duckdb:x"], ["a b=duckdb:x"], ["season=file"], ["a=sqlite:x", "a=b:y"]],
    )
    def test_refused(self, items: list[str]) -> None:
        """An invalid entry is refused at start, before any gate probes."""
        error = refused(warehouses=items)
        assert error.field == "warehouses"
        assert "season=duckdb:season.duckdb" in str(error)

    def test_no_password_in_the_error(self) -> None:
        """The error shows only the name of the refused entry."""
        assert "geheim" not in str(refused(warehouses=["s hop=postgresql://u:geheim@h/d"]))

    def test_retention(self) -> None:
        """Ended flows and their logs have separate retentions."""
        settings = load({"PENSTOCK_LOGS_RETENTION": "90d"})
        assert (settings.flows_retention, settings.logs_retention) == (7 * DAY, 90 * DAY)
