"""The context of a run: names, defaults, signals and progress; and the outcome of a run."""

import asyncio
import contextlib
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.core.clock import from_datetime
from penstock.core.errors import (
    InvalidInput,
    LeaseLost,
    PermanentError,
    RunCancelled,
    RunTimedOut,
    TransientError,
)
from penstock.core.ids import encode
from penstock.core.naming import ProcessorKey
from penstock.pipelines.declare.processor import Processor
from penstock.runs.rows import RunEnd
from penstock.testing.clock import VirtualClock
from penstock.worker.context import LoadedProcessor, Result, RunContext, Signal
from penstock.worker.outcome import (
    AttemptOutcome,
    finish_of,
    outcome_of_death,
    outcome_of_error,
    outcome_of_value,
)
from tests.worker.kit import held_run, no_jitter

START = from_datetime(datetime(2025, 1, 2, tzinfo=UTC))
PROCESSOR = Processor(
    pipeline="nba", phase="raw", name="boxscores", pool="default", timeout_us=60_000_000,
    retry=None, runs="thread", body=None,
)  # fmt: skip


def made(**changes: Any) -> tuple[RunContext, VirtualClock]:
    clock = VirtualClock(START)
    known = LoadedProcessor(ProcessorKey(1), PROCESSOR, {"days": 30, "provider": "aws"})
    return RunContext(held_run(**changes), known, clock, clock.monotonic()), clock


def verdict(context: RunContext, outcome: AttemptOutcome, now: float = 1.5) -> RunEnd:
    return finish_of(context, outcome, jitter=no_jitter, actor="w", now=now)


class TestNames:
    """What a processor can read."""

    def test_ids_and_names(self) -> None:
        run, _ = made(partition="2025-12-31", mode="backfill", correlation_id="cause")
        assert (run.run_id, run.customer_id) == (encode("run", 7), "acme")
        assert (run.pipeline, run.phase, run.processor) == ("nba", "raw", "boxscores")
        assert (run.partition, run.mode, run.correlation_id) == ("2025-12-31", "backfill", "cause")
        assert (run.token, run.attempt, run.max_attempts) == (3, 1, None)
        assert run.occurrence_time == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
        assert run.scheduled_time > run.occurrence_time

    def test_defaults(self) -> None:
        run, _ = made(retry='{"max_attempts": 4}', root_run_id=5)
        assert run.partition == "2023-11-14T22:13:20Z"
        assert run.correlation_id == encode("run", 5)
        assert run.max_attempts == 4

    def test_parameters_are_merged_over_the_defaults_and_read_only(self) -> None:
        run, _ = made(parameters='{"provider": "gcp", "x": 1}')
        assert dict(run.parameters) == {"days": 30, "provider": "gcp", "x": 1}
        with pytest.raises(TypeError):
            run.parameters["x"] = 2  # type: ignore[index]
        assert dict(made()[0].parameters) == {"days": 30, "provider": "aws"}

    def test_the_idempotency_key_is_the_same_for_retries(self) -> None:
        first, _ = made(config_id=9)
        retry, _ = made(config_id=9, run_id=8, attempt=2, root_run_id=7, token=99)
        assert first.idempotency_key == retry.idempotency_key
        assert first.attempt_key != retry.attempt_key
        other_occurrence, _ = made(config_id=9, occurrence_time=1)
        assert other_occurrence.idempotency_key != first.idempotency_key
        single, _ = made(run_id=11)
        again, _ = made(run_id=12, root_run_id=11, attempt=2)
        assert single.idempotency_key == again.idempotency_key
        flow, _ = made(flow_id=4, config_id=9)
        assert encode("flow", 4) in flow.idempotency_key

    def test_the_log_carries_ids(self, caplog: pytest.LogCaptureFixture) -> None:
        run, _ = made()
        with caplog.at_level("INFO", "penstock.run"):
            run.log.info("hello")
        assert caplog.records[0].__dict__["run_id"] == run.run_id
        assert run.log is run.log


