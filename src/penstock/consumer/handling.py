"""From message to disposition: decode, route, dedupe, stale guard, gate, handler, sink.

Everything a message does to the sink is one transaction: its mark, its writes with their versions,
its counters. A handler that takes `tx` runs inside it; any other runs before it, without holding a
lock, and its writes are refused there should somebody else have been faster. Nothing here knows
whether the message was pushed or pulled. No step raises: what goes wrong is a disposition.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.bus.message import ErrorKind
from penstock.consumer.disposition import Disposition, Outcome
from penstock.consumer.failure import Failure, Reject, TryAgain, failure_of
from penstock.consumer.message import Message, read_kind, read_payload
from penstock.consumer.options import ConsumerOptions
from penstock.consumer.router import Gate, Route, Router
from penstock.core.errors import DeclarationError
from penstock.sinks.documents import is_stale
from penstock.sinks.protocol import SETTLED, AuditRecord, Fate, Sink, SinkTx, Upsert, version_number


@dataclass(frozen=True, slots=True, kw_only=True)
class Handling:
    """The steps, over one router and one sink. `run_async` runs a coroutine to its end."""

    router: Router
    sink: Sink
    options: ConsumerOptions
    dead_letters: bool
    gate: Gate | None
    run_async: Callable[[Coroutine[Any, Any, Any]], Any]

    def begin(self, message: Message) -> Route | Disposition:
        """Everything before the handler: a route, or the end."""
        handler: str | None = None
        try:
            if self.options.payload != "bytes":
                read_payload(message, is_object=self.options.payload == "object")
            read_kind(message)
            route = self.router.find(message)
            handler = route.name
            route.take(message)
            gate = route.gate or self.gate
            # A handler inside the transaction is asked after it has judged: no look is needed,
            # unless there is something to do before.
            is_direct = route.takes_tx and gate is None and route.collect is None
            early = None if is_direct else self._look(message, route)
            if early is not None:
                return early
            if gate is not None:
                _pass(gate, message)
        except Exception as error:
            return self.failed(message, failure_of(error), handler)
        return route

    def finish(self, message: Message, route: Route) -> Disposition:
        """The handler and the sink's transaction."""
        try:
            if route.takes_tx:
                return self.sink.transact(lambda tx: self._inside(tx, message, route))
            writes = writes_of(self.call(route, message))
            return self.sink.transact(lambda tx: self.apply(tx, message, route, writes))
        except Exception as error:
            return self.failed(message, failure_of(error), route.name)

    def finish_duplicate(self, message: Message, route: Route) -> Disposition:
        """The end of a delivery whose message was settled a moment ago."""
        try:
            return self.sink.transact(lambda tx: _duplicate(tx, message, route.name))
        except Exception as error:
            return self.failed(message, failure_of(error), route.name)

    def call(self, route: Route, *arguments: Any) -> Any:
        """What the handler returns, sync or async."""
        made = route.handler(*arguments)
        return self.run_async(made) if route.is_async else made

    def apply(
        self, tx: SinkTx, message: Message, route: Route, writes: Sequence[Upsert]
    ) -> Disposition:
        """Mark, write and count, unless the message is a duplicate or stale."""
        opened = self.open(tx, message, route)
        if isinstance(opened, Disposition):
            return opened
        return self.write(tx, message, route, writes, opened)

    def open(self, tx: SinkTx, message: Message, route: Route) -> Disposition | Opened:
        """The mark and the guard: the end of a duplicate or stale message, else what was found."""
        before = tx.mark(message.subscription, message.id, Fate.APPLIED)
        if before in SETTLED:
            return _duplicate(tx, message, route.name)
        guard = None if route.newer is None else route.newer(message)
        if guard is not None:
            path, version = guard
            there = tx.get(path)
            if there is not None and is_stale(version_number(version), there.version):
                _count(tx, message, before, Outcome.STALE_IGNORED)
                return Disposition(
                    outcome=Outcome.STALE_IGNORED, handler=route.name, doc_paths=(path,)
                )
        return Opened(before=before, guard=guard)

    def write(
        self, tx: SinkTx, message: Message, route: Route, writes: Sequence[Upsert], opened: Opened
    ) -> Disposition:
        """The writes and the counters of a message whose transaction is open."""
        wanted = _guarded(writes, opened.guard)
        # In one order, so that two messages about the same documents do not deadlock.
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
        """The end of a message that failed. Poison is marked and counted once."""
        if failure.kind is not ErrorKind.POISON:
            return Disposition(outcome=Outcome.RETRY, failure=failure, handler=handler)
        try:
            return self.sink.transact(lambda tx: self._poisoned(tx, message, failure, handler))
        except Exception as error:
            if self.dead_letters:
                # The dead-letter topic keeps the message; that it is not counted yet is mended
                # by its next delivery.
                return Disposition(outcome=Outcome.POISON, failure=failure, handler=handler)
            # Nobody else would keep it: better it comes back than that it is lost.
            return Disposition(outcome=Outcome.RETRY, failure=failure_of(error), handler=handler)

    def _look(self, message: Message, route: Route) -> Disposition | None:
        """A cheap look before any work; the transaction judges again under locks."""
        fate = self.sink.fate(message.subscription, message.id)
        if fate in SETTLED:
            return self.sink.transact(lambda tx: _duplicate(tx, message, route.name))
        if route.newer is None:
            return None
        path, version = route.newer(message)
        there = self.sink.document(path)
        if there is None or not is_stale(version_number(version), there.version):
            return None
        # Versions never go back, so the transaction finds it stale too.
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
            # It was applied by other code than today's: it stays applied.
            return _duplicate(tx, message, handler)
        if before is None:
            tx.count(message.subscription, message.id, Outcome.POISON.value)
        if not self.dead_letters:
            tx.audit(audit_of(message, failure, self.options.audit_bytes_max))
        return Disposition(outcome=Outcome.POISON, failure=failure, handler=handler)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """What a transaction found before the handler: the earlier mark, and the guard."""

    before: Fate | None
    guard: tuple[str, Any] | None


