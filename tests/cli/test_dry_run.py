"""`--dry-run` shows what a command would do, on a database and over a URL, and changes nothing."""

import pytest

from penstock import connect, limits
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
}
REFUSED = {
    "runs retry {later}": 4,
    "runs retry run_00000000": 3,
    "configs start {daily}": 4,
    "configs update {often} --priority 9 --version 99": 4,
    "limits set bq:t --lease 0s": 2,
    "limits release lease_00000000 --reason x": 3,
    "pause customer unknown": 3,
    "resume config run_00000000": 2,
}
SEEN = {"api_keys"}
"""Tables that any request changes: the last use of a key."""


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
    ids = populate(ways)
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
            assert expected in shown.out, shown
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
