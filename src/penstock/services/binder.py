"""The binder: serves bound subscriptions inside the store.

A message bound to a processor becomes a run of that processor, a message bound to completions
reports a completion, and a message on the topic of event-driven configs starts those configs. Each
effect is committed in the transaction that acks the message, so a crash leaves both or neither. The
binder calls the same use cases as other callers.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from penstock.access.store.names import NameResolver
from penstock.bus.binding import (
    CONFIGS_BINDING,
    CONFIGS_SUFFIX,
    Binding,
    BindingKind,
    parse_message_object,
)
from penstock.bus.binding import parse_binding as parse
from penstock.bus.message import DEAD_LETTER_SUFFIX, SubscriptionSpec, TopicSpec
from penstock.bus.store.bindings import customer_name, topics_awaited, topics_unbound
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
from penstock.core.errors import InvalidInput, StoreError
from penstock.core.fields import check_customer
from penstock.core.json_profile import parse_json as parse_json
from penstock.db.in_transaction import InTransaction
from penstock.db.isolation import shares, write_isolated
from penstock.db.store import StoreView, Tx
from penstock.flows.client.completion_message import report_from_message
from penstock.flows.client.requests import ProcessorReport
from penstock.runs.client.submission import CheckedSubmission, check_many, insert, with_customer
from penstock.runs.records import Submission
from penstock.services.config_starts import ConfigStarts
from penstock.services.customer_threads import CustomerThreads
from penstock.services.message_results import (
    ACTOR,
    CUSTOMER_ATTRIBUTE,
    correlation_of,
    nack_of,
    origin_of,
)

BATCH = 32
PAGE = 1_000
SHARE = 10
"""Maximum number of subscriptions of one customer that a pass serves."""
MODE_ATTRIBUTE = "processing_mode"
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
        """Serve the bound subscriptions of `store`; `threads` serve customers concurrently."""
        self._store = store
        self._names = NameResolver(store)
        self._client = Client(store, actor=ACTOR, names=self._names)
        self._configs = ConfigStarts(store, self._names)
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
        """Bind topics of event-driven configs, then serve one batch of each ready subscription."""
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
        """Stop starting work and wait for the work in progress; return True when none is left."""
        return self._threads is None or self._threads.drain(seconds)

    def _serve_alone(self, sub: SubscriptionRow) -> BinderCounts:
        """Serve one subscription; a failure is logged and does not delay the others.

        Its leased messages are delivered again after the ack deadline.
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
        elif binding.kind is BindingKind.CONFIGS:
            done = self._configs.start_all(sub, leased, nacks)
        else:
            done = self._report(sub, binding, leased, nacks)
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
                nacks.append(nack_of(one, error))
        if not good:
            return 0
        try:
            return self._insert(sub, good)
        except Exception as error:
            if len(good) == 1:
                nacks.append(nack_of(good[0][0], error))
                return 0
        # One of them cannot be inserted: find it.
        done = 0
        for pair in good:
            try:
                done += self._insert(sub, [pair])
            except Exception as error:
                nacks.append(nack_of(pair[0], error))
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

    def _report(
        self,
        sub: SubscriptionRow,
        binding: Binding,
        leased: Sequence[LeasedDelivery],
        nacks: list[DeliveryNack],
    ) -> int:
        """Report the completions in messages, each in the transaction that acks its message."""
        good: list[tuple[LeasedDelivery, ProcessorReport]] = []
        for one in leased:
            try:
                good.append((one, _report(binding, one)))
            except Exception as error:
                nacks.append(nack_of(one, error))

        def act(tx: Tx, pair: tuple[LeasedDelivery, ProcessorReport]) -> int:
            one, report = pair
            if not delivery_ack(tx, sub, [(one.message_id, one.epoch)]):
                return 0
            self._client.with_store(InTransaction(self._store, tx)).flows.record(
                replace(
                    report,
                    customer=_owner(tx, sub) or report.customer,
                    origin=origin_of(sub, one),
                )
            )
            return 1

        return write_isolated(
            self._store, good, act, lambda pair, error: nacks.append(nack_of(pair[0], error))
        )


def _report(binding: Binding, one: LeasedDelivery) -> ProcessorReport:
    """Return the completion that a message reports."""
    payload = parse_message_object(one.data)
    payload.setdefault("pipeline_template", binding.pipeline)
    payload.setdefault("correlation_id", correlation_of(one))
    if payload.get("processor_name") is None:
        raise InvalidInput("processor_name", "the name of the completed processor", None)
    return report_from_message(payload)


def _bind_topics(tx: Tx) -> int:
    """Create the missing subscriptions for topics of event-driven configs; return the count.

    A built-in topic that a config waits for is created first.
    """
    for name in topics_awaited(tx):
        with contextlib.suppress(InvalidInput):  # such as a name that begins with "goog"
            topic_declare(tx, TopicSpec(name=name), actor=ACTOR)
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
        correlation_id=correlation_of(one),
        mode=one.attributes.get(MODE_ATTRIBUTE),
    )


def _owner(tx: Tx, sub: SubscriptionRow) -> str | None:
    """Return the customer that owns a subscription; None if each message names its customer."""
    return None if sub.customer_key == SYSTEM else customer_name(tx, sub.customer_key)


def _summed(parts: Sequence[BinderCounts]) -> BinderCounts:
    return BinderCounts(
        done=sum(part.done for part in parts), nacked=sum(part.nacked for part in parts)
    )
