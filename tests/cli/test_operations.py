"""`pause`, `pipelines`, `status`, `alerts`, `db` and `doctor`."""

import re
import sqlite3
from contextlib import closing
from importlib import resources
from pathlib import Path

import pytest

from penstock import Pipeline, connect
from penstock.access.store.registry import processor_list
from penstock.alerts.subjects import command_of
from penstock.bus.message import SubscriptionSpec, TopicSpec
from penstock.bus.transports.embedded import EmbeddedBus
from penstock.core.clock import SECOND
from penstock.db.cli import _describe_migrations
from penstock.runs.store.leases import session_open
from penstock.schedules.store.ticks import ticks_put
from tests.kits.shell import SHOP, Shell

GHOST = """
from penstock import Pipeline, optional, same_day

ghost = Pipeline("ghost", partition="day", warehouse="sqlite:ghost.db")
load = ghost.phase("load")
load.external("collect", produces="collected")
report = ghost.phase("report", after=load)
report.external("mail", needs=[same_day("colected"), same_day("collected"), optional("weather")])
"""


class TestPauses:
    """`pause`, `resume`, `pauses`."""

    def test_every_scope(self, shell: Shell) -> None:
        """A repeated pause or resume is reported; the list shows the pauses in force."""
        config = shell.json("configs", "create", "acme", "hello", "--every", "5")["items"][0]
        for scope, subject in (
            ("all", None),
            ("customer", "acme"),
            ("pipeline", "hello"),
            ("config", config["config_id"]),
        ):
            args = [scope, subject] if subject else [scope]
            assert "paused" in shell.ok("pause", *args, "--reason", "works")
            assert "already paused" in shell.ok("pause", *args)
        assert len(shell.json("pauses")["items"]) == 4
        text = shell.ok("pauses")
        assert config["config_id"] in text
        assert "works" in text
        shell.submit()
        assert shell.json("status")["paused_runs"] == 1
        assert "4 pauses in force" in shell.ok("status")
        assert shell.json("resume", "all")["outcome"] == "resumed"
        assert "was not paused" in shell.ok("resume", "all")

    @pytest.mark.parametrize(
        ("args", "code", "words"),
        [
            (["everything"], 2, "'everything' is not one of 'all', 'customer'"),
            (["all", "acme"], 2, "nothing after `all`"),
            (["customer"], 2, "NAME OR ID"),
            (["customer", "unknown"], 3, "There is no customer unknown"),
            (["pipeline", "helo"], 2, "Did you mean 'hello'?"),
            (["config", "cfg_00000000"], 3, "There is no config"),
        ],
    )
    def test_bad_subjects(self, shell: Shell, args: list[str], code: int, words: str) -> None:
        """The error names the bad subject, and nothing is paused."""
        result = shell("pause", *args)
        assert result.code == code
        assert words in result.err
        assert shell.ok("pauses") == "Nothing is paused.\n"


