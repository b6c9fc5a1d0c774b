"""Commands behave the same on a database and over a URL: JSON, text, errors and exit codes."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from click.testing import CliRunner

from penstock import connect, run_pending
from penstock.assembly.process import build_api
from penstock.assembly.settings import load
from penstock.audit.telemetry import Events
from penstock.cli import cli
from penstock.core.clock import SECOND
from penstock.core.ids import decode
from penstock.server.listener import ApiServer
from tests.cli.alert_commands import ALERT_REFUSED, ALERT_WRITES
from tests.cli.reads import READ_AT, READS
from tests.cli.shop import broken, hello, pair
from tests.conftest import BRIEF_ENGINES
from tests.kits.databases import Databases

BUS_FILES = Path(__file__).parent / "bus_files"
_REVISIONS = re.compile(r'"revision_id": "\w+"')
_IDS = re.compile(r"\b(run|cfg|key|bf|sil)_[0-9a-z]{8,13}\b")
_CORRELATION = re.compile(r'"correlation_id": "\w+"')
_KEYS = re.compile(r"\bpnk_\w+")
_TIMES = re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?Z?")
_ACTORS = re.compile(r"\b(?:cli:\w+|cli|key:tester)\b")
_RELATIVE = re.compile(r"\((?:in )?[\d.]+ \w+(?: ago)?\)|\(now\)|\b[\d.]+ (?:ms|s)\b")


@dataclass(frozen=True)
class CommandResult:
    """The output and exit code of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Return the JSON document on standard output."""
        assert self.code == 0, self
        return json.loads(self.out)


class Pair:
    """One database, used directly and through its API."""

    def __init__(self, database_url: str, server: ApiServer, key: str) -> None:
        self.database_url = database_url
        self.server = server
        self.key = key

    def near(self, *args: str, stdin: str | None = None) -> CommandResult:
        """Run a command on the database."""
        return call("--database-url", self.database_url, *args, stdin=stdin)

    def far(self, *args: str, stdin: str | None = None) -> CommandResult:
        """Run a command over the URL."""
        return call("--url", self.server.url, *args, stdin=stdin, PENSTOCK_API_KEY=self.key)

    def both(self, *args: str, stdin: str | None = None) -> tuple[CommandResult, CommandResult]:
        """Run a command both ways with --json."""
        return self.near(*args, "--json", stdin=stdin), self.far(*args, "--json", stdin=stdin)

    def id(self, *args: str) -> str:
        """Run a command that creates something; return its id."""
        made = self.near(*args, "--json").json
        return str(made["run_id"] if "run_id" in made else made["items"][0]["config_id"])

    def work(self) -> None:
        """Execute all due runs."""
        with connect(self.database_url) as client:
            run_pending(client, [hello, broken, pair])


def call(*args: str, stdin: str | None = None, **environment: str) -> CommandResult:
    """Run a command and return its result."""
    result = CliRunner().invoke(cli, list(args), input=stdin, env=environment)
    return CommandResult(result.exit_code, result.stdout, result.stderr)


def alike(text: str) -> str:
    """Return a text without values that differ between calls."""
    for pattern, word in (
        (_CORRELATION, "CORRELATION"), (_REVISIONS, "REVISION"),
        (_KEYS, "KEY"), (_IDS, r"\1"), (_TIMES, "TIME"), (_ACTORS, "ACTOR"), (_RELATIVE, "SPAN"),
    ):  # fmt: skip
        text = pattern.sub(word, text)
    return re.sub(r" +", " ", text)


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clear the environment's settings and use an empty working directory."""
    for name in [name for name in os.environ if name.startswith("PENSTOCK_")]:
        if not name.startswith("PENSTOCK_TEST_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def ways(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Return a database with the shop's pipelines, and its API, on each engine."""
    url = f"sqlite:{tmp_path / 'penstock.db'}"
    if engine == "postgres":
        url = request.getfixturevalue("pg_migrated_dsn")
    with served(url) as pair:
        yield pair


@contextmanager
def served(url: str) -> Iterator[Pair]:
    """Serve a database with the shop's pipelines."""
    with connect(url) as client:
        client.register([hello, broken, pair])
        made = client.keys.create("tester", "admin")
        assert made.key is not None
        settings = load({}, overrides={"database_url": url, "api_port": 0, "api_rate": 100_000.0})
        server = build_api(client, settings, Events())
        server.start()
        yield Pair(url, server, made.key)
        server.stop()


@pytest.fixture(scope="module", params=BRIEF_ENGINES)
def populated(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Pair, dict[str, str]]]:
    """Return a pair with some history, and the ids in it, for tests that change nothing."""
    with ExitStack() as stack:
        url = f"sqlite:{tmp_path_factory.mktemp('populated') / 'penstock.db'}"
        if request.param == "postgres":
            databases: Databases = request.getfixturevalue("pg_databases")
            name = stack.enter_context(databases.lent())
            url = request.getfixturevalue("pg_server").dsn(name)
        pair = stack.enter_context(served(url))
        yield pair, populate(pair)


