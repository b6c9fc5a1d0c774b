"""Runs on the command line: submit, list, show, cancel, retry, dead letters."""

import pytest

from tests.kits.shell import Shell


class TestSubmit:
    """`runs submit`."""

    def test_prints_the_id_and_where_to_look(self, shell: Shell) -> None:
        """People get the run's id and the command that follows it."""
        lines = shell.ok("runs", "submit", "hello", "--customer", "acme").splitlines()
        assert lines[0].startswith("run_")
        assert f"penstock runs show {lines[0]}" in lines[1]

    def test_json_is_the_whole_run(self, shell: Shell) -> None:
        """Programs get the run as stored."""
        run = shell.json("runs", "submit", "hello", "--param", "name=Ada", "--priority", "8")
        assert (run["state"], run["execution_priority"], run["parameters"]) == (
            "PENDING",
            8,
            {"name": "Ada"},
        )

    def test_a_repeated_key_gives_the_same_run(self, shell: Shell) -> None:
        """Repeating a submit is safe."""
        first = shell.submit("hello", "--key", "k1")
        assert shell.submit("hello", "--key", "k1") == first
        other = shell("runs", "submit", "hello", "--key", "k1", "--priority", "9")
        assert other.code == 4

    def test_later(self, shell: Shell) -> None:
        """A run may wait for a time or for a while."""
        assert shell.json("runs", "submit", "hello", "--at", "10m")["waits"] == "later"
        shell.json("runs", "submit", "hello", "--at", "2031-01-01T00:00:00Z")
        assert "PENDING later" in shell.ok("runs", "list")

    @pytest.mark.parametrize(
        ("args", "field", "words"),
        [
            (["helo"], "pipeline", "Did you mean 'hello'?"),
            (["hello", "--priority", "11"], "priority", "from 1 to 10"),
            (["hello", "--param", "oops"], "param", "key=value"),
            (["hello", "--param", "nam=x"], "parameters.nam", "Known: name"),
            (["hello", "--parameters", "[1]"], "parameters", "a JSON object"),
            (["hello", "--parameters", "{"], "parameters", "a JSON object"),
            (["hello", "--parameters", "@nowhere.json"], "parameters", "a readable file"),
            (["hello", "--customer", "a b"], "customer_id", "letters, digits"),
            (["hello", "--at", "soon"], "at", "a duration"),
            (["pair"], "processor", "main.left, main.right"),
        ],
    )
    def test_bad_input_names_the_field(
        self, shell: Shell, args: list[str], field: str, words: str
    ) -> None:
        """Nothing is stored, and the error says which field and what would do."""
        answer = shell("runs", "submit", *args, "--json")
        assert answer.code == 2
        assert answer.error()["field"] == field
        assert words in answer.error()["message"]
        assert shell.json("runs", "list")["runs"] == []


class TestList:
    """`runs list`."""

    def test_empty_says_what_to_do(self, shell: Shell) -> None:
        """Nobody is left with an empty table."""
        assert "penstock runs submit" in shell.ok("runs", "list")
        assert "No runs match" in shell.ok("runs", "list", "--state", "FAILED")
        assert shell.ok("runs", "list", "--quiet") == ""

    def test_filters(self, shell: Shell) -> None:
        """By customer, pipeline, state and slot."""
        mine = shell.submit("hello", "--customer", "acme")
        shell.submit("broken", "--customer", "other")
        for args in (
            ["--customer", "acme"],
            ["--pipeline", "hello"],
            ["--customer", "acme", "--state", "pending", "--since", "1h"],
        ):
            runs = shell.json("runs", "list", *args)["runs"]
            assert [run["run_id"] for run in runs] == [mine], args
        assert shell.json("runs", "list", "--until", "1h")["runs"] == []
        assert shell.json("runs", "list", "--since", "2020-01-01T00:00:00Z")["runs"] != []

    def test_pages(self, shell: Shell) -> None:
        """The hint leads to the next page, and pages together hold everything once."""
        ids = {shell.submit() for _ in range(5)}
        first = shell.json("runs", "list", "--state", "PENDING", "--limit", "3")["runs"]
        last = first[-1]["run_id"]
        hint = shell.ok("runs", "list", "--state", "PENDING", "--limit", "3")
        assert f"--before {last}" in hint
        rest = shell.json("runs", "list", "--state", "PENDING", "--before", last)["runs"]
        assert {run["run_id"] for run in first + rest} == ids
        assert len(first) + len(rest) == len(ids)

    @pytest.mark.parametrize(
        ("args", "field"),
        [
            (["--state", "DONE"], "state"),
            (["--since", "yesterday"], "since"),
            (["--until", "2025-01-01T00:00:00"], "until"),
            (["--pipeline", "nope"], "pipeline"),
            (["--limit", "0"], "limit"),
            (["--before", "run_8ycpqxn9"], "before"),
            (["--before", "cfg_00000000", "--state", "PENDING"], "before"),
        ],
    )
    def test_bad_filters(self, shell: Shell, args: list[str], field: str) -> None:
        """A filter that cannot be used is refused by name."""
        answer = shell("runs", "list", *args, "--json")
        assert answer.code == 2
        assert answer.error()["field"] == field

    def test_an_unknown_customer_is_not_found(self, shell: Shell) -> None:
        """Not an empty list that hides a typing error."""
        answer = shell("runs", "list", "--customer", "nobody")
        assert answer.code == 3
        assert "There is no customer nobody." in answer.err


