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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from penstock.access.store.names import NameResolver
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
    subscription_declare,
    topic_declare,
)
from penstock.client import Client
from penstock.core.errors import Conflict, InvalidInput, NotFound, PenstockError
from penstock.core.fields import check_customer
from penstock.core.json_profile import parse_json as parse_json
from penstock.db.in_transaction import InTransaction
from penstock.db.store import StoreView, Tx
from penstock.flows.client.completion_message import report_of
from penstock.flows.client.start_config import start
from penstock.runs.client.submission import CheckedSubmission, check_many, insert, with_customer
from penstock.runs.records import Submission
from penstock.runs.rows import MessageOrigin
from penstock.schedules.store.configs import config_get, config_lock

BATCH = 100
STEP = 200
PAGE = 1_000
ACTOR = "binder"
CUSTOMER_ATTRIBUTE = "customer_id"


@dataclass(frozen=True, slots=True, kw_only=True)
class BinderCounts:
    """Counts of one `run_once` of the binder."""

    bound: int = 0
    done: int = 0
    nacked: int = 0


class Binder:
    """Service that turns messages of bound subscriptions into runs, starts and completions."""

    name = "binder"

    def __init__(
        self, store: StoreView, *, jitter: Callable[[], float], batch: int = BATCH
    ) -> None:
        self._store = store
        self._names = NameResolver(store)
        self._client = Client(store, actor=ACTOR, names=self._names)
        self._jitter = jitter
        self._batch = batch

    def run_once(self) -> BinderCounts:
        """Bind topics that configs listen to, then serve one batch of each ready subscription."""
        made = self._store.write(_bind_topics)
        parts = [self._serve(sub) for sub in self._ready()]
        return replace(_summed(parts), bound=made)

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
        if binding.kind is BindingKind.CONFIGS:
            return _summed([self._start_configs(sub, one) for one in leased])
        if binding.kind is BindingKind.COMPLETIONS:
            return _summed([self._report(sub, binding, one) for one in leased])
        return self._run(sub, binding, leased)

    def _run(
        self, sub: SubscriptionRow, binding: Binding, leased: Sequence[LeasedDelivery]
    ) -> BinderCounts:
        """Turn messages into runs, all valid ones in one transaction."""
        customer = self._store.read(lambda tx: _owner(tx, sub))
        good: list[tuple[LeasedDelivery, CheckedSubmission]] = []
        refused = 0
        for one in leased:
            try:
                wanted = with_customer(self._names, _submission(binding, one, customer))
                check_customer(wanted.customer)
                (checked,) = check_many(self._names, [wanted])
                good.append((one, checked._replace(message_id=str(one.message_id))))
            except PenstockError as error:
                refused += self._refuse(sub, one, error).nacked

        def body(tx: Tx) -> int:
            current = delivery_ack(tx, sub, [(one.message_id, one.epoch) for one, _ in good])
            runs = [run for one, run in good if (one.message_id, one.epoch) in current]
            if runs:
                insert(tx, self._store, self._names, runs, ACTOR)
            return len(runs)

        return BinderCounts(done=self._store.write(body) if good else 0, nacked=refused)

    def _report(self, sub: SubscriptionRow, binding: Binding, one: LeasedDelivery) -> BinderCounts:
        """Report the completion in a message, in the transaction that acks it."""

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

        try:
            payload = parse_message_object(one.data)
            payload.setdefault("pipeline_template", binding.pipeline)
            payload.setdefault("correlation_id", one.attributes.get("correlation_id"))
            if "processor_name" not in payload:
                raise InvalidInput("processor_name", "the name of the completed processor", None)
            report = report_of(payload)
            return BinderCounts(done=self._store.write(body))
        except PenstockError as error:
            return self._refuse(sub, one, error)

    def _refuse(
        self, sub: SubscriptionRow, one: LeasedDelivery, error: PenstockError
    ) -> BinderCounts:
        """Nack a message: as poison for invalid input, otherwise as a transient failure."""
        is_poison = isinstance(error, InvalidInput | NotFound)
        kind = ErrorKind.POISON if is_poison else ErrorKind.TRANSIENT
        nack = DeliveryNack(one.message_id, one.epoch, kind, error.code, error.message)
        nacked = self._store.write(lambda tx: delivery_nack(tx, sub, [nack], self._jitter))
        self._store.wake(sorted(nacked.wake))
        return BinderCounts(nacked=1)

    # -- configs -------------------------------------------------------------------------------

    def _start_configs(self, sub: SubscriptionRow, one: LeasedDelivery) -> BinderCounts:
        """Start all configs that the message addresses, step by step, then ack it."""
        after: int | None = 0
        try:
            while after is not None:
                after = self._store.write(
                    lambda tx, at=after: self._start_step(tx, sub, one, at)  # type: ignore[misc]
                )
        except PenstockError as error:
            return self._refuse(sub, one, error)
        acked = self._store.write(lambda tx: delivery_ack(tx, sub, [(one.message_id, one.epoch)]))
        return BinderCounts(done=len(acked))

    def _start_step(
        self, tx: Tx, sub: SubscriptionRow, one: LeasedDelivery, after: int
    ) -> int | None:
        """Start the next configs unless this step is already done; return the next step's `after`.

        None means that this was the last step.
        """
        scope, key = f"event:{sub.subscription_key}", f"{one.message_id}:{one.generation}:{after}"
        earlier = request_begin(tx, scope, key, b"")
        if earlier is not None:
            found: int | None = earlier["next"]
            return found
        customer = None if sub.customer_key == SYSTEM else sub.customer_key
        named = one.attributes.get(CUSTOMER_ATTRIBUTE)
        rows = config_event_list(
            tx, sub.topic_name, customer_key=customer, customer_id=named, after=after, limit=STEP
        )
        for config_id, filter_text in rows:
            if not filter_text or filters.parse(filter_text)(one.attributes):
                self._start(tx, config_id, one, sub)
        next_after = rows[-1][0] if len(rows) == STEP else None
        request_finish(tx, scope, key, {"next": next_after})
        return next_after

    def _start(self, tx: Tx, config_id: int, one: LeasedDelivery, sub: SubscriptionRow) -> None:
        config_lock(tx, config_id)
        config = config_get(tx, config_id)
        if config is None or not config.is_active:
            return
        info = self._names.pipeline(config.pipeline, tx=tx)
        channels = ["flows", *sorted({f"runs:{row.pool}" for row in info.entries})]
        try:
            start(tx, config, info, ACTOR, "event", _origin(sub, one))
        except Conflict:
            # Same as an occurrence whose predecessor still runs: skip the event and record it.
            config_skip_event(tx, config_id)
            return
        tx.after_commit(lambda: self._store.wake(channels))


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
    )


def _owner(tx: Tx, sub: SubscriptionRow) -> str | None:
    """Return the customer that owns a subscription; None if each message names its customer."""
    return None if sub.customer_key == SYSTEM else customer_name(tx, sub.customer_key)


def _origin(sub: SubscriptionRow, one: LeasedDelivery) -> MessageOrigin:
    return MessageOrigin(message_id=str(one.message_id), subscription=sub.name)


def _summed(parts: Sequence[BinderCounts]) -> BinderCounts:
    return BinderCounts(
        done=sum(part.done for part in parts), nacked=sum(part.nacked for part in parts)
    )