def populate(ways: Pair) -> dict[str, str]:
    """Create some history; return ids by name."""
    ids = {
        "daily": ways.id("configs", "create", "acme", "hello", "--cron", "0 2 * * *",
                         "--timezone", "America/New_York", "--param", "name=Ada"),
        "often": ways.id("configs", "create", "acme", "broken", "--every", "5m"),
        "event": ways.id("configs", "create", "globex", "hello", "--event-topic", "orders"),
        "done": ways.id("runs", "submit", "hello", "--customer", "acme"),
        "dead": ways.id("runs", "submit", "broken", "--customer", "globex"),
    }  # fmt: skip
    for _ in range(3):
        ways.near("configs", "start", ids["often"])
        ways.work()
    ways.near("configs", "disable", ids["daily"], "--reason", "holiday")
    ids["later"] = ways.id("runs", "submit", "hello", "--at", "10m")
    ids["ready"] = ways.id("runs", "submit", "pair", "--processor", "left")
    ids["again"] = ways.near("runs", "retry", ids["dead"], "--json").json["retried"][0][
        "new_run_id"
    ]
    for args in (["customer", "acme"], ["pipeline", "pair"], ["config", ids["daily"]]):
        ways.near("pause", *args, "--reason", "works")
    for arguments in (
        ("limits", "set", "bq:t", "--capacity", "3", "--adaptive"),
        ("topics", "create", "rosters"),
        ("subscriptions", "create", "reader", "--topic", "rosters", "--ordered"),
        ("snapshots", "create", "before", "--subscription", "reader", "--label", "by=ann"),
        ("schemas", "create", "roster", "--file", str(BUS_FILES / "roster.avsc")),
        ("schemas", "commit", "roster", "--file", str(BUS_FILES / "roster.avsc")),
        ("topics", "publish", "rosters", '{"n": 1}', "two", "--attribute", "k=v"),
    ):
        assert ways.near(*arguments).code == 0, arguments
    ids["declared"] = str(BUS_FILES / "declared.py")
    ids["avro"] = str(BUS_FILES / "roster.avsc")
    ids["message"] = ways.near("topics", "publish", "rosters", "x", "--json").json["message_ids"][0]
    pulled = ways.near("subscriptions", "pull", "reader", "--json").json["received_messages"]
    ways.near("subscriptions", "nack", "reader", pulled[0]["ack_id"], "--poison")
    with connect(ways.database_url) as client:
        known = decode("cfg", client.configs.list(customer="acme").items[0].config_id)
        now = client.views.now()
        missed = {"config_id": known, "slot_from": now - 60 * SECOND, "slot_to": now, "slots": 2}
        client.store.write(lambda tx: tx.run("ledger_put", missed))
    return ids


