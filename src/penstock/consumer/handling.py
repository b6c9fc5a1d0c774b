"""Processing of a message to its disposition: decode, route, dedupe, guard, gate, handler, sink.

All effects of a message on the sink are one transaction: its mark, its versioned writes and its
counters. A handler that takes `tx` runs inside that transaction. Any other handler runs before it,
without holding a lock; the transaction rejects its writes if another worker committed first.
Nothing here depends on whether the message was pushed or pulled. No step raises: every failure
becomes a disposition.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.bus.message import ErrorKind, Outcome
from penstock.consumer.disposition import ACK, Disposition
from penstock.consumer.failure import (
    FROM_HANDLER,
    Failure,
    GateClosed,
    Reject,
    TryAgain,
    failure_of,
)
from penstock.consumer.message import Message, read_kind, read_payload
from penstock.consumer.options import ConsumerOptions
from penstock.consumer.router import Gate, Route, Router
from penstock.core.errors import DeclarationError, SettingsError
from penstock.sinks.documents import is_stale
from penstock.sinks.protocol import (
    SETTLED,
    Arrival,
    AuditRecord,
    Fate,
    Sink,
    SinkTx,
    Upsert,
    version_number,
)

if TYPE_CHECKING:
    from penstock.flows.gates.acknowledge import GateResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class Handling:
    """The processing steps for one router and one sink; `run_async` runs a coroutine."""

    router: Router
    sink: Sink
    options: ConsumerOptions
    has_dead_letters: Callable[[Message], bool]
    gate: Gate | None
    run_async: Callable[[Coroutine[Any, Any, Any]], Any]

    def begin(self, message: Message) -> Route | Disposition:
        """Run all steps before the handler; return the route, or a final disposition."""
        handler: str | None = None
        try:
            if self.options.keeps_arrivals:
                self.sink.transact(lambda tx: tx.arrive(arrival_of(message)))
            if self.options.payload != "bytes":
                read_payload(message, is_object=self.options.payload == "object")
            read_kind(message)
            route = self.router.find(message)
            handler = route.name
            route.prepare(message)
            gate = route.gate or self.gate
            # The transaction checks the mark and the version before a handler that takes `tx`, so
            # the early check is needed only if a gate or a batch comes first.
            is_direct = route.takes_tx and gate is None and route.collect is None
            early = None if is_direct else self._precheck(message, route)
            if early is not None:
                return early
            if gate is not None:
                _check_gate(gate, message)
        except GateClosed as closed:
            return self._closed(message, closed.response, handler)
        except Exception as error:
            return self.failed(message, failure_of(error), handler)
        return route

    def finish(self, message: Message, route: Route) -> Disposition:
        """Run the handler and the sink's transaction."""
        try:
            if route.takes_tx:
                return self.sink.transact(lambda tx: self._inside(tx, message, route))
            writes = writes_of(self.call(route, message))
            return self.sink.transact(lambda tx: self.apply(tx, message, route, writes))
        except Exception as error:
            return self.failed(message, failure_of(error), route.name)

    def finish_duplicate(self, message: Message, route: Route) -> Disposition:
        """End a delivery whose message was settled by another delivery in the same batch."""
        try:
            return self.sink.transact(lambda tx: _duplicate(tx, message, route.name))
        except Exception as error:
            return self.failed(message, failure_of(error), route.name)

    def call(self, route: Route, *arguments: Any) -> Any:
        """Call a sync or async handler and return its result."""
        try:
            made = route.handler(*arguments)
            return self.run_async(made) if route.is_async else made
        except Exception as error:
            # Inside a transaction this would otherwise count as a failure of the sink.
            with contextlib.suppress(AttributeError):
                setattr(error, FROM_HANDLER, True)
            raise

    def apply(
        self, tx: SinkTx, message: Message, route: Route, writes: Sequence[Upsert]
    ) -> Disposition:
        """Mark, write and count a message, unless it is a duplicate or stale."""
        opened = self.open(tx, message, route)
        if isinstance(opened, Disposition):
            return opened
        return self.write(tx, message, route, writes, opened)

    def open(self, tx: SinkTx, message: Message, route: Route) -> Disposition | OpenedMessage:
        """Set the mark and check the version; a duplicate or stale message ends here."""
        before = tx.mark(message.subscription, message.id, Fate.APPLIED)
        if before in SETTLED:
            return _duplicate(tx, message, route.name)
        guard = None if route.newer is None else route.newer(message)
        if guard is not None:
            path, version = guard
            stored = tx.get(path)
            if stored is not None and is_stale(version_number(version), stored.version):
                _count(tx, message, before, Outcome.STALE_IGNORED)
                return Disposition(
                    outcome=Outcome.STALE_IGNORED, handler=route.name, doc_paths=(path,)
                )
        return OpenedMessage(before=before, guard=guard)

    def write(
        self,
        tx: SinkTx,
        message: Message,
        route: Route,
        writes: Sequence[Upsert],
        opened: OpenedMessage,
    ) -> Disposition:
        """Apply the writes and counters of a message in its open transaction."""
        wanted = _guarded(writes, opened.guard)
        # Write in path order, so that two messages about the same documents do not deadlock.
        done = [tx.upsert(w, message.id) for w in sorted(wanted, key=lambda w: w.path)]
        outcome = Outcome.APPLIED if any(done) or not done else Outcome.STALE_IGNORED
        _count(tx, message, opened.before, outcome)
        kinds = sorted({write.kind for write in writes}) or ["sql"] * route.takes_tx
        return Disposition(
            outcome=outcome,
            handler=route.name,
            write_kind="+".join(kinds) or None if outcome is Outcome.APPLIED else None,
            doc_paths=tuple(write.path for write in wanted),
        )

    def failed(self, message: Message, failure: Failure, handler: str | None) -> Disposition:
        """Return the disposition of a failed message; poison is marked and counted once."""
        if failure.kind is not ErrorKind.POISON:
            return Disposition(outcome=Outcome.RETRY, failure=failure, handler=handler)
        try:
            return self.sink.transact(lambda tx: self._poisoned(tx, message, failure, handler))
        except Exception as error:
            if self.has_dead_letters(message):
                # The dead-letter topic keeps the message; its next delivery corrects the counter.
                return Disposition(outcome=Outcome.POISON, failure=failure, handler=handler)
            # The message is stored nowhere else, so a redelivery is better than losing it.
            return Disposition(outcome=Outcome.RETRY, failure=failure_of(error), handler=handler)

    def _closed(self, message: Message, response: GateResponse, handler: str | None) -> Disposition:
        """Settle a message whose gate is closed: wait, retry, or keep it as poison.

        A message that waits is acked without a mark, so that the same message can be checked again.
        """
        message.gate = response
        if response.waits and response.acknowledgement == ACK:
            return Disposition(outcome=Outcome.WAITING, handler=handler)
        kind = ErrorKind.TRANSIENT if response.waits else ErrorKind.POISON
        failure = Failure(kind=kind, error_type=response.status.upper(), error=response.reason)
        return self.failed(message, failure, handler)

    def _precheck(self, message: Message, route: Route) -> Disposition | None:
        """Check for a duplicate or stale message without locks; the transaction checks again."""
        fate = self.sink.fate(message.subscription, message.id)
        if fate in SETTLED:
            return self.sink.transact(lambda tx: _duplicate(tx, message, route.name))
        if route.newer is None:
            return None
        path, version = route.newer(message)
        stored = self.sink.document(path)
        if stored is None or not is_stale(version_number(version), stored.version):
            return None
        # Versions never decrease, so the transaction would find it stale too.
        return self.sink.transact(lambda tx: self.apply(tx, message, route, ()))

    def _inside(self, tx: SinkTx, message: Message, route: Route) -> Disposition:
        opened = self.open(tx, message, route)
        if isinstance(opened, Disposition):
            return opened
        writes = writes_of(self.call(route, message, tx))
        return self.write(tx, message, route, writes, opened)

    def _poisoned(
        self, tx: SinkTx, message: Message, failure: Failure, handler: str | None
    ) -> Disposition:
        before = tx.mark(message.subscription, message.id, Fate.POISON)
        if before in SETTLED:
            # An earlier version of the code applied the message: it stays applied.
            return _duplicate(tx, message, handler)
        if before is None:
            tx.count(message.subscription, message.id, Outcome.POISON.value)
        if not self.has_dead_letters(message):
            tx.audit(audit_of(message, failure, self.options.audit_bytes_max))
        return Disposition(outcome=Outcome.POISON, failure=failure, handler=handler)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedMessage:
    """State of a transaction before the handler: the earlier mark, and the version guard."""

    before: Fate | None
    guard: tuple[str, Any] | None


