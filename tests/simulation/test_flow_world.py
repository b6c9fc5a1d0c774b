"""Users' pipelines under seeded faults: invariants hold, seeds repeat, bugs are detected."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from penstock import Mode, Pipeline, historical, optional, per, same_day, upstream
from penstock.cli import cli
from penstock.demo.nba.pipeline import nba
from penstock.flows import cascade
from penstock.flows.advance import change_set
from penstock.testing.simulate import histories
from penstock.testing.simulate.histories import SimulationFailed, run_seed
from tests.kits.effort import effort

SEEDS = range(effort(2, 6))


def _work(run: object) -> None:
    """Never called."""


def shop() -> Pipeline:
    """A diamond with a separate pool, an external processor, gates per processor and stragglers."""
    made = Pipeline("shop", partition="day", modes=[Mode("calm", otherwise="WAIT", max_wait="1h")])
    load = made.phase("load", stragglers="20m")
    left = made.phase("left", after=load, on="each", on_late_data="rerun")
    right = made.phase("right", after=load)
    last = made.phase("last", after=[left, right], stragglers="15m")
    load.processor("orders", produces="raw.orders")(_work)
    load.external("prices", produces="raw.prices")
    left.processor("sales", needs=[same_day("raw.orders", expect=per(2, "raw.stores"))])(_work)
    left.processor("costs", pool="slow", needs=[same_day("raw.prices")])(_work)
    week = historical("raw.orders", days=7, degraded_at=3)
    right.processor("weather", needs=[optional("raw.weather"), week])(_work)
    last.processor("mail", timeout="5m")(_work)
    last.external("print")
    return made


@pytest.mark.parametrize("seed", SEEDS)
def test_a_diamond(seed: int) -> None:
    """Every invariant holds after every commit, and everything becomes idle."""
    report = run_seed(seed, [shop()])
    assert report.flows
    assert report.decisions


def test_items() -> None:
    """Lists of an earlier result and of a query are expanded once each, under every fault."""
    made = Pipeline("fan", partition="day", warehouse="w")
    listing = made.phase("listing")
    listing.processor("games")(_work)
    items = made.phase("items", after=listing, stragglers="20m")
    items.processor("game", each=upstream("games"), min_items=0.5)(_work)
    items.processor("shop", each="SELECT id FROM shops")(_work)
    made.phase("last", after=items).processor("gather")(_work)
    for seed in SEEDS:
        assert run_seed(seed, [made]).flows


def test_basketball() -> None:
    """The example pipeline holds too; its functions are not called."""
    assert sum(run_seed(seed, [nba]).decisions["PROCEED"] for seed in range(4)) > 0


def test_same_seed_same_history() -> None:
    """A seed always has the same trace, whatever ran before."""
    first, second = run_seed(5, [shop()]), run_seed(5, [shop()])
    assert first == second
    assert first.digest != run_seed(6, [shop()]).digest


def _broken(check: Callable[[], object]) -> SimulationFailed:
    with pytest.raises(SimulationFailed) as raised:
        check()
    return raised.value


def _some_seeds() -> None:
    for seed in range(effort(3, 12)):
        run_seed(seed, [shop()])


@pytest.mark.seeded
def test_an_early_start_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cascade that does not wait for the set breaks I14."""
    monkeypatch.setattr(cascade, "_is_over", lambda *_: True)
    assert _broken(_some_seeds).invariant == "I14"


@pytest.mark.seeded
def test_a_partial_start_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cascade that does not create all runs of a phase breaks I13."""
    real = change_set.run_rows

    def fewer(*given: Any) -> Any:
        rows = real(*given)
        return rows[:-1] if len(rows) > 1 else rows

    monkeypatch.setattr("penstock.flows.advance.store.run_rows", fewer)
    assert _broken(_some_seeds).invariant == "I13"


@pytest.mark.seeded
def test_a_lost_flow_event_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cascade that drops flow events never becomes idle."""
    monkeypatch.setattr("penstock.flows.orchestrator.flow_event_take", lambda *_: [])
    monkeypatch.setattr(histories, "HEAL_ROUNDS", 60)
    assert _broken(lambda: run_seed(1, [shop()])).invariant == "I15"


def test_the_command(tmp_path: Path) -> None:
    """`penstock simulate` runs the pipelines of a file and prints text or JSON."""
    file = tmp_path / "tiny_pipeline.py"
    file.write_text(
        "from penstock import Pipeline\n"
        'tiny = Pipeline("tiny")\n'
        'one = tiny.phase("one")\n'
        'two = tiny.phase("two", after=one)\n'
        'one.processor("a")(lambda run: None)\n'
        'two.processor("b")(lambda run: None)\n'
    )
    as_text = CliRunner().invoke(cli, ["simulate", str(file), "--seeds", "2", "--steps", "60"])
    assert (as_text.exit_code, "0 failed" in as_text.output) == (0, True), as_text.output
    as_json = CliRunner().invoke(
        cli, ["simulate", str(file), "--seed", "7", "--steps", "60", "--json"]
    )
    record = json.loads(as_json.output)
    assert (record["pipelines"], record["histories"], record["failures"]) == (["tiny"], 1, [])
    wrong = CliRunner().invoke(cli, ["simulate", "no.such.module"])
    assert wrong.exit_code == 2
    assert "no.such.module" in wrong.stderr


def test_a_failing_seed_prints_its_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The summary counts the failure, and the line above it is the command."""
    monkeypatch.setattr("penstock.flows.orchestrator.flow_event_take", lambda *_: [])
    monkeypatch.setattr(histories, "HEAL_ROUNDS", 60)
    target = "examples.nba:nba"
    assert histories.main([target, "--seeds", "1", "--first", "4", "--steps", "150"]) == 1
    out = capsys.readouterr().out
    assert f"reproduce: penstock simulate {target} --seed 4 --steps 150" in out
    assert "1 failed" in out