REFUSED = [
    ("risk flow_00000000", 3),
    ("detect --customer unknown", 3),
    ("analytics trends --customer unknown", 3),
    ("configs edit --priority 8", 2),
    ("configs due --at soon", 2),
    ("breakers show pair 2025-01-01 left --customer acme", 3),
    ("breakers reset pair 2025-01-01 left --dry-run --customer acme", 3),
    ("replay pair", 2),
    ("replay pair a --from unknown --yes", 2),
    ("cancel", 2),
    ("interventions approve int_00000000 --reason r", 3),
    ("backfill pair --from 2025-01-01 --to 2025-01-02", 2),
    ("backfill hello --partition a", 2),
    ("backfills show bf_00000000", 3),
    ("runs show run_00000000", 3),
    ("runs list --customer unknown", 3),
    ("runs list --pipeline helo", 2),
    ("runs list --sort running_for --state FAILED", 2),
    ("runs counts --pipeline helo", 2),
    ("runs list --state PENDING --before run_00000000", 3),
    ("runs submit helo", 2),
    ("runs submit hello --param nam=x", 2),
    ("runs submit hello --priority 11", 2),
    ("runs submit hello --customer a/b", 2),
    ("runs submit pair", 2),
    ("runs submit hello --reason drill", 2),
    ("runs submit hello --key k1 --partition {partition}", 4),
    ("runs cancel {done}", 4),
    ("runs cancel run_00000000", 3),
    ("runs retry {later}", 4),
    ("dlq discard {done} --reason no", 3),
    ("dlq replay", 2),
    ("limits show unknown", 3),
    ("limits set bq:t", 2),
    ("limits set bq:t --lease 0s", 2),
    ("limits release lease_00000000 --reason x --yes", 3),
    ("topics show unknown", 3),
    ("topics publish unknown x", 3),
    ("topics create no/slash", 2),
    ("topics message 999999999", 3),
    ("subscriptions show unknown", 3),
    ("why 999999999", 3),
    ("why cfg_00000000", 3),
    ("why unknown", 2),
    ("subscriptions create other --topic unknown", 3),
    ("subscriptions create other --topic rosters --filter x", 2),
    ("subscriptions ack reader forged", 2),
    ("subscriptions diff", 2),
    ("snapshots show unknown", 3),
    ("snapshots create before --subscription reader", 4),
    ("snapshots create other --subscription unknown", 3),
    ("snapshots create other --subscription reader --label x", 2),
    ("snapshots seek unknown --subscription reader --yes", 3),
    ("snapshots delete unknown --yes", 3),
    ("schemas show unknown", 3),
    ("schemas revisions unknown", 3),
    ("schemas create roster --file {avro}", 4),
    ("schemas create other --file {declared}", 2),
    ("schemas commit unknown --file {avro}", 3),
    ("schemas rollback roster unknown", 3),
    ("schemas delete unknown --yes", 3),
    ("topics create checked --schema unknown", 3),
    ("configs show cfg_00000000", 3),
    ("configs list --customer unknown", 3),
    ("configs create acme nope --every 5", 2),
    ("configs create acme hello", 2),
    ("configs create acme hello --cron 61", 2),
    ("configs create acme hello --every 5 --timezone Mars", 2),
    ("configs create acme hello --every 5 --priority 0", 2),
    ("configs create acme broken --every 5", 2),  # the config `often` has this schedule
    ("configs create acme broken --every 5 --dry-run", 2),
    ("configs create acme hello --every 5 --retry tries=2", 2),
    ("configs create acme hello --every 5 --param nam=x --dry-run", 2),
    ("configs create a/b hello --every 5", 2),
    ("configs update {often} --priority 9 --version 99", 4),
    ("configs update {often} --overlap queue --cron x", 2),
    ("configs start {daily}", 4),
    ("configs preview cfg_00000000", 3),
    ("configs audit unknown", 3),
    ("configs ledger cfg_00000000", 3),
    ("configs delete cfg_00000000 --yes", 3),
    ("pipelines show helo", 2),
    ("pause customer unknown", 3),
    ("pause pipeline helo", 2),
    ("pause customer a/b", 2),
    ("resume config run_00000000", 2),
    ("pause config cfg_00000000", 3),
    ("alerts list --customer unknown", 3),
    *ALERT_REFUSED,
    ("customers show unknown", 3),
    ("customers set unknown --weight 2", 3),
    ("customers set acme", 2),
    ("customers set acme --weight 0", 2),
    ("customers set acme --weight 101", 2),
    ("customers set acme --concurrency 3 --no-concurrency", 2),
    ("keys rotate key_00000000", 3),
    ("keys revoke key_00000000", 3),
    ("keys create ci --role viewer --customer a/b", 2),
    ("keys list --customer unknown", 3),
]

