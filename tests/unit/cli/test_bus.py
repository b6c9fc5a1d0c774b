"""Topics, subscriptions and dead letters of messages on the command line."""

import pytest

from tests.unit.cli.conftest import Shell

PUSH = '{"push_endpoint": "http://127.0.0.1:9000/hook"}'


@pytest.fixture
def bus(shell: Shell) -> Shell:
    """A topic with one subscription."""
    shell.ok("topics", "create", "rosters")
    shell.ok("subscriptions", "create", "to-table", "--topic", "rosters")
    return shell


def poison(shell: Shell, count: int) -> list[str]:
    """Messages that died at once; their letters."""
    shell.ok("topics", "publish", "rosters", *(f"bad {n}" for n in range(count)))
    taken = shell.json("subscriptions", "pull", "to-table", "--limit", str(count))
    ids = [one["ack_id"] for one in taken["received_messages"]]
    shell.ok("subscriptions", "nack", "to-table", *ids, "--poison", "--error", "no JSON")
    return [one["dead_letter_id"] for one in shell.json("dlq", "list")["dead_letters"]]


class TestPull:
    """An empty answer says why it is empty."""

    def test_nothing(self, bus: Shell) -> None:
        """Nothing was published."""
        assert bus.ok("subscriptions", "pull", "to-table") == "Nothing waits.\n"

    def test_held(self, bus: Shell) -> None:
        """Somebody has it: that is not the same as nothing."""
        bus.ok("topics", "publish", "rosters", "a")
        bus.ok("subscriptions", "pull", "to-table")
        told = bus.ok("subscriptions", "pull", "to-table")
        assert told == "Nothing to hand over now: 1 held.\n"
        assert bus.json("subscriptions", "pull", "to-table") == {"received_messages": []}

    def test_paused(self, bus: Shell) -> None:
        """The command that mends it."""
        bus.ok("topics", "publish", "rosters", "a")
        bus.ok("subscriptions", "pause", "to-table")
        told = bus.ok("subscriptions", "pull", "to-table")
        assert told == "to-table is paused: penstock subscriptions resume to-table\n"


