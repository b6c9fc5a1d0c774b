"""The event log: texts, levels, rate limit and JSON lines."""

import json
import logging
import threading

import pytest
from msgspec.structs import replace

from penstock.audit.telemetry import (
    RunEnded,
    RunRefused,
    RunsReleased,
    RunStarted,
    ServiceError,
    ServiceStarted,
    Swept,
    Ticked,
    WorkerHeartbeat,
)
from penstock.cli.log_writer import LogWriter
from penstock.cli.logging import (
    ERROR_SECONDS,
    LINES_PER_SECOND,
    EventLog,
    RepeatedErrors,
    describe_event,
)
from penstock.core.clock import SECOND
from penstock.core.ids import encode
from penstock.core.naming import ProcessorKey
from penstock.telemetry.log_lines import LogRecordData
from penstock.testing.clock import VirtualClock

RUN_7 = encode("run", 7)
DONE = RunEnded(7, "acme", ProcessorKey(1), "COMPLETED", None, False, False)
DEAD = RunEnded(7, "acme", ProcessorKey(1), "FAILED", "AUTHENTICATION_FAILED", False, True)


def make(level: str = "info", *, as_json: bool = False) -> tuple[EventLog, list[str], VirtualClock]:
    lines: list[str] = []
    clock = VirtualClock(1_763_337_600 * SECOND)
    log = EventLog(
        lines.append, as_json=as_json, level=level, name_of=lambda _: "bill", clock=clock
    )
    return log, lines, clock


def test_event_texts() -> None:
    """Each event has its level and text."""
    for event, level, words in (
        (DONE, "info", "completed: bill for acme"),
        (DEAD, "error", "penstock runs show run_"),
        (
            RunEnded(7, "a", ProcessorKey(1), "FAILED", "TIMEOUT", True, False),
            "warning",
            "will be retried",
        ),
        (RunStarted(7, "acme", ProcessorKey(1), 2), "debug", "attempt 2"),
        (RunRefused(7, 3), "warning", "rejected"),
        (Ticked(9, 7, 1, 1, 3), "info", "7 runs of 9 due configs"),
        (Swept(1, 2, 3, 0, 0), "warning", "1 session, 2 lapsed, 3 stale"),
        (Swept(2, 0, 0, 0, 0), "warning", "repaired: 2 sessions"),
        (WorkerHeartbeat(1, "lost", 4), "warning", "session lost"),
        (ServiceError("sweeper", "gone", 1.5), "error", "sweeper failed: gone; retrying in 1.5 s"),
        (ServiceError("a", "refused\n\tIs it up?", 0), "error", "a failed: refused Is it up?"),
        (RunsReleased.of([8, 7]), "info", f"2 runs released, for another worker: {RUN_7}, run_"),
        (RunsReleased.of(range(30)), "info", " and 10 more"),
        (ServiceStarted("sweeper"), "debug", "service started sweeper"),
    ):
        found, text = describe_event(event, lambda _: "bill")
        assert found == level, event
        assert words in text, text


def test_levels() -> None:
    """Events below the level are not written."""
    log, lines, _ = make("warning")
    log(DONE)
    log(DEAD)
    assert len(lines) == 1


def test_rate_limit() -> None:
    """Beyond LINES_PER_SECOND, events are counted instead of written."""
    log, lines, clock = make()
    for _ in range(1000):
        log(DONE)
    assert len(lines) == LINES_PER_SECOND
    clock.advance(seconds=1)
    log(DONE)
    assert lines[LINES_PER_SECOND].endswith(f"… and {1000 - LINES_PER_SECOND:,} completed")
    for _ in range(100):
        log(DONE)
    log.flush()
    assert "81 completed" in lines[-1]


def test_one_line_for_an_outage() -> None:
    """The same error of many services has one line in ERROR_SECONDS, with the number before it."""
    log, lines, clock = make()
    for _ in range(4):
        for service in ("sweeper", "scheduler", "worker.beat"):
            log(ServiceError(service, "StoreUnavailable: PostgreSQL: refused", 1.0))
        log(ServiceError("sweeper", "KeyError: 'x'", 1.0))
    assert len(lines) == 2
    clock.advance(seconds=ERROR_SECONDS)
    log(ServiceError("scheduler", "StoreUnavailable: PostgreSQL: refused", 5.0))
    assert lines[2].endswith(
        "retrying in 5.0 s (and before: 11 failures of scheduler, sweeper, worker.beat)"
    )
    log(ServiceError("sweeper", "StoreUnavailable: PostgreSQL: refused", 5.0))
    assert len(lines) == 3
    clock.advance(seconds=60)
    log(DONE)
    assert lines[3].endswith("… and 4 failures of sweeper")
    assert "completed" in lines[4]
    log(ServiceError("sweeper", "StoreUnavailable: PostgreSQL: refused", 5.0))
    log(ServiceError("sweeper", "StoreUnavailable: PostgreSQL: refused", 5.0))
    log.flush()
    assert [line.partition("  ")[2] for line in lines[5:]] == [
        "! sweeper failed: StoreUnavailable: PostgreSQL: refused; retrying in 5.0 s",
        "… and 1 failure of sweeper",
    ]