WRITES = [
    "backfill pair --partition a --parallelism 2 --reason again",
    *ALERT_WRITES,
    "runs submit hello --customer acme --param name=Eve --priority 8 --partition 2025-01-01",
    "runs submit hello --at 2031-01-01T00:00:00Z",
    "runs submit hello --force --reason drill",
    "configs create acme hello --every 15 --param name=Ada --retry max_attempts=2 --reason new "
    "--another",
    "configs create acme hello --cron 5 --dry-run",
    "configs create acme hello --event-topic orders --inactive",
    "configs update {often} --priority {n} --reason because",
    "configs disable {often} --reason rest",
    "configs enable {often}",
    "configs update {event} --overlap allow",
    "configs start {event}",
    "pause all --reason stop",
    "resume all",
    "customers set acme --weight 2.5 --concurrency {n}",
    "customers set acme --no-concurrency",
    "customers set acme --start-tolerance 10m",
    "schedules jitter --above 100 --tolerance 5m --dry-run",
    "keys create ci --role worker --customer acme --expires 90d --rate 5",
    "schemas commit roster --file {avro}",
    "schemas commit roster --file {avro} --dry-run",
    "snapshots delete before --dry-run",
]


def test_reads(populated: tuple[Pair, dict[str, str]]) -> None:
    """Every read command has the same output, as JSON and as text."""
    ways, ids = populated
    ways.far("keys", "list")  # records the key's first use, to the minute
    for line in READS:
        args = line.format(**ids).split()
        near, far = ways.both(*args)
        expected, found = near.json, far.json
        if line == "status":
            assert (expected.pop("where"), found.pop("where")) != (None, ways.server.url)
        if line == "status" or line.startswith(READ_AT):
            assert expected.pop("as_of") <= found.pop("as_of")
        assert found == expected, line
        text = ways.near(*args).out
        if line != "status":
            assert alike(ways.far(*args).out) == alike(text), line
        assert text or line == "keys list --all --limit 0"


def test_refusals(populated: tuple[Pair, dict[str, str]]) -> None:
    """Refusals have the same exit code and the same error fields."""
    ways, known = populated
    ids = dict(known)
    ways.near("runs", "submit", "hello", "--key", "k1")
    ways.far("runs", "submit", "hello", "--key", "k1")
    ids["partition"] = "p"
    for line, code in REFUSED:
        near, far = ways.both(*line.format(**ids).split())
        assert (near.code, far.code) == (code, code), (line, near, far)
        assert json.loads(far.err) == json.loads(near.err), line
        assert far.out == near.out == ""


def test_writes(ways: Pair) -> None:
    """Writes over the URL print the same as writes on the database."""
    ids = populate(ways)
    for n, line in enumerate(WRITES):
        printed = []
        for way in (ways.near, ways.far):
            args = line.format(**ids, n=n % 10 + 1).split()
            if args[0] in ("pause", "resume"):
                ways.near("resume" if args[0] == "pause" else "pause", "all")
            printed.append(way(*args, "--json"))
        near, far = printed
        assert far.code == near.code, (line, near, far)
        assert alike(re.sub(r'"version": \d+', "", far.out)) == alike(
            re.sub(r'"version": \d+', "", near.out)
        ), line