def _check_gate(gate: Gate, message: Message) -> None:
    result = gate(message)
    if result is False:
        raise TryAgain("the gate is closed")
    message.gate = result


def _count(tx: SinkTx, message: Message, before: Fate | None, outcome: Outcome) -> None:
    """Count the outcome of a message; if it was counted as poison before, undo that."""
    if outcome is Outcome.STALE_IGNORED:
        tx.remark(message.subscription, message.id, Fate.STALE_IGNORED)
    tx.count(message.subscription, message.id, outcome.value)
    if before is Fate.POISON:
        tx.count(message.subscription, message.id, Outcome.POISON.value, -1)


def _duplicate(tx: SinkTx, message: Message, handler: str | None) -> Disposition:
    tx.count(message.subscription, message.id, Outcome.DUPLICATE.value)
    return Disposition(outcome=Outcome.DUPLICATE, handler=handler)


def writes_of(value: Any) -> tuple[Upsert, ...]:
    """Return the writes in a handler's result: none, one or several."""
    if value is None:
        return ()
    if isinstance(value, Upsert):
        return (value,)
    if isinstance(value, list | tuple) and all(isinstance(part, Upsert) for part in value):
        return tuple(value)
    raise DeclarationError(
        f"a handler must return None, an Upsert or a list of them, not {type(value).__name__}"
    )


