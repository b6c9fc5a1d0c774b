"""`--dry-run` shows what a command would do, on a database and over a URL, and changes nothing."""

from collections.abc import Iterator

import click
import pytest

from penstock import connect, limits
from penstock.bus.message import NewMessage
from penstock.bus.records import NewSnapshot, Subscription, Topic
from penstock.cli import cli
from penstock.cli.root import COMMANDS as ROOT
from tests.cli.test_both_backends import Pair, _alone, alike, populate, ways
from tests.kits.dump import raw, tables

__all__ = ["_alone", "ways"]

COMMANDS = {
    "runs retry {done}": "runs again.",
    "runs cancel {later}": "is cancelled",
    "configs start {often}": "Started 1 run of",
    "configs update {often} --priority 9": "is changed (priority)",
    "configs disable {often}": "is disabled",
    "configs enable {daily}": "is enabled",
    "configs delete {often}": "is deleted",
    "limits set bq:t --capacity 3": "0 held of 3",
    "limits set new --capacity 1": "new · 0 held of 1",
    "pause all --reason stop": "everything is paused",
    "pause customer globex": "customer globex is paused",
    "resume customer acme": "customer acme is resumed",
    "runs submit hello --customer acme --param name=Eve": "A run of hello for acme is submitted",
    "runs submit hello --key day-1": "is submitted, unless an earlier one has the key 'day-1'",
    "topics create orders": "orders is created",
    "topics create penstock.seal-heads": "penstock.seal-heads exists",
    "topics create rosters --retention 1d": "is 86400",
    "topics delete rosters": "rosters",
    "topics publish rosters one two": "2 messages published.",
    "subscriptions pause reader": "reader is paused",
    "subscriptions resume reader": "reader",
    "subscriptions delete reader": "reader",
    "snapshots seek before --subscription reader": "1 to be redelivered, 0 purged",
    "gate recheck pair": "No gate waits or is blocked",
    "backfills pause {backfill}": "{backfill}",
    "backfills resume {backfill} --parallelism 3": "{backfill}",
    "backfills cancel {backfill}": "{backfill}",
    "budgets set pipeline pair 5": "pipeline pair",
    "budgets set customer acme 5 --hard-stop": "customer acme",
    "budgets lift pipeline hello": "pipeline hello",
    "budgets remove pipeline hello": "The budget of pipeline hello was removed",
    "keys revoke {key}": "{key} is revoked",
}
REFUSED = {
    "runs retry {later}": 4,
    "runs retry run_00000000": 3,
    "configs start {daily}": 4,
    "configs update {often} --priority 9 --version 99": 4,
    "limits set bq:t --lease 0s": 2,
    "limits release lease_00000000 --reason x": 3,
    "pause customer unknown": 3,
    "subscriptions pause raeder": 3,
    "topics publish roster x": 3,
    "resume config run_00000000": 2,
}
READS = """
acks audit check channels counts dependencies detect diff doctor due end-to-end anomalies backtest
breaches entity executions explain export find groups health history ledger list load logs message
notices overrides partitions pauses pools preview query report revisions risk rules runs show
silences slowest status today top trace trends validation verify what-if why
"""
"""Last words of commands that change nothing."""
WITHOUT = {
    "credentials, which a dry run cannot show": "keys create, keys rotate",
    "messages, which a dry run must not hand out": "subscriptions ack, subscriptions nack, "
    "subscriptions pull, spool flush",
    "compared by `subscriptions diff`, or previewed by `subscriptions apply`": "subscriptions "
    "create",
    "sent elsewhere": "alerts test, sink reset, sink ship, seals publish",
    "files and programs": "assets alertmanager, assets grafana, assets prometheus, completion, "
    "db clip-times, db copy, db migrate, db path, db rotate-push-key, demo, simulate",
    "processes": "api, pipelines register, scheduler, up, worker",
}
"""Commands that change something and have no `--dry-run`, by the reason."""
SEEN = {"api_keys"}
"""Tables that any request changes: the last use of a key."""


def leaves() -> Iterator[tuple[str, click.Command]]:
    """Return every command that is not a group, with its words."""
    context = click.Context(cli)
    for name in ROOT:
        command = cli.get_command(context, name)
        assert command is not None
        if not isinstance(command, click.Group):
            yield name, command
            continue
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            assert found is not None
            yield f"{name} {child}", found