def test_ends(ways: Pair) -> None:
    """Cancel, retry, discard, delete, rotate and revoke over the URL, seen on the database."""
    ids = populate(ways)
    assert ways.far("runs", "cancel", ids["later"], "--json").json["outcome"] == "cancelled"
    assert ways.near("runs", "show", ids["later"], "--json").json["run"]["state"] == "CANCELLED"
    new = ways.far("runs", "retry", ids["done"], "--json").json["retried"][0]["new_run_id"]
    assert ways.near("runs", "show", new, "--json").json["run"]["parent_run_id"] == ids["done"]
    ways.work()
    dead = ways.near("dlq", "list", "--json").json["items"][0]["dead_letter_id"]
    assert "is discarded" in ways.far("dlq", "discard", dead, "--reason", "no use").out
    assert dead not in ways.near("dlq", "list").out
    assert ways.far("configs", "delete", ids["event"], "--yes").code == 0
    assert ways.near("configs", "show", ids["event"]).code == 3
    made = ways.far("keys", "create", "ci", "--role", "viewer", "--json").json
    key_id = made["info"]["key_id"]
    rotated = ways.far("keys", "rotate", key_id, "--overlap", "1h", "--json").json
    assert rotated["key"] != made["key"]
    assert rotated["info"]["state"] == "rotating"
    assert ways.far("keys", "revoke", key_id, "--json").json == {"key_id": key_id, "changed": True}
    listed = ways.near("keys", "list", "--all", "--json").json["items"]
    assert [key["revoked_by"] for key in listed if key["key_id"] == key_id] == ["key:tester"]


def rows(n: int) -> list[dict[str, Any]]:
    return [
        {"customer_id": f"c{i}", "pipeline_template": "hello", "schedule_interval_minutes": 15}
        for i in range(n)
    ]


def test_declared_subscriptions(ways: Pair) -> None:
    """`diff` finds what is missing, `apply` over the URL creates it, then both agree."""
    declared = str(BUS_FILES / "declared.py")
    near, far = ways.both("subscriptions", "diff", declared)
    assert (near.code, far.code) == (1, 1)
    assert json.loads(far.out) == json.loads(near.out)
    missing = {(one["kind"], one["name"]) for one in json.loads(near.out)["items"]}
    assert missing == {("topic", "declared"), ("topic", "audit.dlq"), ("subscription", "audit")}
    assert ways.near("subscriptions", "apply", declared, "--dry-run").code == 0
    assert ways.near("subscriptions", "show", "audit").code == 3
    assert ways.far("subscriptions", "apply", declared, "--yes").code == 0
    assert "audit.dlq" in ways.near("subscriptions", "show", "audit").out
    assert [one.code for one in ways.both("subscriptions", "diff", declared)] == [0, 0]


def test_snapshots_and_schemas(ways: Pair) -> None:
    """Seek, roll back, check messages and delete over the URL, seen on the database."""
    populate(ways)
    ways.far("subscriptions", "pull", "reader", "--ack")
    again = ways.far("snapshots", "seek", "before", "--subscription", "reader", "--yes", "--json")
    assert again.json["delivered_again"] + again.json["purged"] >= 1
    first = ways.near("schemas", "revisions", "roster", "--json").json["items"][-1]["revision_id"]
    assert ways.far("schemas", "rollback", "roster", first).code == 0
    assert len(ways.near("schemas", "revisions", "roster", "--json").json["items"]) == 3
    assert ways.far("topics", "create", "checked", "--schema", "roster").code == 0
    assert ways.far("topics", "publish", "checked", '{"team": "ATL"}').code == 0
    assert ways.near("topics", "publish", "checked", '{"tem": "ATL"}').code == 2
    assert ways.far("schemas", "delete", "roster", "--revision", first, "--yes").code == 0
    assert ways.far("snapshots", "delete", "before", "--yes").code == 0
    assert ways.near("snapshots", "show", "before").code == 3