def audit_of(message: Message, failure: Failure, bytes_max: int) -> AuditRecord:
    """Return the audit record of a message that is dropped as poison."""
    return AuditRecord(
        subscription=message.subscription,
        message_id=message.id,
        topic=message.topic,
        error_type=failure.error_type,
        error=failure.error,
        data=message.data[:bytes_max],
        data_size=len(message.data),
        data_sha256=hashlib.sha256(message.data).hexdigest(),
        attributes=message.attributes,
        publish_time=message.publish_time,
        attempt=message.attempt,
    )


def arrival_of(message: Message) -> Arrival:
    """Return the visibility record of a delivery."""
    return Arrival(
        subscription=message.subscription,
        message_id=message.id,
        topic=message.topic,
        attributes=message.attributes,
        data_size=len(message.data),
        publish_time=message.publish_time,
        attempt=message.attempt,
    )


def malformed(reason: str) -> Failure:
    """Return the failure for a body that is not a message."""
    return failure_of(Reject(reason, is_malformed=True))


def misdirected(message: Message) -> Failure:
    """Return the failure for a push of another subscription: it is retried until the configuration
    is fixed.
    """
    fix = "Push it to the consumer of that subscription, or name this consumer after it."
    expected = f"{message.origin}, which pushes here"
    return failure_of(SettingsError("name", expected, message.subscription, fix))


def _guarded(writes: Sequence[Upsert], guard: tuple[str, Any] | None) -> tuple[Upsert, ...]:
    """Return the writes with the guard's version set on its document.

    If no write targets that document, a write that only sets the version is added.
    """
    if guard is None:
        return tuple(writes)
    path, version = guard
    own = [write for write in writes if write.path == path]
    if not own:
        return (*writes, Upsert(path=path, version=version))
    return tuple(
        _versioned(w, version) if w.path == path and w.version is None else w for w in writes
    )


def _versioned(write: Upsert, version: Any) -> Upsert:
    return Upsert(
        path=write.path,
        fields=write.fields,
        version=version,
        token=write.token,
        add=write.add,
        replace=write.replace,
    )