class TestShow:
    """`runs show`."""

    def test_tells_what_happened(self, shell: Shell) -> None:
        """The journal, the result and the times."""
        run_id = shell.submit("hello", "--param", "name=Ada")
        assert shell.work() == 1
        text = shell.ok("runs", "show", run_id)
        assert "COMPLETED" in text
        assert "hello Ada" in text
        assert "RUNNING → COMPLETED" in text
        record = shell.json("runs", "show", run_id)
        assert record["run"]["result_summary"] == {"text": "hello Ada"}
        assert [row["action"] for row in record["journal"]] == ["created", "ended"]

    def test_unknown_and_malformed_ids(self, shell: Shell) -> None:
        """An id that cannot be one is bad input; one that is not there is not found."""
        assert shell("runs", "show", "run_00000000").code == 3
        answer = shell("runs", "show", "17")
        assert answer.code == 2
        assert "run_id: expected an id such as" in answer.err


class TestEnds:
    """Cancel, dead letters, retry, discard."""

    def test_cancel(self, shell: Shell) -> None:
        """A waiting run is cancelled at once; an ended one cannot be."""
        run_id = shell.submit()
        assert "is cancelled" in shell.ok("runs", "cancel", run_id, "--reason", "test")
        answer = shell("runs", "cancel", run_id, "--json")
        assert answer.code == 4
        assert answer.error()["code"] == "run.illegal_transition"

    def test_dead_letters(self, shell: Shell) -> None:
        """They are listed with what to do, run again, and closed."""
        assert "nothing waits for a person" in shell.ok("dlq", "list")
        run_id = shell.submit("broken", "--customer", "acme")
        shell.work()
        text = shell.ok("dlq", "list")
        letter = shell.json("dlq", "list")["dead_letters"][0]
        assert letter["dead_letter_id"] in text
        assert letter["run_id"] == run_id
        assert "nothing can be done for acme" in text
        assert f"penstock runs retry {run_id}" in shell.ok("runs", "show", run_id)
        assert shell.json("dlq", "list")["dead_letters"][0]["error_type"] == "PERMANENT_ERROR"
        new = shell.json("runs", "retry", run_id)["retried"][0]["new_run_id"]
        assert shell.json("dlq", "list")["dead_letters"] == []
        shell.work()
        assert "is discarded" in shell.ok("dlq", "discard", new, "--reason", "hopeless")
        again = shell("dlq", "discard", new, "--reason", "hopeless")
        assert again.code == 4
        assert shell.json("dlq", "list", "--status", "all")["dead_letters"][0]["run_id"] == new

    def test_retry_of_a_live_run_is_refused(self, shell: Shell) -> None:
        """Only what has ended can run again."""
        assert shell("runs", "retry", shell.submit()).code == 4

    def test_discard_wants_a_reason(self, shell: Shell) -> None:
        """The missing option is named."""
        answer = shell("dlq", "discard", "run_00000000")
        assert answer.code == 2
        assert "--reason" in answer.err


def test_a_replayed_dead_run_says_so(shell: Shell) -> None:
    """Retry is offered only while the dead letter is open; then the new run and who asked."""
    run_id = shell.submit("broken")
    shell.work()
    assert f"penstock runs retry {run_id}" in shell.ok("runs", "show", run_id)
    new = shell.json("runs", "retry", run_id)["retried"][0]["new_run_id"]
    text = shell.ok("runs", "show", run_id)
    assert f"Replayed as {new} by cli" in text
    assert "runs retry" not in text
    shell.work()
    shell.ok("dlq", "discard", new, "--reason", "no use")
    assert "Its dead letter was discarded." in shell.ok("runs", "show", new)


def test_a_run_in_the_wrong_state_says_what_to_do(shell: Shell) -> None:
    """Cancel before a retry; cancelled is cancelled."""
    run_id = shell.submit()
    assert f"cancel it first (penstock runs cancel {run_id})" in shell("runs", "retry", run_id).err
    shell.ok("runs", "cancel", run_id)
    assert "already cancelled" in shell("runs", "cancel", run_id).err