def _pass(gate: Gate, message: Message) -> None:
    answer = gate(message)
    if answer is False:
        raise TryAgain("the gate is closed")
    message.gate = answer


def _count(tx: SinkTx, message: Message, before: Fate | None, outcome: Outcome) -> None:
    """Count the end of a message, and no longer as poison what was poison before."""
    if outcome is Outcome.STALE_IGNORED:
        tx.remark(message.subscription, message.id, Fate.STALE_IGNORED)
    tx.count(message.subscription, message.id, outcome.value)
    if before is Fate.POISON:
        tx.count(message.subscription, message.id, Outcome.POISON.value, -1)


def _duplicate(tx: SinkTx, message: Message, handler: str | None) -> Disposition:
    tx.count(message.subscription, message.id, Outcome.DUPLICATE.value)
    return Disposition(outcome=Outcome.DUPLICATE, handler=handler)


def writes_of(value: Any) -> tuple[Upsert, ...]:
    """The writes a handler returned: none, one or several."""
    if value is None:
        return ()
    if isinstance(value, Upsert):
        return (value,)
    if isinstance(value, list | tuple) and all(isinstance(part, Upsert) for part in value):
        return tuple(value)
    raise DeclarationError(
        f"a handler returns None, an Upsert or a list of them, not {type(value).__name__}"
    )


def audit_of(message: Message, failure: Failure, bytes_max: int) -> AuditRecord:
    """What is kept of a message that is given up."""
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


def malformed(reason: str) -> Failure:
    """The failure of a body that is no message."""
    return failure_of(Reject(reason, is_malformed=True))


def _guarded(writes: Sequence[Upsert], guard: tuple[str, Any] | None) -> tuple[Upsert, ...]:
    """The writes, with the guard's version in the one it is about, or in one of its own."""
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
