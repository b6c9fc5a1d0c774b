"""`penstock runs` and `penstock dlq` for runs."""

import click.testing
import pytest

from penstock import Pipeline, RunContext, Submission, connect, run_pending
from tests.kits.shell import Shell


class TestSubmit:
    """`runs submit`."""

    def test_prints_the_id_and_a_hint(self, shell: Shell) -> None:
        """The output is the run's id and the command that shows it."""
        lines = shell.ok("runs", "submit", "hello", "--customer", "acme").splitlines()
        assert lines[0].startswith("run_")
        assert f"penstock runs show {lines[0]}" in lines[1]

    def test_json_is_the_whole_run(self, shell: Shell) -> None:
        """With --json the output is the run as stored."""
        run = shell.json("runs", "submit", "hello", "--param", "name=Ada", "--priority", "8")
        assert (run["state"], run["execution_priority"], run["parameters"]) == (
            "PENDING",
            8,
            {"name": "Ada"},
        )

    def test_repeated_key_returns_the_same_run(self, shell: Shell) -> None:
        """A repeated idempotency key returns the same run; other fields are a conflict."""
        first = shell.submit("hello", "--key", "k1")
        assert shell.submit("hello", "--key", "k1") == first
        other = shell("runs", "submit", "hello", "--key", "k1", "--priority", "9")
        assert other.code == 4

    def test_later(self, shell: Shell) -> None:
        """--at takes a delay or a time."""
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
        """The error names the field and what is expected; nothing is stored."""
        result = shell("runs", "submit", *args, "--json")
        assert result.code == 2
        assert result.error()["field"] == field
        assert words in result.error()["message"]
        assert shell.json("runs", "list")["items"] == []