class TestCreate:
    """Making a subscription again changes it, and says so."""

    def test_what_changed(self, bus: Shell) -> None:
        """What is not said goes back to its default: nobody should have to find out later."""
        again = ("subscriptions", "create", "to-table", "--topic", "rosters")
        assert "just like this" in bus.ok(*again)
        told = bus.ok(*again, "--filter", 'attributes.a = "b"', "--ack-deadline", "20s")
        assert 'filter was none, is attributes.a = "b"' in told
        assert "ack_deadline_seconds was 60, is 20" in told
        assert 'filter was attributes.a = "b", is none' in bus.ok(*again)
        refused = bus(*again, "--ordered")
        assert (refused.code, "--ordered) cannot change" in refused.err) == (2, True)
        assert "changed" not in bus.ok("subscriptions", "create", "other", "--topic", "rosters")

    def test_an_endpoint_that_is_refused(self, bus: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
        """The rules of egress are told at once, with the settings that relax them."""
        line = ("subscriptions", "create", "hook", "--topic", "rosters", "--push", PUSH)
        told = bus.ok(*line)
        assert "Nothing will be posted under these settings: push_endpoint" in told
        assert "PENSTOCK_EGRESS_HTTP" in told
        monkeypatch.setenv("PENSTOCK_EGRESS_HTTP", "allowed")
        assert "PENSTOCK_EGRESS_PRIVATE" in bus.ok(*line)
        monkeypatch.setenv("PENSTOCK_EGRESS_PRIVATE", "allowed")
        assert "Posted to: http://127.0.0.1:9000/hook" in bus.ok(*line)

    def test_a_binding_to_nothing(self, bus: Shell) -> None:
        """Messages for a pipeline that nobody registered die at once: that is told before."""
        line = ("subscriptions", "create", "bound", "--topic", "rosters", "--binding")
        assert "No pipeline nope is registered" in bus.ok(
            *line, '{"to": "runs", "pipeline": "nope"}'
        )
        assert "registered" not in bus.ok(*line, '{"to": "runs", "pipeline": "hello"}')

    def test_show_says_where_messages_go(self, bus: Shell) -> None:
        """The endpoint, the binding and the order are among the facts; a pause is in the list."""
        bus.ok("subscriptions", "create", "hook", "--topic", "rosters", "--push", PUSH, "--ordered")
        told = bus.ok("subscriptions", "show", "hook")
        assert "http://127.0.0.1:9000/hook" in told
        assert "by ordering key" in told
        binding = '{"to": "runs", "pipeline": "hello"}'
        bus.ok("subscriptions", "create", "bound", "--topic", "rosters", "--binding", binding)
        assert '"pipeline": "hello"' in bus.ok("subscriptions", "show", "bound")
        bus.ok("subscriptions", "pause", "hook")
        assert "STATE" in bus.ok("subscriptions", "list").splitlines()[0]


class TestLetters:
    """Dead letters of messages: many at once, and dry runs that tell the truth."""

    def test_discard_all_that_fit(self, bus: Shell) -> None:
        """A dry run counts them, nobody is asked twice, and what does not fit stays."""
        letters = poison(bus, 3)
        fitting = ("dlq", "discard", "--subscription", "to-table", "--reason", "a test")
        assert bus.ok(*fitting, "--dry-run") == "Would discard 3 dead letters.\n"
        assert bus(*fitting, stdin="n\n").code == 130
        assert "dlq groups" in bus.ok(*fitting, "--error", "TIMEOUT", "--yes")
        assert len(bus.json("dlq", "list")["dead_letters"]) == 3
        told = bus.ok(*fitting, "--yes", "--limit", "2")
        assert "say it again" in told
        assert bus.json(*fitting)["discarded"] == letters[2:]
        assert bus.json("dlq", "list")["dead_letters"] == []

    def test_which_ones(self, bus: Shell) -> None:
        """Neither ids nor a filter, or both, is refused."""
        answer = bus("dlq", "discard", "--reason", "x")
        assert answer.code == 2
        assert "say --all" in answer.err
        (letter,) = poison(bus, 1)
        assert bus("dlq", "discard", letter, "--all", "--reason", "x").code == 2

    def test_a_dry_run_refuses_what_the_replay_would(self, bus: Shell) -> None:
        """A message has no parameters; a closed letter is closed."""
        (letter,) = poison(bus, 1)
        answer = bus("dlq", "replay", letter, "--param", "a=b", "--dry-run", "--json")
        assert answer.code == 2
        assert answer.error()["field"] == "param"
        assert bus.ok("dlq", "replay", letter, "--data", "{}", "--dry-run").startswith("Would")
        bus.ok("dlq", "replay", letter)
        for verb in (("replay",), ("discard", "--reason", "x")):
            dry = bus("dlq", *verb, letter, "--dry-run")
            assert dry.code == bus("dlq", *verb, letter).code == 4
            assert "is not open" in dry.err

    def test_a_run_has_no_data(self, shell: Shell) -> None:
        """The dry run says so, too."""
        run_id = shell.submit("broken")
        shell.work()
        answer = shell("dlq", "replay", run_id, "--data", "{}", "--dry-run", "--json")
        assert answer.error()["field"] == "data"

    def test_none_fits(self, bus: Shell) -> None:
        """Zero is told with where to look."""
        for more in ("--dry-run", "--yes"):
            told = bus.ok("dlq", "replay", "--subscription", "to-tabl", more)
            assert "penstock dlq groups" in told
            assert "Replaying" not in told


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
def test_where_nobody_can_answer(bus: Shell, line: list[str]) -> None:
    """A script is told how to do without the question, instead of ending in silence."""
    answer = bus(*line, stdin="")
    assert answer.code == 2
    assert "add --yes" in answer.err


def test_long_lists_say_that_they_go_on(bus: Shell) -> None:
    """A page that is full is not the end."""
    bus.ok("limits", "set", "crm", "--capacity", "1")
    for family in ("topics", "subscriptions", "limits"):
        assert "there may be more: add --limit 2" in bus.ok(family, "list", "--limit", "1")


def test_a_closed_limit_says_how_to_open_it(shell: Shell) -> None:
    """Capacity 0 lets nobody in."""
    told = shell.ok("limits", "set", "crm", "--capacity", "0")
    assert "Nobody is let in: penstock limits set crm --capacity N" in told
