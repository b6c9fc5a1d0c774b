"""The binder: serves bound subscriptions inside the store.

A message bound to a processor becomes a run of it, a message bound to completions reports one, and
a message on a topic that configs listen to starts those configs. Each effect is committed in the
transaction that acks the message, so a crash leaves both or neither. The binder is in the client
package because it calls the same use cases as other callers.

A message may start many configs: they are started in steps, each step is recorded in its own
transaction, and the message is acked after the last one.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from penstock.access.store.names import NameResolver, PipelineInfo
from penstock.audit.store.alerts import request_begin, request_finish
from penstock.bus import filters
from penstock.bus.binding import (
    CONFIGS_BINDING,
    CONFIGS_SUFFIX,
    Binding,
    BindingKind,
    parse_message_object,
)
from penstock.bus.binding import parse_binding as parse
from penstock.bus.message import DEAD_LETTER_SUFFIX, ErrorKind, SubscriptionSpec, TopicSpec
from penstock.bus.store.bindings import (
    config_event_list,
    config_skip_event,
    customer_name,
    topics_unbound,
)
from penstock.bus.store.deliveries import (
    DeliveryNack,
    LeasedDelivery,
    delivery_ack,
    delivery_nack,
    delivery_pull,
)
from penstock.bus.store.push_targets import push_ready
from penstock.bus.store.topics import (
    SYSTEM,
    SubscriptionOptions,
    SubscriptionRow,
    TopicRow,
    is_builtin,
    subscription_declare,
    topic_declare,
)
from penstock.client import Client
from penstock.core.error_classification import classify
from penstock.core.errors import (
    Conflict,
    DeclarationError,
    InvalidInput,
    NotFound,
    PenstockError,
    StoreError,
)
from penstock.core.fields import check_customer
from penstock.core.json_profile import parse_json as parse_json
from penstock.core.redact import redact_text
from penstock.db.in_transaction import InTransaction
from penstock.db.isolation import shares
from penstock.db.store import StoreView, Tx
from penstock.flows.client.completion_message import report_from_message
from penstock.flows.client.start_config import start
from penstock.pipelines.partition import check_partition, partition_rule_of
from penstock.runs.client.submission import CheckedSubmission, check_many, insert, with_customer
from penstock.runs.records import Submission
from penstock.runs.rows import MessageOrigin
from penstock.schedules.event_mapping import EventStart, event_start
from penstock.schedules.rows import ConfigRow
from penstock.schedules.store.configs import config_get, config_lock
from penstock.services.customer_threads import CustomerThreads

BATCH = 100
STEP = 200
PAGE = 1_000
SHARE = 10
"""Subscriptions of one customer that a pass serves."""
ACTOR = "binder"
CUSTOMER_ATTRIBUTE = "customer_id"
MODE_ATTRIBUTE = "processing_mode"
PERMANENT_ERRORS = (
    TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError,
)  # fmt: skip
"""Errors of the code itself: the same message raises them on every attempt."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BinderCounts:
    """Counts of one `run_once` of the binder."""

    bound: int = 0
    done: int = 0
    nacked: int = 0
    next_at: int | None = None
    """0 if subscriptions are left for the next pass."""
    now: int = 0


class _Step(NamedTuple):
    """One step of starting configs: where the next begins, and configs to start one by one."""

    next_after: int | None
    one_by_one: list[int]