class TestSignals:
    """How a run receives the signal to stop."""

    @pytest.mark.parametrize(
        ("signal", "error"),
        [
            (Signal.CANCEL, RunCancelled),
            (Signal.TIMEOUT, RunTimedOut),
            (Signal.LEASE, LeaseLost),
            (Signal.DRAIN, LeaseLost),
        ],
    )
    def test_check_and_progress_raise(self, signal: Signal, error: type[Exception]) -> None:
        run, _ = made()
        run.check()
        before = run.is_cancelled
        run.send_signal(signal, 0.0)
        assert (before, run.is_cancelled) == (False, True)
        with pytest.raises(error):
            run.check()
        with pytest.raises(error):
            run.progress(3)

    def test_the_first_signal_is_kept(self) -> None:
        run, _ = made()
        received: list[Signal] = []
        run.interrupt = received.append
        for signal in (Signal.CANCEL, Signal.LEASE, Signal.KILL):
            run.send_signal(signal, 1.0)
        assert run.signal is Signal.CANCEL
        assert received == [Signal.CANCEL, Signal.LEASE, Signal.KILL]

    def test_the_deadline_applies_without_a_signal(self) -> None:
        run, clock = made(max_execution_us=10_000_000)
        clock.advance(seconds=4)
        assert run.deadline == datetime(2025, 1, 2, 0, 0, 10, tzinfo=UTC)
        clock.advance(seconds=7)
        with pytest.raises(RunTimedOut):
            run.check()


class TestProgress:
    """Progress reported by a run."""

    def test_the_latest_progress_is_returned_once(self) -> None:
        run, _ = made()
        assert run.take_progress() is None
        run.progress(10, "extracting", extracted=5)
        run.progress(20.5, loaded=2, bytes=7, state="FINALIZING")
        taken = run.take_progress()
        assert taken is not None
        assert (taken.percent, taken.stage, taken.current_state) == (
            20.5, "extracting", "FINALIZING",
        )  # fmt: skip
        assert (taken.records_extracted, taken.records_loaded, taken.bytes_processed) == (5, 2, 7)
        assert run.take_progress() is None

    def test_percent_is_clamped_and_an_unknown_state_refused(self) -> None:
        run, _ = made()
        run.progress(1e9)
        taken = run.take_progress()
        assert taken is not None
        assert taken.percent == 100.0
        run.progress(-3)
        taken = run.take_progress()
        assert taken is not None
        assert taken.percent == 0.0
        with pytest.raises(InvalidInput, match="state"):
            run.progress(state="SLEEPING")

    def test_stages_are_measured_and_add_up(self) -> None:
        run, clock = made()
        for seconds in (1, 2):
            with run.stage("extract"):
                clock.advance(seconds=seconds)
        with contextlib.suppress(KeyError), run.stage("load"):
            clock.advance(seconds=4)
            raise KeyError
        outcome = outcome_of_value(run, None)
        assert json.loads(outcome.stages or "") == {"extract": 3_000_000, "load": 4_000_000}


