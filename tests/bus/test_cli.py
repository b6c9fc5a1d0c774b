"""`penstock topics`, `subscriptions`, and `dlq` for messages."""

from pathlib import Path

import pytest

from penstock import connect
from penstock.bus.records import SchemaSettings, Topic
from tests.kits.shell import Shell

PUSH = '{"push_endpoint": "http://127.0.0.1:9000/hook"}'


@pytest.fixture
def bus(shell: Shell) -> Shell:
    """A topic with one subscription."""
    shell.ok("topics", "create", "rosters")
    shell.ok("subscriptions", "create", "to-table", "--topic", "rosters")
    return shell


def poison(shell: Shell, count: int) -> list[str]:
    """Publish messages, nack them as poison and return the ids of the dead letters."""
    shell.ok("topics", "publish", "rosters", *(f"bad {n}" for n in range(count)))
    taken = shell.json("subscriptions", "pull", "to-table", "--limit", str(count))
    ids = [one["ack_id"] for one in taken["received_messages"]]
    shell.ok("subscriptions", "nack", "to-table", *ids, "--poison", "--error", "no JSON")
    return [one["dead_letter_id"] for one in shell.json("dlq", "list")["items"]]


class TestPull:
    """An empty pull says why it is empty."""

    def test_empty_backlog(self, bus: Shell) -> None:
        """No message was published."""
        assert bus.ok("subscriptions", "pull", "to-table") == "The backlog is empty.\n"

    def test_leased(self, bus: Shell) -> None:
        """A leased message is not delivered again, but it is mentioned."""
        bus.ok("topics", "publish", "rosters", "a")
        bus.ok("subscriptions", "pull", "to-table")
        out = bus.ok("subscriptions", "pull", "to-table")
        assert out == "No messages to deliver now: 1 leased.\n"
        assert bus.json("subscriptions", "pull", "to-table") == {"received_messages": []}

    def test_paused(self, bus: Shell) -> None:
        """A pull from a paused subscription suggests `resume`."""
        bus.ok("topics", "publish", "rosters", "a")
        bus.ok("subscriptions", "pause", "to-table")
        out = bus.ok("subscriptions", "pull", "to-table")
        assert out == "to-table is paused: penstock subscriptions resume to-table\n"


class TestUnknownName:
    """A name close to an existing one gets a suggestion, the others the command that lists them."""

    @pytest.mark.parametrize(
        ("line", "meant"),
        [
            ("topics publish roster x", "rosters"),
            ("topics show roster", "rosters"),
            ("topics delete roster --yes", "rosters"),
            ("subscriptions show to-tabel", "to-table"),
            ("subscriptions pull to-tabel", "to-table"),
        ],
    )
    def test_close(self, bus: Shell, line: str, meant: str) -> None:
        done = bus(*line.split())
        assert done.code == 3
        assert done.err.endswith(f". Did you mean '{meant}'?\n"), done.err
        assert bus(*line.split(), "--json").error()["fix"] == f"Did you mean '{meant}'?"

    def test_far(self, bus: Shell) -> None:
        assert "`penstock topics list`" in bus("topics", "show", "zebra").err
        assert "`penstock subscriptions list`" in bus("subscriptions", "show", "zebra").err


