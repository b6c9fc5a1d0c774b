"""A pipeline with several active configs: the option names one, and suggestions name it too."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import RunContext, connect
from penstock.assembly.process import build_api
from penstock.assembly.settings import load
from penstock.audit.telemetry import Events
from penstock.flows.orchestrator import Orchestrator
from penstock.pipelines.declare.needs import same_day
from penstock.pipelines.declare.pipeline import Pipeline
from tests.cli.test_both_backends import Pair, _alone

__all__ = ["_alone"]

DAY = "2026-01-30"


def my_sales() -> Pipeline:
    """Return a pipeline whose second phase needs a table that its first phase produces."""

    def work(run: RunContext) -> None:
        """Do nothing; it is never called."""

    made = Pipeline("my_sales", partition="day", warehouse="w", customer_column="shop")
    load_ = made.phase("load")
    load_.processor("orders", produces="raw.orders")(work)
    made.phase("total", after=load_).processor("sums", needs=[same_day("raw.orders")])(work)
    return made


def slow() -> Pipeline:
    """Return a pipeline of one processor without needs."""

    def work(run: RunContext) -> None:
        """Do nothing; it is never called."""

    made = Pipeline("slow", partition="day")
    made.processor("wait")(work)
    return made


@pytest.fixture
def ways(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Return a database with both pipelines, and its API, on each engine."""
    url = f"sqlite:{tmp_path / 'penstock.db'}"
    if engine == "postgres":
        url = request.getfixturevalue("pg_migrated_dsn")
    with connect(url) as client:
        client.register([my_sales(), slow()])
        made = client.keys.create("tester", "admin")
        assert made.key is not None
        settings = load({}, overrides={"database_url": url, "api_port": 0, "api_rate": 100_000.0})
        server = build_api(client, settings, Events())
        server.start()
        yield Pair(url, server, made.key)
        server.stop()


@pytest.fixture
def configs(ways: Pair) -> list[str]:
    """The ids of two active configs of `my_sales`."""
    return [
        ways.id("configs", "create", "default", "my_sales", "--cron", at)
        for at in ("0 2 * * *", "0 3 * * *")
    ]


COMMANDS = (
    f"trigger my_sales {DAY} --dry-run",
    f"replay my_sales {DAY} --dry-run",
    f"backfill my_sales --from {DAY} --to {DAY} --dry-run",
)


@pytest.mark.parametrize("line", COMMANDS, ids=lambda line: line.split()[0])
class TestOption:
    """`--config-id` of the commands that open flows."""

    def test_names_one(self, ways: Pair, configs: list[str], line: str) -> None:
        if line.startswith("replay"):
            opened = ways.near("trigger", "my_sales", DAY, "--config-id", configs[1])
            assert opened.code == 0, opened
            line += " --force"
        for call in (ways.near, ways.far):
            done = call(*line.split(), "--config-id", configs[1])
            assert done.code == 0, done
            assert configs[1] in done.out, done
            assert configs[0] not in done.out, done

    def test_is_required(self, ways: Pair, configs: list[str], line: str) -> None:
        for call in (ways.near, ways.far):
            done = call(*line.split())
            assert done.code == 2
            expected = f"--config-id: expected one of the active configs of my_sales: {configs[0]}"
            assert done.err.startswith(f"Error: {expected}"), done.err
            assert "got nothing" in done.err

    def test_has_no_wrong_value(self, ways: Pair, configs: list[str], line: str) -> None:
        for call in (ways.near, ways.far):
            done = call(*line.split(), "--config-id", "cfg_x")
            assert (done.code, configs == []) == (2, False)
            assert done.err.startswith("Error: --config-id: expected"), done.err


def suggested(ways: Pair, *args: str) -> list[list[str]]:
    """Return the commands that `explain` suggests, without the program's name."""
    found = ways.near("explain", *args, "--json")
    return [shlex.split(one["command"])[1:] for one in found.json["actions"]]