class TestOutcomes:
    """How runs end."""

    def test_plain_results(self) -> None:
        run, _ = made()
        assert verdict(run, outcome_of_value(run, None))[:5] == (
            7, 3, "COMPLETED", "SUCCESS", 1_500_000,
        )  # fmt: skip
        run.records = 4
        ended = verdict(run, outcome_of_value(run, {"rows": 4, "at": START}))
        assert (json.loads(ended.result or ""), ended.records) == ({"rows": 4, "at": START}, 4)

    def test_a_result_overrides_the_counts(self) -> None:
        run, _ = made()
        run.records = 4
        value = Result(status="PARTIAL_SUCCESS", summary={"a": 1}, records=0, bytes=9)
        ended = verdict(run, outcome_of_value(run, value))
        assert (ended.status, ended.records, ended.bytes) == ("PARTIAL_SUCCESS", 0, 9)

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            ("text", "return None, a mapping"),
            ({"a": object()}, "cannot be encoded as JSON"),
            ({"a": "\ud800"}, "cannot be encoded as JSON"),
            ({"a": "x" * 70_000}, "bytes as JSON"),
            (Result(status="FAILURE"), "raise an exception"),
            (Result(records=-1), "integers"),
            (Result(records="many"), "integers"),  # type: ignore[arg-type]
        ],
    )
    def test_what_cannot_be_stored_is_a_validation_error(self, value: object, text: str) -> None:
        run, _ = made()
        ended = verdict(run, outcome_of_value(run, value))
        assert (ended.final_state, ended.error_type, ended.is_dead) == (
            "FAILED", "VALIDATION_ERROR", True,
        )  # fmt: skip
        assert text in json.loads(ended.error_details or "")["message"]

    def test_errors_are_classified_and_bounded(self) -> None:
        run, _ = made()
        try:
            raise TransientError("nul \0 and \ud800 " + "x" * 9_000, error_type="FLAKY")
        except TransientError as error:
            ended = verdict(run, outcome_of_error(error))
        details = json.loads(ended.error_details or "")
        assert (ended.error_type, ended.final_state) == ("FLAKY", "FAILED")
        assert ended.retry_delay_us == 300_000_000
        assert len(details["message"]) <= 4 * 1024 + 8
        assert len(details["traceback"]) <= 8 * 1024 + 8
        assert details["type"] == "penstock.core.errors.TransientError"
        assert "\0" not in (ended.error_details or "")

    def test_a_broken_exception_is_still_an_outcome(self) -> None:
        class Broken(Exception):
            def __str__(self) -> str:
                raise ValueError("broken")

        assert "cannot be shown" in (outcome_of_error(Broken()).details or "")

    @pytest.mark.parametrize(
        ("signal", "error", "state", "error_type"),
        [
            (Signal.CANCEL, RunCancelled(), "CANCELLED", None),
            (Signal.CANCEL, asyncio.CancelledError(), "CANCELLED", None),
            (Signal.CANCEL, ValueError("interrupted call"), "CANCELLED", None),
            (Signal.LEASE, LeaseLost(), "RETURNED", None),
            (Signal.LEASE, PermanentError("real"), "FAILED", "PERMANENT_ERROR"),
            (Signal.DRAIN, asyncio.CancelledError(), "RETURNED", None),
            (Signal.DRAIN, PermanentError("real"), "FAILED", "PERMANENT_ERROR"),
            (Signal.TIMEOUT, RunTimedOut(), "TIMEOUT", "TIMEOUT"),
            (None, RunTimedOut(), "TIMEOUT", "TIMEOUT"),
            (None, RunCancelled(), "FAILED", "UNKNOWN"),
        ],
    )
    def test_what_a_signalled_run_raises(
        self, signal: Signal | None, error: BaseException, state: str, error_type: str | None
    ) -> None:
        run, _ = made()
        if signal is not None:
            run.send_signal(signal, 0.0)
        ended = verdict(run, outcome_of_error(error))
        assert (ended.final_state, ended.error_type) == (state, error_type)

    def test_a_cancelled_run_that_completes_anyway_is_completed(self) -> None:
        run, _ = made()
        run.send_signal(Signal.CANCEL, 0.0)
        assert verdict(run, outcome_of_value(run, None)).final_state == "COMPLETED"

    def test_a_timed_out_run_that_completes_anyway_is_not(self) -> None:
        run, _ = made()
        run.send_signal(Signal.TIMEOUT, 0.0)
        assert verdict(run, outcome_of_value(run, None)).final_state == "TIMEOUT"

    def test_a_dead_process_is_reported_with_its_signal_or_code(self) -> None:
        assert "signal 9 (out of memory?)" in (outcome_of_death(-9).details or "")
        assert "exit code 3" in (outcome_of_death(3).details or "")
        assert outcome_of_death(3).error_type == "PROCESS_DIED"
