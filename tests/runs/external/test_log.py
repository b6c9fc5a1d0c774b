"""Log lines of external workers: only from the holder, masked, bounded, on both engines."""

from __future__ import annotations

import pytest

from penstock.core.errors import IllegalTransition, InvalidInput, NotFound, StaleToken
from penstock.core.ids import encode
from penstock.runs.external.client import log as external_log
from penstock.runs.external.records import NewLogEntry, RunLogReceipt, RunLogReport
from penstock.runs.store.logs import LogBounds
from tests.kits.client_harness import Harness
from tests.kits.external_worker import ended, running


def report(token: int, *texts: str) -> RunLogReport:
    """Return lines of a holder."""
    return RunLogReport(fencing_token=token, entries=[NewLogEntry(message=text) for text in texts])


def messages(harness: Harness, run_id: str) -> list[str]:
    """Return the texts of a run's log."""
    return [one.message for one in harness.client.runs.logs(run_id).entries]


def test_lines_are_kept_in_order_and_masked(harness: Harness) -> None:
    held = running(harness).run
    run_id = encode("run", held.run_id)
    done = harness.client.workers.log(run_id, report(held.token, "one", "password=abc"))
    assert done == RunLogReceipt(run_id=run_id, entries=2)
    warned = NewLogEntry(message="y" * 5_000, level="WARNING", logger="loader")
    harness.client.workers.log(run_id, RunLogReport(fencing_token=held.token, entries=[warned]))
    found = harness.client.runs.logs(run_id).entries
    assert [one.message for one in found[:2]] == ["one", "password=***"]
    assert (found[2].level, found[2].logger, len(found[2].message)) == ("WARNING", "loader", 2_000)


def test_only_the_holder_adds_lines(harness: Harness) -> None:
    held = running(harness).run
    run_id = encode("run", held.run_id)
    with pytest.raises(StaleToken):
        harness.client.workers.log(run_id, report(held.token + 1, "no"))
    with pytest.raises(NotFound):
        harness.client.workers.log("run_00000000", report(held.token, "no"))
    assert messages(harness, run_id) == []
    over = ended("complete", running)(harness).run
    with pytest.raises(IllegalTransition):
        harness.client.workers.log(encode("run", over.run_id), report(over.token, "late"))


def test_a_request_is_bounded(harness: Harness) -> None:
    held = running(harness).run
    run_id = encode("run", held.run_id)
    for texts in ((), ["x" * 8_000] * 32):
        with pytest.raises(InvalidInput):
            harness.client.workers.log(run_id, report(held.token, *texts))


@pytest.mark.parametrize(
    "bounds",
    [
        LogBounds(entries=20, characters=1_000_000, parts=900),
        LogBounds(entries=10_000, characters=1_000, parts=900),
        LogBounds(entries=10_000, characters=1_000_000, parts=10),
    ],
    ids=["entries", "characters", "parts"],
)
def test_a_long_log_keeps_its_begin_and_its_end(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, bounds: LogBounds
) -> None:
    monkeypatch.setattr(external_log, "LOG_BOUNDS", bounds)
    held = running(harness).run
    run_id = encode("run", held.run_id)
    for number in range(0, 60, 2):
        harness.client.workers.log(run_id, report(held.token, str(number), str(number + 1)))
        seen = messages(harness, run_id)
        assert seen[-1] == str(number + 1)
        assert len(seen) <= 30
    notes = [(index, text) for index, text in enumerate(seen) if "were not kept" in text]
    ((index, note),) = notes
    assert seen[:index] == [str(n) for n in range(index)]
    rest = seen[index + 1 :]
    assert rest == [str(n) for n in range(60 - len(rest), 60)]
    assert note == f"{60 - index - len(rest)} entries were not kept"
    assert index >= 6
    assert len(rest) >= 6


def test_a_bound_key_adds_lines_to_its_customers_runs_only(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rights of a customer's role suffice, also to replace the middle."""
    monkeypatch.setattr(
        external_log, "LOG_BOUNDS", LogBounds(entries=4, characters=10_000, parts=900)
    )
    held = running(harness).run
    run_id = encode("run", held.run_id)
    customer = harness.client.runs.get(run_id).customer
    own = harness.client.scoped(customer)
    for number in range(6):
        own.workers.log(run_id, report(held.token, str(number)))
    assert messages(harness, run_id) == ["0", "1", "2 entries were not kept", "4", "5"]
    harness.submit("outside", customer="globex")
    with pytest.raises(NotFound):
        harness.client.scoped("globex").workers.log(run_id, report(held.token, "no"))