class TestPipelines:
    """`pipelines list`, `show`, `register`."""

    def test_register_creates_the_database(self, bare: Shell) -> None:
        """Pipelines can be registered before a worker runs."""
        assert "broken, hello, pair, slow" in bare.ok("pipelines", "register", SHOP)
        assert len(bare.json("pipelines", "list")["items"]) == 4
        assert "main.left, main.right" in bare.ok("pipelines", "list")

    def test_register_several(self, bare: Shell, tmp_path: Path) -> None:
        """Files are separated by spaces or commas."""
        for name in ("one", "two", "three"):
            text = f'from penstock import Pipeline\np = Pipeline("{name}_p")\n'
            (tmp_path / f"{name}_of_several.py").write_text(
                f"{text}@p.processor()\ndef work(run): ...\n"
            )
        files = ("one_of_several.py,two_of_several.py", "three_of_several.py")
        assert bare.ok("pipelines", "register", *files) == "Registered: one_p, three_p, two_p\n"

    def test_show(self, shell: Shell) -> None:
        """The output has processors and parameters."""
        text = shell.ok("pipelines", "show", "hello")
        assert "greet  pool default" in text
        assert 'name: string  default "world"' in text
        assert shell.json("pipelines", "show", "hello")["definition"]["name"] == "hello"

    def test_register_warns_about_a_misspelt_table(self, bare: Shell, tmp_path: Path) -> None:
        """A need that is close to a produced table gets a hint; raw and foreign tables do not."""
        file = tmp_path / "ghost.py"
        file.write_text(GHOST)
        done = bare("pipelines", "register", str(file))
        assert (done.code, done.out) == (0, "Registered: ghost\n")
        assert done.err == (
            "Warning: ghost/report/mail needs colected. "
            "No processor produces colected; did you mean collected?\n"
        )
        assert len(bare.json("pipelines", "register", str(file))["warnings"]) == 1
        with connect(bare.url) as client:
            feed = Pipeline("feed", partition="day")
            feed.phase("load").external("fetch", produces="colected")
            client.register([feed])
        record = bare.json("pipelines", "register", str(file))
        assert record == {"registered": ["ghost"], "warnings": []}

    def test_empty_and_unknown(self, bare: Shell, shell: Shell) -> None:
        """An empty list suggests a command; an unknown name suggests the closest one."""
        bare.ok("db", "migrate")
        assert "penstock up --pipelines" in bare.ok("pipelines", "list")
        assert "Did you mean 'hello'?" in shell("pipelines", "show", "hell").err
        assert shell("pipelines", "register").code == 2
        assert shell("pipelines", "register", "no_such_module").code == 2


class TestStatus:
    """`status` and `alerts`."""

    def test_status(self, shell: Shell) -> None:
        """Status shows the queue, today's totals and a hint if no worker is alive."""
        shell.submit()
        text = shell.ok("status")
        assert "ready" in text
        assert "No worker is alive (1 run ready)" in text
        shell.submit("broken")
        shell.work()
        record = shell.json("status")
        assert (record["completed_today"], record["failed_today"]) == (1, 1)
        assert record["open_dead_letters"] == 1
        assert "penstock dlq groups" in shell.ok("status")

    def test_alerts(self, shell: Shell) -> None:
        """Three failures in a row raise an alert, five disable the config; the alert has a fix."""
        assert "No open alerts" in shell.ok("alerts", "list")
        config = shell.json("configs", "create", "acme", "broken", "--every", "5")["items"][0]
        for _ in range(5):
            with connect(shell.url) as client:
                client.configs.start(config["config_id"], trigger_source="scheduler")
            shell.work()
        found = shell.json("alerts", "list")["items"]
        assert [alert["severity"] for alert in found] == ["HIGH"]
        assert f"penstock configs enable {config['config_id']}" in shell.ok("alerts", "list")
        assert "acme: " in shell.ok("alerts", "list")
        assert len(shell.json("alerts", "list", "--state", "all")["items"]) == 2


@pytest.mark.parametrize(
    ("kind", "command"),
    [("flow", "penstock explain flow_1"), ("run", "penstock runs show flow_1"), ("topic", None)],
)
def test_what_shows_the_subject_of_an_alert(kind: str, command: str | None) -> None:
    """An alert without a fix names the command that shows its subject."""
    assert command_of(kind, "flow_1", {}) == command
    assert command_of(kind, "flow_1", {"fix": "penstock status"}) == "penstock status"