def test_files(ways: Pair) -> None:
    """Configs are created in bulk; one invalid row prevents all of them and is named."""
    text = json.dumps(rows(1_200))
    create = ("configs", "create", "--file", "-", "--reason", "import")
    printed = ways.far(*create, "--json", stdin=text).json["items"]
    assert len(printed) == 1_200
    assert [config["customer_id"] for config in printed] == [f"c{i}" for i in range(1_200)]
    assert ways.near("configs", "list", "--limit", "10000", "--json").json["items"] == printed
    assert ways.far("configs", "list", "--limit", "10000", "--json").json["items"] == printed
    audit = ways.near("configs", "audit", "c7", "--json").json["items"]
    assert [row["change_reason"] for row in audit] == ["import"]
    for bad in ({"priority": 99}, {"customer_id": "a b"}, {"nonsense": 1}):
        wrong = rows(3)
        wrong[2] |= bad
        near, far = ways.both("configs", "create", "--file", "-", stdin=json.dumps(wrong))
        assert (near.code, far.code) == (2, 2)
        assert json.loads(far.err)["field"] == json.loads(near.err)["field"]
    assert len(ways.near("configs", "list", "--limit", "10000", "--json").json["items"]) == 1_200


@pytest.mark.parametrize(
    "line",
    ["db migrate", "db path", "doctor", "demo", "up", "api", "worker", "scheduler",
     "pipelines register shop.py"],
)  # fmt: skip
def test_commands_of_the_database_refuse(line: str) -> None:
    """Commands that need a database refuse a URL, given as a flag or a setting."""
    result = call("--url", "http://127.0.0.1:1", *line.split())
    assert result.code == 2
    expected = f"`cli {line.split(' shop')[0]}` needs direct access to the database"
    assert expected in result.err.replace("penstock ", "cli ")
    if line != "demo":
        assert call(*line.split(), PENSTOCK_URL="http://127.0.0.1:1").code == 2