class TestList:
    """`runs list`."""

    def test_empty_list_has_a_hint(self, shell: Shell) -> None:
        """An empty list suggests a command, except under --quiet."""
        assert "penstock runs submit" in shell.ok("runs", "list")
        assert "No runs match" in shell.ok("runs", "list", "--state", "FAILED")
        for order in ("running_for", "waiting_for"):
            assert "Submit one" not in shell.ok("runs", "list", "--sort", order)
        assert shell.ok("runs", "list", "--quiet") == ""

    def test_filters(self, shell: Shell) -> None:
        """Filters by customer, pipeline, state and time of the occurrence."""
        mine = shell.submit("hello", "--customer", "acme")
        shell.submit("broken", "--customer", "other")
        for args in (
            ["--customer", "acme"],
            ["--pipeline", "hello"],
            ["--customer", "acme", "--state", "pending", "--since", "1h"],
        ):
            runs = shell.json("runs", "list", *args)["items"]
            assert [run["run_id"] for run in runs] == [mine], args
        assert shell.json("runs", "list", "--until", "1h")["items"] == []
        assert shell.json("runs", "list", "--since", "2020-01-01T00:00:00Z")["items"] != []

    def test_pages(self, shell: Shell) -> None:
        """The hint leads to the next page, and the pages contain every run once."""
        ids = {shell.submit() for _ in range(5)}
        first = shell.json("runs", "list", "--state", "PENDING", "--limit", "3")["items"]
        last = first[-1]["run_id"]
        hint = shell.ok("runs", "list", "--state", "PENDING", "--limit", "3")
        cursor = hint.rpartition("--cursor ")[2].strip()
        for following in (["--before", last], ["--cursor", cursor]):
            rest = shell.json("runs", "list", "--state", "PENDING", *following)["items"]
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
        """The error names the invalid filter."""
        result = shell("runs", "list", *args, "--json")
        assert result.code == 2
        assert result.error()["field"] == field

    def test_a_wait_is_no_state(self, shell: Shell) -> None:
        """What `status` calls ready is asked for by another option."""
        shown = shell("runs", "list", "--state", "READY")
        assert (shown.code, "listed by --waits ready" in shown.err) == (2, True)

    def test_workers(self, shell: Shell) -> None:
        """The worker that holds a run, or held it last, follows its occurrence."""
        ended = shell.submit("hello")
        assert shell.work() == 1
        waiting = shell.submit("hello")
        header, *lines = shell.ok("runs", "list").splitlines()
        assert header.split()[6:9] == ["OCCURRENCE", "WORKER", "TOOK"]
        at = header.index("WORKER")
        shown = {line.split()[0]: line[at:].split()[0] for line in lines}
        record = shell.json("runs", "show", ended)["run"]
        assert shown == {ended: record["claimed_by"], waiting: "-"}

    def test_on_a_terminal(self, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
        """A terminal of 80 columns gets the main columns; if too wide, those with values."""
        shell.submit("broken", "--customer", "a-customer-with-a-long-name")
        piped = shell.ok("runs", "list").splitlines()[0].split()
        monkeypatch.setattr(click.testing._NamedTextIOWrapper, "isatty", lambda _: True)
        names = ["RUN", "STATE", "CUSTOMER", "PIPELINE", "OCCURRENCE", "WORKER", "TOOK", "ERROR"]
        for work in (0, 1):
            empty = ("LATE",) if work else ("WORKER", "TOOK", "LATE", "ERROR")
            for width, shown in (("80", names), ("120", piped)):
                expected = [name for name in shown if name not in empty]
                monkeypatch.setenv("COLUMNS", width)
                header = shell.ok("runs", "list").splitlines()[0].split()
                assert header == expected, (work, width)
            assert shell.work() == 1 - work

    def test_unknown_customer_is_not_found(self, shell: Shell) -> None:
        """An unknown customer is an error, because an empty list would hide a typo."""
        result = shell("runs", "list", "--customer", "unknown")
        assert result.code == 3
        assert "customer unknown" in result.err


class TestShow:
    """`runs show`."""

    def test_shows_result_and_journal(self, shell: Shell) -> None:
        """The output has the state, the result and the journal."""
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
        """A malformed id is invalid input; an unknown one is not found."""
        assert shell("runs", "show", "run_00000000").code == 3
        result = shell("runs", "show", "17")
        assert result.code == 2
        assert "RUN_ID: expected an id such as" in result.err


class TestEnds:
    """Cancel, dead letters, retry, discard."""

    def test_cancel(self, shell: Shell) -> None:
        """A pending run is cancelled immediately; a finished one is an error."""
        run_id = shell.submit()
        assert "is cancelled" in shell.ok("runs", "cancel", run_id, "--reason", "test")
        result = shell("runs", "cancel", run_id, "--json")
        assert result.code == 4
        assert result.error()["code"] == "run.illegal_transition"

    def test_dead_letters(self, shell: Shell) -> None:
        """Dead letters are listed with hints, can be retried, and can be discarded once."""
        assert "No dead letters" in shell.ok("dlq", "list")
        run_id = shell.submit("broken", "--customer", "acme")
        shell.work()
        text = shell.ok("dlq", "list")
        dead_letter = shell.json("dlq", "list")["items"][0]
        assert dead_letter["dead_letter_id"] in text
        assert dead_letter["run_id"] == run_id
        assert "nothing can be done for acme" in text
        assert f"penstock runs retry {run_id}" in shell.ok("runs", "show", run_id)
        assert shell.json("dlq", "list")["items"][0]["error_type"] == "PERMANENT_ERROR"
        new = shell.json("runs", "retry", run_id)["retried"][0]["new_run_id"]
        assert shell.json("dlq", "list")["items"] == []
        shell.work()
        assert "is discarded" in shell.ok("dlq", "discard", new, "--reason", "hopeless")
        again = shell("dlq", "discard", new, "--reason", "hopeless")
        assert again.code == 4
        assert shell.json("dlq", "list", "--status", "all")["items"][0]["run_id"] == new

    def test_retry_of_an_unfinished_run_fails(self, shell: Shell) -> None:
        """Only finished runs can be retried."""
        assert shell("runs", "retry", shell.submit()).code == 4

    def test_discard_requires_a_reason(self, shell: Shell) -> None:
        """The error names the missing option."""
        result = shell("dlq", "discard", "run_00000000")
        assert result.code == 2
        assert "--reason" in result.err


def test_show_of_a_replayed_run(shell: Shell) -> None:
    """The retry hint is shown while the dead letter is open, then the new run and its actor."""
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


def test_wrong_state_errors_have_a_fix(shell: Shell) -> None:
    """Retrying an unfinished run suggests a cancel; a second cancel says so."""
    run_id = shell.submit()
    assert f"cancel it first (penstock runs cancel {run_id})" in shell("runs", "retry", run_id).err
    shell.ok("runs", "cancel", run_id)
    assert "already cancelled" in shell("runs", "cancel", run_id).err


buggy = Pipeline("buggy")


@buggy.processor
def price(run: RunContext) -> None:
    """Fail with a plain exception after logging two lines."""
    run.log.info("reading prices of %s", run.customer_id)
    run.log.warning("no cents: password=geheim")
    raise KeyError("cents")


class TestFailures:
    """What a person sees of a failure."""

    def _failed(self, shell: Shell) -> str:
        with connect(shell.url) as client:
            client.register([buggy])
            run_id = client.runs.submit(Submission(pipeline="buggy")).run_id
            run_pending(client, [buggy])
        return run_id

    def test_show(self, shell: Shell) -> None:
        """`runs show` has the class, the message, the traceback and the run's log lines."""
        text = shell.ok("runs", "show", self._failed(shell))
        assert "UNKNOWN, KeyError: 'cents'" in text
        assert "Traceback\n  | Traceback (most recent call last):" in text
        assert "  |     raise KeyError(" in text
        assert "INFO    penstock.run  reading prices of default" in text
        assert "geheim" not in text

    def test_lists_name_the_class(self, shell: Shell) -> None:
        """`runs list` shows the class beside the error type; --json and csv have a field."""
        run_id = self._failed(shell)
        assert "UNKNOWN, KeyError" in shell.ok("runs", "list", "--state", "FAILED")
        csv = ("runs", "list", "--search", run_id, "--output", "csv", "--columns")
        assert shell.ok(*csv, "run_id,error_class").splitlines()[1] == f"{run_id},KeyError"

    def test_a_dead_letter(self, shell: Shell) -> None:
        """`dlq show` says why the run was not retried and what would change it."""
        run_id = shell.submit("broken")
        shell.work()
        text = shell.ok("dlq", "show", run_id)
        assert "PERMANENT_ERROR, PermanentError: nothing can be done for default" in text
        assert "  | Traceback (most recent call last):" in text
        assert "the processor raised PermanentError" in text
        assert "Raise another exception" in text
        assert "PermanentError" in shell.ok("dlq", "list")
        assert "Raise another exception" in shell.ok("runs", "show", run_id)

    def test_logs(self, shell: Shell) -> None:
        """`runs logs` shows the lines, and those of a level or above."""
        run_id = self._failed(shell)
        found = shell.json("runs", "logs", run_id)["entries"]
        assert [(one["level"], one["message"]) for one in found] == [
            ("INFO", "reading prices of default"),
            ("WARNING", "no cents: password=***"),
        ]
        assert found[0]["logger"] == "penstock.run"
        text = shell.ok("runs", "logs", run_id, "--level", "warning")
        assert "no cents" in text
        assert "reading" not in text
        assert "No entries." in shell.ok("runs", "logs", shell.submit())


def test_a_long_list_is_continued_by_cursor(shell: Shell) -> None:
    """The hint of each part has the options of the next one, also for a relative time."""
    ids = [shell.submit() for _ in range(5)]
    seen: list[str] = []
    options = ["--since", "1h"]
    for _ in range(3):
        result = shell("runs", "list", "--limit", "2", *options)
        seen += [line.split()[0] for line in result.out.splitlines()[1:] if line[:4] == "run_"]
        if "add " not in result.out + result.err:
            break
        options = (result.out + result.err).rpartition("add ")[2].split()
    assert seen == ids[::-1]