class TestDatabase:
    """`db`, and missing databases."""

    def test_migrate_verify_path(self, bare: Shell) -> None:
        """The first migration creates the database, the second does nothing, verify passes."""
        first = bare.ok("db", "migrate")
        assert re.match(r"\d\d+ migrations applied: 0001_foundation to \d{4}_\w+ \(", first)
        assert first.count("000") == 1
        assert bare.json("db", "migrate")["applied"] == []
        assert "Intact" in bare.ok("verify")
        assert bare.ok("db", "path").strip() == f"sqlite:{bare.path}"

    def test_migrations_are_listed_if_they_are_few(self) -> None:
        """Of more than three, the number, the first and the last are named."""
        names = ["0001_foundation", "0002_runs", "0003_journal", "0004_limits"]
        assert _describe_migrations([]) == "Already up to date"
        assert _describe_migrations(names[:3]) == f"Applied: {', '.join(names[:3])}"
        summary = "4 migrations applied: 0001_foundation to 0004_limits"
        assert _describe_migrations(names) == summary

    def test_json_lists_every_migration(self, bare: Shell) -> None:
        """Programs get the names of all migrations."""
        files = (resources.files("penstock.db") / "migrations").iterdir()
        names = [file.name.removesuffix(".sql") for file in files if file.name.endswith(".sql")]
        assert bare.json("db", "migrate")["applied"] == sorted(names)

    def test_reading_does_not_create_a_file(self, bare: Shell) -> None:
        """A typo in the path does not create an empty database."""
        for args in (["status"], ["runs", "list"], ["configs", "list"], ["verify"]):
            result = bare(*args)
            assert result.code == 5
            assert "there is no database at" in result.err
            assert "penstock up" in result.err
        assert not bare.path.exists()

    def test_file_that_is_not_a_database(self, bare: Shell) -> None:
        """A file that is not a database is an error without a traceback."""
        bare.path.write_bytes(b"not a database" * 1000)
        result = bare("status")
        assert result.code != 0
        assert "Traceback" not in result.err

    def test_passwords_are_not_shown(self, shell: Shell) -> None:
        """The URL is printed without user, password and options."""
        from penstock.assembly.database import describe_database

        shown = describe_database("postgresql://me:secret@db.example:5432/penstock?sslmode=require")
        assert shown == "postgresql://db.example:5432/penstock"
        assert shell.ok("db", "path")