class Binder:
    """Service that turns messages of bound subscriptions into runs, starts and completions."""

    name = "binder"

    def __init__(
        self,
        store: StoreView,
        *,
        jitter: Callable[[], float],
        batch: int = BATCH,
        threads: int = 0,
    ) -> None:
        """Serve the bound subscriptions of `store`; with `threads`, customers concurrently."""
        self._store = store
        self._names = NameResolver(store)
        self._client = Client(store, actor=ACTOR, names=self._names)
        self._jitter = jitter
        self._batch = batch
        self._passes = 0
        self._threads: CustomerThreads[SubscriptionRow] | None = None
        if threads:
            self._threads = CustomerThreads(
                self._serve_alone,
                lambda sub: sub.customer_key,
                threads=threads,
                on_end=lambda: store.wake(["bound"]),
            )

    def run_once(self) -> BinderCounts:
        """Bind topics that configs listen to, then serve one batch of each ready subscription."""
        made = self._store.write(_bind_topics)
        ready = list(self._ready())
        self._passes += 1
        chosen = shares(ready, lambda sub: sub.customer_key, SHARE, self._passes)
        if self._threads is not None:
            self._threads.start(chosen)
            return BinderCounts(bound=made)
        parts = [self._serve_alone(sub) for sub in chosen]
        next_at = 0 if len(chosen) < len(ready) else None
        return replace(_summed(parts), bound=made, next_at=next_at)

    def drain(self, seconds: float = 25.0) -> bool:
        """Stop starting work and wait for what is in progress; return True when nothing is left."""
        return self._threads is None or self._threads.drain(seconds)

    def _serve_alone(self, sub: SubscriptionRow) -> BinderCounts:
        """Serve one subscription; a failure is logged and does not delay the others.

        What it leased is delivered again after the ack deadline.
        """
        try:
            return self._serve(sub)
        except StoreError:
            raise
        except Exception:
            log.exception("serving bound subscription %s failed", sub.name)
            return BinderCounts()

    def _ready(self) -> Iterator[SubscriptionRow]:
        """Yield every bound subscription with ready deliveries, page by page."""
        after = 0
        while True:
            found = self._store.read(
                lambda tx, at=after: push_ready(tx, kind="bound", after=at, limit=PAGE)  # type: ignore[misc]
            )
            yield from (one.subscription for one in found)
            if len(found) < PAGE:
                return
            after = found[-1].subscription.subscription_key

    def _serve(self, sub: SubscriptionRow) -> BinderCounts:
        leased = self._store.write(lambda tx: delivery_pull(tx, sub, self._batch, ACTOR))
        if not leased:
            return BinderCounts()
        binding = parse(parse_json((sub.binding or "null").encode()))
        nacks: list[DeliveryNack] = []
        if binding.kind is BindingKind.RUNS:
            done = self._run(sub, binding, leased, nacks)
        else:
            done = 0
            for one in leased:
                try:
                    if binding.kind is BindingKind.CONFIGS:
                        done += self._start_configs(sub, one)
                    else:
                        done += self._report(sub, binding, one)
                except Exception as error:
                    nacks.append(_nack(one, error))
        if nacks:
            nacked = self._store.write(lambda tx: delivery_nack(tx, sub, nacks, self._jitter))
            self._store.wake(sorted(nacked.wake))
        return BinderCounts(done=done, nacked=len(nacks))

    def _run(
        self,
        sub: SubscriptionRow,
        binding: Binding,
        leased: Sequence[LeasedDelivery],
        nacks: list[DeliveryNack],
    ) -> int:
        """Turn messages into runs, all valid ones in one transaction; return how many."""
        customer = self._store.read(lambda tx: _owner(tx, sub))
        good: list[tuple[LeasedDelivery, CheckedSubmission]] = []
        for one in leased:
            try:
                wanted = with_customer(self._names, _submission(binding, one, customer))
                check_customer(wanted.customer)
                (checked,) = check_many(self._names, [wanted])
                good.append((one, checked._replace(message_id=str(one.message_id))))
            except Exception as error:
                nacks.append(_nack(one, error))
        if not good:
            return 0
        try:
            return self._insert(sub, good)
        except Exception as error:
            if len(good) == 1:
                nacks.append(_nack(good[0][0], error))
                return 0
        # One of them cannot be inserted: find out which.
        done = 0
        for pair in good:
            try:
                done += self._insert(sub, [pair])
            except Exception as error:
                nacks.append(_nack(pair[0], error))
        return done

    def _insert(
        self, sub: SubscriptionRow, good: Sequence[tuple[LeasedDelivery, CheckedSubmission]]
    ) -> int:
        def body(tx: Tx) -> int:
            current = delivery_ack(tx, sub, [(one.message_id, one.epoch) for one, _ in good])
            runs = [run for one, run in good if (one.message_id, one.epoch) in current]
            if runs:
                insert(tx, self._store, self._names, runs, ACTOR)
            return len(runs)

        return self._store.write(body)

    def _report(self, sub: SubscriptionRow, binding: Binding, one: LeasedDelivery) -> int:
        """Report the completion in a message, in the transaction that acks it."""
        payload = parse_message_object(one.data)
        payload.setdefault("pipeline_template", binding.pipeline)
        payload.setdefault("correlation_id", one.attributes.get("correlation_id"))
        if payload.get("processor_name") is None:
            raise InvalidInput("processor_name", "the name of the completed processor", None)
        report = report_from_message(payload)

        def body(tx: Tx) -> int:
            if not delivery_ack(tx, sub, [(one.message_id, one.epoch)]):
                return 0
            self._client.with_store(InTransaction(self._store, tx)).flows.record(
                replace(
                    report,
                    customer=_owner(tx, sub) or report.customer,
                    origin=_origin(sub, one),
                )
            )
            return 1

        return self._store.write(body)

    # -- configs -------------------------------------------------------------------------------

    def _start_configs(self, sub: SubscriptionRow, one: LeasedDelivery) -> int:
        """Start all configs that the message addresses, step by step, then ack it.

        A config that cannot be started does not block the others: the step is repeated config by
        config, and after the last step the message is nacked with the first error.
        """
        errors: list[Exception] = []
        after: int | None = 0
        while after is not None:
            step = self._start_step(sub, one, after)
            for config_id in step.one_by_one:
                try:
                    self._store.write(
                        lambda tx, number=config_id: self._start_once(tx, sub, one, number)  # type: ignore[misc]
                    )
                except Exception as error:
                    log.warning("message %s did not start config %s", one.message_id, config_id)
                    errors.append(error)
            after = step.next_after
        if errors:
            # A retry can only help if one of the errors is not permanent.
            raise min(errors, key=_is_poison)
        acked = self._store.write(lambda tx: delivery_ack(tx, sub, [(one.message_id, one.epoch)]))
        return len(acked)

    def _start_step(self, sub: SubscriptionRow, one: LeasedDelivery, after: int) -> _Step:
        """Start the next configs in one transaction, or list them if one of them fails."""
        try:
            return self._store.write(lambda tx: self._step(tx, sub, one, after, is_listing=False))
        except Exception:
            log.warning("message %s starts its configs one by one", one.message_id, exc_info=True)
            return self._store.write(lambda tx: self._step(tx, sub, one, after, is_listing=True))

    def _step(
        self, tx: Tx, sub: SubscriptionRow, one: LeasedDelivery, after: int, *, is_listing: bool
    ) -> _Step:
        """Start the next configs, or only list them; a step that was done before is returned."""
        scope, key = f"event:{sub.subscription_key}", f"{one.message_id}:{one.generation}:{after}"
        earlier = request_begin(tx, scope, key, b"")
        if earlier is not None:
            return _Step(earlier["next"], earlier.get("one_by_one", []))
        rows = _listeners(tx, sub, one, after)
        step = _Step(rows[-1][0] if len(rows) == STEP else None, [])
        if is_listing:
            step.one_by_one.extend(config_id for config_id, _ in rows)
        else:
            for config_id, filter_text in rows:
                if not filter_text or filters.parse(filter_text)(one.attributes):
                    self._start(tx, config_id, one, sub)
        done = {"next": step.next_after, "one_by_one": step.one_by_one}
        request_finish(tx, scope, key, done)
        return step

    def _start_once(
        self, tx: Tx, sub: SubscriptionRow, one: LeasedDelivery, config_id: int
    ) -> None:
        """Start one config unless this message has already started it."""
        key = f"{one.message_id}:{one.generation}:config:{config_id}"
        if request_begin(tx, f"event:{sub.subscription_key}", key, b"") is not None:
            return
        config = config_get(tx, config_id)
        pattern = None if config is None else config.event_filter
        if not pattern or filters.parse(pattern)(one.attributes):
            self._start(tx, config_id, one, sub)
        request_finish(tx, f"event:{sub.subscription_key}", key, {})

    def _start(self, tx: Tx, config_id: int, one: LeasedDelivery, sub: SubscriptionRow) -> None:
        config_lock(tx, config_id)
        config = config_get(tx, config_id)
        if config is None or not config.is_active:
            return
        info = self._names.pipeline(config.pipeline, tx=tx)
        channels = ["flows", *sorted({f"runs:{row.pool}" for row in info.entries})]
        event, origin = _event(config, info, one), _origin(sub, one)
        try:
            start(tx, config, info, ACTOR, "event", origin, event=event)
        except Conflict:  # as for an occurrence whose predecessor still runs: skip and record it
            config_skip_event(tx, config_id)
            return
        tx.after_commit(lambda: self._store.wake(channels))


