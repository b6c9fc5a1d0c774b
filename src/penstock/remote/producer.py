"""A producer that spools: events are delivered now, or kept on disk until the server is back.

    with connect(url, key=key, attempts=1) as client, SpoolingProducer(client, "spool") as producer:
        producer.publish("orders", [NewMessage(data=b"{}")])

Every event gets its ids before it is first sent: dedupe ids of messages, the key of a submission,
the execution id of a report. If the response is lost, or a crash repeats the delivery, the server
recognizes them. While events wait, new ones are appended behind them, so the order is kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from msgspec import structs

from penstock.bus.message import NewMessage
from penstock.client import UseCaseGroups
from penstock.core.clock import SECOND, Clock, SystemClock
from penstock.core.errors import Forbidden, PenstockError, Unauthorised
from penstock.core.ids import new_correlation_id
from penstock.core.records.record import to_json_value
from penstock.core.records.validation import convert_input
from penstock.flows.records import CompletionReport
from penstock.remote.spool import BYTES_MAX, Spool, SpooledEvent
from penstock.runs.external.records import RunCompletion
from penstock.runs.records import Submission

RETRY_US: Final = 5 * SECOND
"""How long after a failed delivery new events are only spooled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Produced:
    """Outcome of an event: delivered, with the server's result, or spooled."""

    is_spooled: bool
    result: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushResult:
    """Result of a flush. `error` says why it stopped while events wait."""

    delivered: int
    rejected: int
    waiting: int
    error: str | None = None


class SpoolingProducer:
    """Publishes, submits and reports through a client, with a spool; thread-safe."""

    def __init__(
        self,
        client: UseCaseGroups,
        folder: str | Path,
        *,
        bytes_max: int = BYTES_MAX,
        clock: Clock | None = None,
    ) -> None:
        """Open the spool in `folder`, which belongs to one process at a time."""
        self._client = client
        self._clock = clock or SystemClock()
        self._spool = Spool(Path(folder), bytes_max=bytes_max)
        self._mutex = threading.Lock()
        self._retry_at = 0

    def __enter__(self) -> SpoolingProducer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def publish(
        self, topic: str, messages: Sequence[NewMessage], *, customer: str | None = None
    ) -> Produced:
        """Publish messages; each without a dedupe id gets one."""
        event_id = new_correlation_id()
        kept = [
            one if one.dedupe_id else structs.replace(one, dedupe_id=f"{event_id}-{n}")
            for n, one in enumerate(messages)
        ]
        given = {"topic": topic, "messages": to_json_value(kept), "customer": customer}
        return self._produce(event_id, "publish", given)

    def submit(self, submission: Submission, *, key: str | None = None) -> Produced:
        """Create a run; if its idempotency key is omitted, one is chosen."""
        event_id = new_correlation_id()
        given = {"submission": to_json_value(submission), "key": key or event_id}
        return self._produce(event_id, "submit", given)

    def report(self, report: CompletionReport) -> Produced:
        """Report the completion of a processor that Penstock does not run."""
        event_id = new_correlation_id()
        kept = report if report.execution_id else structs.replace(report, execution_id=event_id)
        return self._produce(event_id, "report", {"report": to_json_value(kept)})

    def complete(
        self, run_id: str, report: RunCompletion | None = None, *, worker_id: str | None = None
    ) -> Produced:
        """Report that a run of an external worker completed; its fencing token makes it unique."""
        given = {
            "run_id": run_id,
            "report": to_json_value(report or RunCompletion()),
            "worker_id": worker_id,
        }
        return self._produce(new_correlation_id(), "complete", given)

    def waiting(self) -> list[SpooledEvent]:
        """Return the events that wait for delivery, oldest first."""
        with self._mutex:
            return list(self._spool.waiting())

    def flush(self) -> FlushResult:
        """Deliver waiting events in order, until the server cannot be reached.

        Events that the server rejects permanently are moved to the rejected events. Raise
        Unauthorised or Forbidden if the key is not accepted; nothing is lost then.
        """
        with self._mutex:
            return self._flush()

    def close(self) -> None:
        """Close the spool; waiting events stay on disk."""
        with self._mutex:
            self._spool.close()

    def _produce(self, event_id: str, kind: str, arguments: dict[str, Any]) -> Produced:
        event = SpooledEvent(
            event_id=event_id, kind=kind, spooled_at=self._clock.now(), arguments=arguments
        )
        with self._mutex:
            if self._spool.is_empty:
                try:
                    return Produced(is_spooled=False, result=deliver(self._client, event))
                except PenstockError as error:
                    if not error.retryable:
                        raise
                self._retry_at = self._clock.now() + RETRY_US
                self._spool.append(event)
                return Produced(is_spooled=True)
            self._spool.append(event)
            if self._clock.now() >= self._retry_at:
                self._flush()
            return Produced(is_spooled=not self._spool.is_empty)

    def _flush(self) -> FlushResult:
        delivered = rejected = 0
        stopped: str | None = None
        try:
            for event in self._spool.waiting():
                try:
                    deliver(self._client, event)
                except (Unauthorised, Forbidden):
                    raise
                except PenstockError as error:
                    if error.retryable:
                        self._retry_at = self._clock.now() + RETRY_US
                        stopped = str(error)
                        break
                    self._spool.reject(event, error)
                    rejected += 1
                else:
                    self._spool.delivered(event)
                    delivered += 1
        finally:
            self._spool.checkpoint()
        return FlushResult(
            delivered=delivered, rejected=rejected, waiting=len(self._spool), error=stopped
        )


def deliver(client: UseCaseGroups, event: SpooledEvent) -> Any:
    """Send one event; a repeat has no further effect."""
    return _DELIVERIES[event.kind](client, event.arguments)


def _publish(client: UseCaseGroups, given: Mapping[str, Any]) -> Any:
    messages = [convert_input(one, NewMessage, "messages") for one in given["messages"]]
    return client.topics.publish(given["topic"], messages, customer=given["customer"])


def _submit(client: UseCaseGroups, given: Mapping[str, Any]) -> Any:
    wanted = convert_input(given["submission"], Submission, "submission")
    return client.runs.submit(wanted, key=given["key"])


def _report(client: UseCaseGroups, given: Mapping[str, Any]) -> Any:
    return client.flows.complete(convert_input(given["report"], CompletionReport, "report"))


def _complete(client: UseCaseGroups, given: Mapping[str, Any]) -> Any:
    report = convert_input(given["report"], RunCompletion, "report")
    return client.workers.complete(given["run_id"], report, given["worker_id"])


_DELIVERIES: Final[Mapping[str, Callable[[UseCaseGroups, Mapping[str, Any]], Any]]] = {
    "publish": _publish,
    "submit": _submit,
    "report": _report,
    "complete": _complete,
}