class TestDoctor:
    """`doctor`."""

    def test_healthy(self, shell: Shell) -> None:
        """No check fails on a fresh database."""
        record = shell.json("doctor")
        assert record["is_healthy"]
        verdicts = {check["check"]: check["verdict"] for check in record["checks"]}
        assert verdicts["database"] == verdicts["journal"] == verdicts["settings"] == "OK"
        assert verdicts["workers"] == "WARN"
        assert "0 failures" in shell.ok("doctor")

    def test_ready_runs_without_a_worker_fail(self, shell: Shell) -> None:
        """The check fails with a fix, and the exit code is 1."""
        shell.submit()
        result = shell("doctor", "--json")
        assert result.code == 1
        found = {check["check"]: check for check in result.json()["checks"]}
        assert found["workers"]["verdict"] == "FAIL"
        assert found["workers"]["fix"].startswith("penstock up")
        assert found["pools"]["verdict"] == "WARN"

    def test_dead_letters_and_pauses_warn(self, shell: Shell) -> None:
        """Each warning has the command to run next."""
        shell.submit("broken")
        shell.work()
        shell.ok("pause", "all")
        found = {check["check"]: check for check in shell.json("doctor")["checks"]}
        assert found["dead letters"]["fix"] == "penstock dlq groups"
        assert found["pauses"]["fix"] == "penstock resume all"

    def test_missing_dead_letter_topic_warns(self, shell: Shell) -> None:
        """The warning names a subscription without a dead-letter topic."""
        found = {check["check"]: check for check in shell.json("doctor")["checks"]}
        assert found["bus"]["verdict"] == "OK"
        with connect(shell.url) as client:
            wanted = SubscriptionSpec(name="trap", topic="events")
            EmbeddedBus(client.store).declare([TopicSpec(name="events")], [wanted])
        found = {check["check"]: check for check in shell.json("doctor")["checks"]}
        assert found["bus"]["verdict"] == "WARN"
        assert "trap" in found["bus"]["says"]
        assert "dead_letter_topic" in found["bus"]["fix"]

    def test_altered_journal_fails(self, shell: Shell) -> None:
        """A sealed entry that was changed later is detected."""
        from penstock.services.upkeep import seal_block

        shell.submit()
        with connect(shell.url) as client:
            seal_block(client.store, 100)
        connection = sqlite3.connect(shell.path)
        guards = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'journal'"
        for (guard,) in connection.execute(guards).fetchall():
            connection.execute(f"DROP TRIGGER {guard}")
        connection.execute("UPDATE journal SET actor = 'forged'")
        connection.commit()
        connection.close()
        found = {c["check"]: c for c in shell("doctor", "--json").json()["checks"]}
        assert found["journal"]["verdict"] == "FAIL"
        assert shell("verify").code == 1
        skipped = shell("doctor", "--json", "--skip-journal").json()["checks"]
        assert "journal" not in {c["check"] for c in skipped}

    def test_changed_audit(self, shell: Shell) -> None:
        """A changed or missing entry of a customer's audit chain is found, and named."""
        shell.ok("configs", "create", "acme", "hello", "--every", "5")
        record = shell("verify", "--json").json()
        assert record["audit_entries"] > 0
        assert record["is_intact"] is True
        connection = sqlite3.connect(shell.path)
        connection.execute("UPDATE audit SET actor = 'forged' WHERE n = 1")
        connection.commit()
        connection.close()
        result = shell("verify")
        assert result.code == 1
        assert "audit of acme: link 1 was changed" in result.out
        found = {c["check"]: c for c in shell("doctor", "--json").json()["checks"]}
        assert found["journal"]["verdict"] == "FAIL"
        assert "acme" in found["journal"]["says"]

    def test_no_database(self, bare: Shell) -> None:
        """A missing database fails with the command that creates it."""
        result = bare("doctor")
        assert result.code == 1
        assert "penstock db migrate" in result.out

    def test_stalls_warn(self, shell: Shell) -> None:
        """Ready runs that no worker claims and an overdue occurrence are warnings."""
        shell.submit()
        shell.ok("configs", "create", "acme", "hello", "--every", "5")
        with connect(shell.url) as client:
            now = client.store.read(lambda tx: tx.now())
            known = client.store.read(processor_list)
            pool = next(p.pool_key for p in known if p.pool == "default")
            opened = {"boot_id": "b", "kind": "worker", "name": "w", "host": "h", "pid": 1,
                      "pool": pool, "slots": 2, "lease_us": 60_000_000}  # fmt: skip
            client.store.write(lambda tx: session_open(tx, opened))
            client.store.write(lambda tx: ticks_put(tx, [("scheduler", SECOND)]))
        found = {c["check"]: c for c in shell.json("doctor")["checks"]}
        assert found["workers"]["verdict"] == found["scheduler"]["verdict"] == "OK"
        assert shell.json("status")["warnings"] == []
        connection = sqlite3.connect(shell.path)
        at = {"at": now - 20_000_000}
        connection.execute("UPDATE runs SET scheduled_time = :at", at)
        connection.execute("UPDATE schedule SET evaluated_to = :at - 1, next_run_time = :at", at)
        connection.commit()
        connection.close()
        found = {c["check"]: c for c in shell.json("doctor")["checks"]}
        assert found["workers"]["verdict"] == found["scheduler"]["verdict"] == "WARN"
        assert "no live worker seems to have their processors" in found["workers"]["says"]
        assert "overdue by 20" in found["scheduler"]["says"]
        assert "(pipeline hello): start one with --pipelines" in shell.ok("status")
        assert "Next occurrence overdue" in shell.ok("status")

    def test_unmigrated_database(self, bare: Shell) -> None:
        """It has its own error code and exit code; doctor suggests `db migrate`."""
        bare.path.touch()
        result = bare("status", "--json")
        assert (result.code, result.error()["code"]) == (6, "store.schema_mismatch")
        assert "has no tables of Penstock. Create them with `penstock db mig" in result.err
        found = {c["check"]: c for c in bare("doctor", "--json").json()["checks"]}
        assert found["database"]["verdict"] == "FAIL"
        assert found["database"]["fix"] == "penstock db migrate"

    def test_outdated_database(self, shell: Shell) -> None:
        """The error names the first and the last missing migration, not all of them."""
        with closing(sqlite3.connect(shell.path)) as connection, connection:
            connection.execute("DELETE FROM schema_migrations WHERE number >= 59")
        result = shell("status")
        assert result.code == 6
        assert re.search(r"lacks migrations .*\(\d+, 0059_\w+ to \d+_\w+\): run", result.err)

    def test_conflicting_settings(self, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
        """Warnings about settings are shown."""
        monkeypatch.setenv("PENSTOCK_SESSION_BEAT", "12s")
        found = [c for c in shell.json("doctor")["checks"] if c["check"] == "settings"]
        assert found[0]["verdict"] == "WARN"