def _listeners(
    tx: Tx, sub: SubscriptionRow, one: LeasedDelivery, after: int
) -> list[tuple[int, str | None]]:
    """Return (config, filter) of the next configs that a message addresses."""
    customer = None if sub.customer_key == SYSTEM else sub.customer_key
    named = one.attributes.get(CUSTOMER_ATTRIBUTE)
    if customer is None and named is None and is_builtin(tx, sub.topic_name):
        return []  # about the whole installation, such as a system alert: no customer's
    return config_event_list(
        tx, sub.topic_name, customer_key=customer, customer_id=named, after=after, limit=STEP
    )


def _bind_topics(tx: Tx) -> int:
    """Create the missing subscriptions of topics that configs listen to; return the count."""
    made = 0
    for topic in topics_unbound(tx, PAGE):
        # A topic name too long for the subscription's suffix must not block the other topics.
        with contextlib.suppress(InvalidInput):
            bind_configs(tx, topic)
            made += 1
    return made


def bind_configs(tx: Tx, topic: TopicRow) -> SubscriptionRow:
    """Declare the subscription through which a topic starts configs, and return it."""
    name = topic.name + CONFIGS_SUFFIX
    dead = name + DEAD_LETTER_SUFFIX
    topic_declare(tx, TopicSpec(name=dead), topic.customer_key, ACTOR)
    spec = SubscriptionSpec(name=name, topic=topic.name, dead_letter_topic=dead)
    extras = SubscriptionOptions(kind="bound", binding=CONFIGS_BINDING.to_json())
    return subscription_declare(tx, spec, topic.customer_key, ACTOR, extras)