def accept(ways: Pair, given: list[list[str]]) -> None:
    """Each command is accepted, both ways; what changes something is a dry run if it can be."""
    for words in given:
        is_dry = words[0] in ("trigger", "replay", "complete", "override")
        more = ["--dry-run"] if is_dry and "--dry-run" not in words else []
        for call in (ways.near, ways.far):
            done = call(*words, *more)
            assert done.code == 0, (words, done)


class TestSuggestions:
    """Commands that `explain` suggests."""

    def test_of_a_missing_flow(self, ways: Pair, configs: list[str]) -> None:
        given = suggested(ways, "my_sales", DAY)
        named = [words[words.index("--config-id") + 1] for words in given]
        assert named == [configs[0], *configs]
        assert "--dry-run" in given[0]
        accept(ways, given)

    def test_of_a_phase_that_waits(self, ways: Pair, configs: list[str]) -> None:
        """The producer of the missing table runs again with the config of the flow."""
        opened = ("trigger", "my_sales", DAY, "--mode", "daily", "--config-id", configs[1])
        assert ways.near(*opened).code == 0
        assert ways.near("complete", "my_sales", DAY, "orders").code == 0
        with connect(ways.database_url) as client:
            Orchestrator(client.store).run_once()
        given = suggested(ways, "my_sales", DAY)
        again = ["trigger", "my_sales", DAY, "load", "--mode", "daily", "--config-id", configs[1]]
        assert again in given
        accept(ways, given)


class TestPhases:
    """A misspelt phase."""

    @pytest.mark.parametrize(
        ("line", "text"),
        [
            (f"trigger my_sales {DAY} totl", "PHASE: expected phases of my_sales (load, total)"),
            (f"replay my_sales {DAY} --from totl", "--from: expected phases of my_sales"),
            (f"gate check my_sales {DAY} totl --mode daily",
             "PHASE: expected a phase of mode daily (load, total), got 'totl'"),
            (f"gate recheck my_sales {DAY} totl", "PHASE: expected one of load, total, got 'totl'"),
            (f"override grant my_sales {DAY} --phase totl --expires 1h --reason x",
             "--phase: expected one of load, total, got 'totl'"),
        ],
    )  # fmt: skip
    def test_gets_a_suggestion(self, ways: Pair, line: str, text: str) -> None:
        for call in (ways.near, ways.far):
            done = call(*line.split())
            assert done.code == 2
            assert done.err.startswith(f"Error: {text}"), done.err
            assert done.err.endswith("Did you mean 'total'?\n"), done.err


class TestWithoutFlows:
    """A pipeline of one processor without needs has runs, not flows."""

    def test_explain_suggests_a_run(self, ways: Pair) -> None:
        submit = ["runs", "submit", "slow", "--partition", DAY]
        assert suggested(ways, "slow", DAY) == [submit]
        accept(ways, [submit])
        listed, again = suggested(ways, "slow", DAY)
        assert (listed[:2], again) == (["runs", "list"], submit)
        accept(ways, [listed])
        shown = ways.near("explain", "slow", DAY)
        assert "it has runs, not flows" in shown.out

    def test_why_says_what_explain_says(self, ways: Pair) -> None:
        for call in (ways.near, ways.far):
            shown = call("why", "slow", DAY)
            assert (shown.code, shown.out) == (0, call("explain", "slow", DAY).out)
            assert "it has runs, not flows" in shown.out
            assert call("why", "my_sales", DAY).code == 3

    @pytest.mark.parametrize("line", [line.replace("my_sales", "slow") for line in COMMANDS])
    def test_refusals_say_so(self, ways: Pair, line: str) -> None:
        for call in (ways.near, ways.far):
            done = call(*line.split())
            assert done.code == 2
            assert done.err.startswith(
                "Error: PIPELINE: expected a pipeline that has flows, got 'slow'. One processor "
                "without needs has runs, not flows. Submit a run: penstock runs submit slow"
            ), done.err