def test_every_command_that_changes_something() -> None:
    """A command changes nothing, has `--dry-run`, or is listed with the reason."""
    excepted = {name for names in WITHOUT.values() for name in names.split(", ")}
    without = {
        words
        for words, command in leaves()
        if not any("--dry-run" in one.opts for one in command.params)
    }
    assert excepted <= without
    reads = READS.split()
    assert {words for words in without - excepted if words.split()[-1] not in reads} == set()


def history(ways: Pair) -> dict[str, str]:
    """Create what the commands are about; return ids by name."""
    ids = populate(ways)
    made = ways.near("backfill", "pair", "--partition", "a", "--partition", "b", "--yes", "--json")
    ids["backfill"] = made.json["backfill"]["backfill_id"]
    assert ways.near("budgets", "set", "pipeline", "hello", "7").code == 0
    issued = ways.near("keys", "create", "ci", "--role", "viewer", "--json").json
    ids["key"] = issued["info"]["key_id"]
    return ids


def everything(ways: Pair) -> dict[str, list[str]]:
    """Return all rows of the database as text."""
    with connect(ways.database_url) as client:
        return {
            table: sorted(map(str, raw(client.store, f'SELECT * FROM "{table}"')))
            for table in tables(client.store)
            if table not in SEEN
        }


def test_commands(ways: Pair) -> None:
    """Text and JSON are the same both ways, and no row of any table differs afterwards."""
    ids = history(ways)
    before = everything(ways)
    for line, expected in COMMANDS.items():
        args = [*line.format(**ids).split(), "--dry-run"]
        near, far = ways.both(*args)
        assert near.json["dry_run"] is True
        assert alike(far.out) == alike(near.out), line
        for way in (ways.near, ways.far):
            shown = way(*args)
            assert shown.code == 0, shown
            assert shown.out.startswith("Dry run: nothing was changed. It would print:"), line
            assert expected.format(**ids) in shown.out, shown
    assert everything(ways) == before


def test_release(ways: Pair) -> None:
    """A slot stays with its holder, and nothing is asked."""
    with connect(ways.database_url) as client:
        limits.use(client.store)
        with limits.slot("crm", capacity=1):
            (lease,) = client.limits.get("crm").holders
            for way in (ways.near, ways.far):
                args = ("limits", "release", lease.lease_id, "--reason", "stuck", "--dry-run")
                assert f"{lease.lease_id} of " in way(*args).out
            assert [one.lease_id for one in client.limits.get("crm").holders] == [lease.lease_id]


@pytest.mark.parametrize("is_dry", [True, False])
def test_refusals(ways: Pair, is_dry: bool) -> None:
    """A dry run is refused exactly where the command is."""
    ids = populate(ways)
    for line, code in REFUSED.items():
        args = [*line.format(**ids).split(), *(["--dry-run"] if is_dry else [])]
        near, far = ways.both(*args)
        assert (near.code, far.code) == (code, code), (line, near, far)
        assert far.err == near.err, line


def test_work_goes_on(ways: Pair) -> None:
    """The command itself does what its dry run said, afterwards."""
    ids = populate(ways)
    for way in (ways.near, ways.far):
        way("runs", "retry", ids["done"], "--dry-run")
    done = ways.far("runs", "retry", ids["done"], "--json").json["retried"]
    assert [one["run_id"] for one in done] == [ids["done"]]
    assert ways.near("runs", "show", done[0]["new_run_id"]).code == 0


def test_seek_to_a_snapshot_counts_beyond_unchanged_messages(ways: Pair) -> None:
    """Messages that stay as they are do not use up what a dry run counts."""
    with connect(ways.database_url) as client:
        client.topics.create(Topic(name="orders"))
        client.subscriptions.declare(Subscription(name="keep", topic="orders"))
        for _ in range(11):
            client.topics.publish("orders", [NewMessage(data=b"x")] * 1_000)
        client.snapshots.create(NewSnapshot(name="before", subscription="keep"))
        taken = [client.subscriptions.pull("keep", max_messages=100) for _ in range(3)]
        client.subscriptions.ack("keep", [one.ack_id for part in taken for one in part])
    for way in (ways.near, ways.far):
        out = way("snapshots", "seek", "before", "--subscription", "keep", "--dry-run").out
        assert "300 to be redelivered, 0 purged." in out