def _nack(one: LeasedDelivery, error: Exception) -> DeliveryNack:
    """Return the nack of a message for its own error, whatever it is.

    A message that can never succeed is poison. Any other error, such as one of the store, is
    transient: the message is delivered again and becomes a dead letter after its last attempt.
    """
    if isinstance(error, PenstockError):
        error_type, text = error.code, error.message
    else:
        error_type, text = classify(error), f"{type(error).__name__}: {error}"
        log.error("message %s failed", one.message_id, exc_info=error)
    kind = ErrorKind.POISON if _is_poison(error) else ErrorKind.TRANSIENT
    return DeliveryNack(one.message_id, one.epoch, kind, error_type, redact_text(text))


def _is_poison(error: Exception) -> bool:
    if isinstance(error, PenstockError):
        return isinstance(error, InvalidInput | NotFound | DeclarationError)
    return isinstance(error, PERMANENT_ERRORS)


def _submission(binding: Binding, one: LeasedDelivery, customer: str | None) -> Submission:
    """Return the run that a message requests; its attributes name the customer and partition."""
    assert binding.pipeline is not None
    return Submission(
        pipeline=binding.pipeline,
        processor=binding.processor,
        customer=customer or one.attributes.get(CUSTOMER_ATTRIBUTE),
        partition=one.attributes.get("partition"),
        parameters=parse_message_object(one.data) or None,
        ordering_key=one.ordering_key,
        correlation_id=one.attributes.get("correlation_id"),
        mode=one.attributes.get(MODE_ATTRIBUTE),
    )


def _event(config: ConfigRow, info: PipelineInfo, one: LeasedDelivery) -> EventStart:
    schema = info.definition.get("parameters")
    message = (one.data, one.attributes)
    event = event_start(config.event_mapping, message, config.parameters, schema)
    if event.partition is not None:
        check_partition(partition_rule_of(info.definition), event.partition)
    return event


def _owner(tx: Tx, sub: SubscriptionRow) -> str | None:
    """Return the customer that owns a subscription; None if each message names its customer."""
    return None if sub.customer_key == SYSTEM else customer_name(tx, sub.customer_key)


def _origin(sub: SubscriptionRow, one: LeasedDelivery) -> MessageOrigin:
    return MessageOrigin(message_id=str(one.message_id), subscription=sub.name)


def _summed(parts: Sequence[BinderCounts]) -> BinderCounts:
    return BinderCounts(
        done=sum(part.done for part in parts), nacked=sum(part.nacked for part in parts)
    )