class TestKeys:
    """Sources of the key, and where it may be sent."""

    @pytest.fixture
    def engine(self) -> str:
        """Use one engine only."""
        return "sqlite"

    def test_without_a_key(self, ways: Pair) -> None:
        """Without a key, the server's error says how to provide one."""
        result = call("--url", ways.server.url, "runs", "list", "--json")
        assert result.code == 4
        assert json.loads(result.err)["code"] == "auth.required"
        text = call("--url", ways.server.url, "runs", "list").err
        assert text.startswith("Error: The API requires a valid API key. Set PENSTOCK_API_KEY to")

    def test_the_development_key(self, ways: Pair) -> None:
        """On the same machine, the key file beside the default database is used."""
        Path("penstock.db.key").write_text(ways.key + "\n")
        assert call("--url", ways.server.url, "runs", "list").code == 0
        elsewhere = {"PENSTOCK_DATABASE_URL": "sqlite:other.db"}
        assert call("--url", ways.server.url, "runs", "list", **elsewhere).code == 4

    def test_never_unencrypted(self) -> None:
        """A key is never sent unencrypted to another machine."""
        key = "pnk_53qhrxfy_0000000000000000000000000000000000000000000000"
        result = call("--url", "http://penstock.example", "status", PENSTOCK_API_KEY=key)
        assert result.code == 2
        assert key not in result.err

    def test_a_viewer_may_not_change(self, ways: Pair) -> None:
        """A role that lacks the power has its own exit code."""
        with connect(ways.database_url) as client:
            key = client.keys.create("looker", "viewer").key
        assert key is not None
        result = call("--url", ways.server.url, "pause", "all", PENSTOCK_API_KEY=key)
        assert result.code == 4
        assert "viewer" in result.err

    def test_a_key_of_one_customer(self, ways: Pair) -> None:
        """It sees its own data, and errors say how to ask for it."""
        populate(ways)
        with connect(ways.database_url) as client:
            key = client.keys.create("acme-only", "operator", customer="acme").key
        assert key is not None

        def bound(*args: str) -> CommandResult:
            return call("--url", ways.server.url, *args, PENSTOCK_API_KEY=key)

        listed = bound("configs", "list", "--json").json["items"]
        assert {config["customer_id"] for config in listed} == {"acme"}
        assert bound("runs", "list").code == 4
        assert "--customer" in bound("runs", "list").err
        assert bound("runs", "list", "--customer", "acme").code == 0
        assert bound("runs", "list", "--customer", "globex").code == 3
        assert bound("status", "--json").json["sessions"] is None
        assert "No worker" not in bound("status").out
        assert bound("keys", "list").code == 4

    def test_database_or_url(self, ways: Pair) -> None:
        """A database flag overrides a URL in the environment; both flags are an error."""
        both = call("--url", ways.server.url, "--database-url", ways.database_url, "status")
        assert both.code == 2
        named = call(
            "--database-url", ways.database_url, "status", PENSTOCK_URL="http://127.0.0.1:1"
        )
        assert named.code == 0
        environment = {"PENSTOCK_URL": ways.server.url, "PENSTOCK_API_KEY": ways.key}
        assert ways.server.url in call("status", **environment).out

    def test_unreachable_server(self) -> None:
        """An unreachable server has the same exit code as an unavailable database."""
        result = call("--url", "http://127.0.0.1:1", "status", "--json")
        assert result.code == 5
        assert json.loads(result.err)["code"] == "api.unavailable"

    def test_nothing_heavy(self, ways: Pair) -> None:
        """Over a URL neither the web framework nor a driver is loaded."""
        code = (
            "import sys; sys.argv = ['penstock', *sys.argv[1:]]\n"
            "import penstock.cli\n"
            "try:\n    penstock.cli.main()\nexcept SystemExit as end: assert not end.code\n"
            "heavy = ('starlette', 'uvicorn', 'psycopg', 'sqlite3', 'rich')\n"
            "print([m for m in heavy if m in sys.modules], file=sys.stderr)"
        )
        # Coverage would add its own imports.
        inherited = {n: value for n, value in os.environ.items() if not n.startswith("COVERAGE_")}
        done = subprocess.run(
            [sys.executable, "-c", code, "--url", ways.server.url, "configs", "list", "--json"],
            env={**inherited, "PENSTOCK_API_KEY": ways.key},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.stderr.strip() == "[]"
        assert json.loads(done.stdout) == {"items": [], "next_cursor": None}


class TestBytes:
    """`--json --quiet` is the response of the API, byte for byte, one question per subject."""

    @pytest.mark.parametrize(
        ("command", "path"),
        [
            ("runs show {done}", "/pipeline-runs/{done}"),
            ("runs list --limit 50", "/pipeline-runs?limit=50"),
            ("configs show {daily}", "/pipeline-configs/{daily}"),
            ("configs list --limit 50", "/pipeline-configs?limit=50"),
            ("topics list --limit 50", "/topics?limit=50"),
            ("subscriptions list --limit 50", "/subscriptions?has_backlog=true&limit=50"),
            ("dlq list --limit 50", "/dead-letters?limit=50"),
            ("limits list --limit 50", "/limits?limit=50"),
            ("keys list --limit 50", "/keys?limit=50"),
            ("flows list --limit 50", "/flows?limit=50"),
            ("alerts list --limit 50", "/alerts?limit=50"),
        ],
    )
    def test_same(self, populated: tuple[Pair, dict[str, str]], command: str, path: str) -> None:
        """The database, the URL and the API itself give the same bytes."""
        ways, ids = populated
        args = [*command.format(**ids).split(), "--json", "--quiet"]
        request = Request(
            f"{ways.server.url}/api/v1{path.format(**ids)}",
            headers={"Authorization": f"Bearer {ways.key}"},
        )
        with urlopen(request, timeout=60) as response:
            body = response.read().decode()
        assert ways.near(*args).out == f"{body}\n"
        assert ways.far(*args).out == f"{body}\n"