def test_repeated_errors_are_exported() -> None:
    """The exporter gets each failure, also those without a line of text."""
    lines: list[str] = []
    exported: list[LogRecordData] = []
    log = EventLog(lines.append, as_json=False, clock=VirtualClock(SECOND), export=exported.append)
    for _ in range(5):
        log(ServiceError("sweeper", "StoreUnavailable: refused", 1.0))
    assert (len(lines), len(exported)) == (1, 5)


def test_clock_is_set_back() -> None:
    """An error that goes on after the clock was set back by an hour has lines again."""
    errors = RepeatedErrors()
    error = ServiceError("sweeper", "StoreUnavailable: refused", 1.0)
    seen = [errors.count(error, at * SECOND) for at in (9_000, 9_001, 5_400, 5_401)]
    assert seen == ["", None, " (and before: 1 failure of sweeper)", None]


def test_many_failing_services() -> None:
    """A summary names the first services and counts the others."""
    log, lines, _ = make()
    for number in range(10):
        log(ServiceError(f"service{number}", "StoreUnavailable: refused", 1.0))
    log.flush()
    assert lines[1].endswith(
        "9 failures of service1, service2, service3, service4, service5, service6 and 3 others"
    )


def test_json_lines_are_complete() -> None:
    """JSON output has every event, with public ids."""
    log, lines, _ = make(as_json=True)
    for _ in range(50):
        log(DONE)
    assert len(lines) == 50
    record = json.loads(lines[0])
    assert (record["action"], record["level"]) == ("run_ended", "info")
    assert record["run_id"].startswith("run_")
    assert (record["pipeline"], record["processor"]) == ("bill", "bill")
    assert (record["retry"], record["dead"]) == (False, False)


def test_log_records_are_included() -> None:
    """A processor's log records are written with the id of its run."""
    from penstock.cli.logging import _Handler

    log, lines, _ = make()
    record = logging.LogRecord("penstock.run", logging.INFO, "x.py", 1, "half done", (), None)
    record.run_id = "run_abc"
    _Handler(log).emit(record)
    assert lines[0].endswith("run_abc half done")


@pytest.mark.parametrize("as_json", [False, True])
def test_secrets_are_masked(as_json: bool) -> None:
    """Log lines mask values that look like secrets, and fields with secret names."""
    from penstock.cli.logging import _Handler

    log, lines, _ = make(as_json=as_json)
    text = "cannot reach postgresql://u:cnry-8f3a@db/x with password=cnry-8f3a"
    _Handler(log).emit(logging.LogRecord("x", logging.WARNING, "x.py", 1, text, (), None))
    log.write("warning", "careful", {"action": "log", "api_key": "cnry-8f3a"})
    assert len(lines) == 2
    assert not any("cnry" in line for line in lines)
    assert "postgresql://u:***@db/x" in lines[0]


def test_a_failure_has_class_message_and_traceback() -> None:
    """The log of a failed run names the exception; its traceback follows, escaped and indented."""
    details = ("KeyError", "'cents'", "Traceback:\n  password=geheim\n\x1b[31mKeyError")
    failed = replace(
        DEAD, error_class=details[0], error=details[1], traceback=details[2], why="because"
    )
    log, lines, _ = make()
    log(failed)
    assert "(AUTHENTICATION_FAILED, KeyError: 'cents')" in lines[0]
    assert [line.strip() for line in lines[1:]] == [
        "| Traceback:", "|   password=***", "| \\x1b[31mKeyError",
    ]  # fmt: skip
    log, lines, _ = make(as_json=True)
    log(failed)
    (record,) = [json.loads(line) for line in lines]
    assert (record["error_class"], record["error"], record["why"]) == (
        "KeyError",
        "'cents'",
        "because",
    )
    assert "password=***" in record["traceback"]
    log(DONE)
    assert "traceback" not in json.loads(lines[-1])


def test_an_unread_log_blocks_nothing() -> None:
    """Lines beyond the bound are dropped and counted while the output blocks."""
    log, lines, _ = make()
    is_writing, is_read = threading.Event(), threading.Event()

    def blocked(line: str) -> None:
        is_writing.set()
        assert is_read.wait(60)
        lines.append(line)

    with LogWriter(blocked, log.dropped_line, most=2) as writer:
        writer.put("1")
        assert is_writing.wait(60)
        for number in range(2, 8):
            writer.put(str(number))
        assert not lines
        is_read.set()
    assert [lines[0], *lines[2:]] == ["1", "2", "3"]
    assert "4 log lines dropped: nothing read the output" in lines[1]