class TestCreate:
    """`create` on an existing subscription replaces it and prints the changes."""

    def test_changes_are_printed(self, bus: Shell) -> None:
        """Changed fields are listed, including those that go back to their defaults."""
        again = ("subscriptions", "create", "to-table", "--topic", "rosters")
        assert "already existed with these settings" in bus.ok(*again)
        out = bus.ok(*again, "--filter", 'attributes.a = "b"', "--ack-deadline", "20s")
        assert 'filter was none, is attributes.a = "b"' in out
        assert "ack_deadline_seconds was 60, is 20" in out
        assert 'filter was attributes.a = "b", is none' in bus.ok(*again)
        refused = bus(*again, "--ordered")
        assert (refused.code, "--ordered) cannot change" in refused.err) == (2, True)
        assert "changed" not in bus.ok("subscriptions", "create", "other", "--topic", "rosters")

    def test_topics_keep_what_is_not_given(self, bus: Shell) -> None:
        """`topics create` on an existing topic changes the given settings, and no others."""
        assert bus.ok("topics", "create", "orders", "--retention", "30d") == "orders is created.\n"
        again = bus.ok("topics", "create", "orders")
        assert again == "orders exists.\nIt already existed with these settings.\n"
        out = bus.ok("topics", "create", "orders", "--retention", "1d")
        assert "changed: retention_seconds was 2592000, is 86400." in out

    def test_topics_keep_their_schema_until_told(self, bus: Shell, tmp_path: Path) -> None:
        """A schema keeps its settings; a topic whose schema was deleted is repaired."""
        file = tmp_path / "shape.avsc"
        file.write_text('{"type": "record", "name": "s", "fields": [{"name": "n", "type": "int"}]}')
        bus.ok("schemas", "create", "shape", "--file", str(file))
        bus.ok("topics", "create", "orders", "--schema", "shape")
        with connect(bus.url) as client:
            settings = SchemaSettings(schema="shape", encoding="binary")
            client.topics.create(Topic(name="orders", schema_settings=settings))
        again = bus.ok("topics", "create", "orders", "--schema", "shape")
        assert "It already existed with these settings." in again
        bus.ok("schemas", "delete", "shape", "--yes")
        assert bus("topics", "create", "orders", "--retention", "1d").code == 3
        both = bus("topics", "create", "orders", "--schema", "x", "--no-schema")
        assert (both.code, "--schema: expected no schema together with" in both.err) == (2, True)
        assert "is none" in bus.ok("topics", "create", "orders", "--no-schema")
        assert "published" in bus.ok("topics", "publish", "orders", "anything")

    def test_forbidden_endpoint(self, bus: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
        """An endpoint that the egress rules forbid is reported, with the settings to change."""
        line = ("subscriptions", "create", "hook", "--topic", "rosters", "--push", PUSH)
        out = bus.ok(*line)
        assert "The settings do not allow this endpoint: push_endpoint" in out
        assert "PENSTOCK_EGRESS_HTTP" in out
        monkeypatch.setenv("PENSTOCK_EGRESS_HTTP", "allowed")
        assert "PENSTOCK_EGRESS_PRIVATE" in bus.ok(*line)
        monkeypatch.setenv("PENSTOCK_EGRESS_PRIVATE", "allowed")
        assert "Pushed to: http://127.0.0.1:9000/hook" in bus.ok(*line)

    def test_automatic_replay(self, bus: Shell) -> None:
        """The health check, age and rate are options; age or rate alone are refused."""
        line = ("subscriptions", "create", "auto", "--topic", "rosters")
        options = ("--auto-replay-after", "5m", "--auto-replay-rate", "2")
        url = "https://consumer.example/healthz"
        stored = bus.json(*line, "--auto-replay", url, *options)["auto_replay"]
        assert (stored["health_url"], stored["after"], stored["rate"]) == (url, "300s", 2.0)
        assert "--auto-replay URL" in bus(*line, *options).err

    def test_publishing_without_subscriptions(self, bus: Shell) -> None:
        """A topic without subscriptions is named, with the command that creates one."""
        bus.ok("topics", "create", "lonely")
        assert "no subscription" in bus.ok("topics", "publish", "lonely", "a")
        assert "no subscription" not in bus.ok("topics", "publish", "rosters", "a")
        assert bus.json("topics", "publish", "lonely", "a")["subscriptions"] == 0

    def test_binding_to_an_unknown_pipeline(self, bus: Shell) -> None:
        """A binding to a pipeline that is not registered prints a warning."""
        line = ("subscriptions", "create", "bound", "--topic", "rosters", "--binding")
        assert "Pipeline nope is not registered" in bus.ok(
            *line, '{"to": "runs", "pipeline": "nope"}'
        )
        assert "registered" not in bus.ok(*line, '{"to": "runs", "pipeline": "hello"}')

    def test_show(self, bus: Shell) -> None:
        """`show` has the endpoint, the binding and the order; `list` has the pause."""
        bus.ok("subscriptions", "create", "hook", "--topic", "rosters", "--push", PUSH, "--ordered")
        out = bus.ok("subscriptions", "show", "hook")
        assert "http://127.0.0.1:9000/hook" in out
        assert "by ordering key" in out
        binding = '{"to": "runs", "pipeline": "hello"}'
        bus.ok("subscriptions", "create", "bound", "--topic", "rosters", "--binding", binding)
        assert '"pipeline": "hello"' in bus.ok("subscriptions", "show", "bound")
        bus.ok("subscriptions", "pause", "hook")
        assert "STATE" in bus.ok("subscriptions", "list").splitlines()[0]


class TestDeadLetters:
    """Dead letters of messages: bulk commands and dry runs."""

    def test_discard_by_filter(self, bus: Shell) -> None:
        """A dry run counts matches, a bulk discard asks first, and --limit is respected."""
        ids = poison(bus, 3)
        matching = ("dlq", "discard", "--subscription", "to-table", "--reason", "a test")
        assert bus.ok(*matching, "--dry-run") == "Would discard 3 dead letters.\n"
        assert bus(*matching, stdin="n\n").code == 130
        assert "dlq groups" in bus.ok(*matching, "--error", "TIMEOUT", "--yes")
        assert len(bus.json("dlq", "list")["items"]) == 3
        out = bus.ok(*matching, "--yes", "--limit", "2")
        assert "run the command again" in out
        assert bus.json(*matching)["discarded"] == ids[2:]
        assert bus.json("dlq", "list")["items"] == []

    def test_selection_is_required(self, bus: Shell) -> None:
        """Passing neither ids nor a filter, or both, is an error."""
        result = bus("dlq", "discard", "--reason", "x")
        assert result.code == 2
        assert "or --all" in result.err
        (dead_letter,) = poison(bus, 1)
        assert bus("dlq", "discard", dead_letter, "--all", "--reason", "x").code == 2

    def test_dry_run_fails_like_the_replay(self, bus: Shell) -> None:
        """A dry run rejects parameters for a message, and a closed dead letter."""
        (dead_letter,) = poison(bus, 1)
        result = bus("dlq", "replay", dead_letter, "--param", "a=b", "--dry-run", "--json")
        assert result.code == 2
        assert result.error()["field"] == "param"
        assert bus.ok("dlq", "replay", dead_letter, "--data", "{}", "--dry-run").startswith("Would")
        bus.ok("dlq", "replay", dead_letter)
        for verb in (("replay",), ("discard", "--reason", "x")):
            dry = bus("dlq", *verb, dead_letter, "--dry-run")
            assert dry.code == bus("dlq", *verb, dead_letter).code == 4
            assert "is not open" in dry.err

    def test_dry_run_rejects_data_for_a_run(self, shell: Shell) -> None:
        """--data applies to messages only."""
        run_id = shell.submit("broken")
        shell.work()
        result = shell("dlq", "replay", run_id, "--data", "{}", "--dry-run", "--json")
        assert result.error()["field"] == "data"

    def test_no_match(self, bus: Shell) -> None:
        """A filter without matches prints a hint and no progress bar."""
        for more in ("--dry-run", "--yes"):
            out = bus.ok("dlq", "replay", "--subscription", "to-tabl", more)
            assert "penstock dlq groups" in out
            assert "Replaying" not in out


@pytest.mark.parametrize(
    "line",
    [
        ["topics", "delete", "rosters"],
        ["subscriptions", "delete", "to-table"],
        ["subscriptions", "purge", "to-table"],
        ["subscriptions", "seek", "to-table", "2h"],
        ["limits", "release", "lease_00000000", "--reason", "x"],
    ],
)
def test_confirmation_without_a_terminal(bus: Shell, line: list[str]) -> None:
    """Without input, a command that needs a confirmation fails and suggests --yes."""
    result = bus(*line, stdin="")
    assert result.code == 2
    assert "add --yes" in result.err


def test_full_page_has_a_hint(bus: Shell) -> None:
    """A list that reaches --limit says that there may be more."""
    bus.ok("limits", "set", "crm", "--capacity", "1")
    for family in ("topics", "subscriptions", "limits"):
        assert "there may be more: add --limit 2" in bus.ok(family, "list", "--limit", "1")


def test_limit_with_capacity_zero(shell: Shell) -> None:
    """A limit with capacity 0 shows how to raise it."""
    out = shell.ok("limits", "set", "crm", "--capacity", "0")
    assert "It is closed; to open it: penstock limits set crm --capacity N" in out
