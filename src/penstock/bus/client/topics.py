"""Use cases of topics: create and read them, publish to them, look up a message.

A topic belongs to a customer or, without one, to the system. A published message is
durable when the call returns; publishing again under a dedupe id returns the first message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, TypeAlias

import msgspec

from penstock.access.store.names import NameResolver
from penstock.access.store.paging import Cursor, PageLimit, paged
from penstock.bus.client.requests import topic_of
from penstock.bus.from_rows import message_record, topic_detail_record, topic_record
from penstock.bus.message import NewMessage, TopicSpec
from penstock.bus.records import MessageDetail, PublishResult, StoredTopic, Topic, TopicDetail
from penstock.bus.rules import BATCH_MAX
from penstock.bus.store.backlog import message_states
from penstock.bus.store.messages import MessageRow, message_get, message_publish
from penstock.bus.store.schemas import check_schema_settings
from penstock.bus.store.topics import (
    SYSTEM,
    SubscriptionFilter,
    TopicRow,
    is_builtin,
    subscription_list,
    topic_declare,
    topic_delete,
    topic_find,
    topic_get,
    topic_list,
)
from penstock.bus.store.why_reads import message_fact
from penstock.bus.why import why_message
from penstock.core.clock import Micros
from penstock.core.errors import AlreadyExists, InvalidInput, NotFound
from penstock.core.ids import decode_or_not_found
from penstock.core.naming import CustomerKey, TopicKey
from penstock.core.records.parameters import Owner
from penstock.core.records.record import Meta, Page, Wire
from penstock.core.tracing.trace_context import CURRENT_TRACE, TRACEPARENT
from penstock.db.store import Transactions, Tx
from penstock.flows.explain.from_rows import cause_tree_record
from penstock.flows.explain.records import CauseTree
from penstock.flows.explain.times import LocalClock
from penstock.runs.store.held import run_token_lock

__all__ = ["Topics"]

_SUBSCRIPTIONS_MAX = 1_000
_MESSAGE_ID_DIGITS = 18

_NAME = Meta(description="Name of the topic.", examples=["rosters"], max_length=255)
_MESSAGES = Meta(
    description="Messages in publish order; all are stored or none.",
    min_length=1,
    max_length=BATCH_MAX,
)
_RUN_ID = Meta(description="Run that publishes the messages; requires its fencing token.")
_TOKEN = Meta(description="Fencing token of the run; 409 if the run is no longer held under it.")
_MESSAGE_ID = Meta(
    description="Id of the message, as returned by publish.", examples=["4711"], max_length=20
)
TopicName: TypeAlias = Annotated[str, _NAME]
TopicPath: TypeAlias = Annotated[str, Wire("topic"), _NAME]


class Topics:
    """Use cases of topics and their messages."""

    def __init__(self, store: Transactions, names: NameResolver, actor: str) -> None:
        self._store = store
        self._names = names
        self._actor = actor

    def create(self, topic: Topic, *, customer: Owner = None) -> StoredTopic:
        """Create a topic, or update its retention if it exists."""
        spec = topic_of(topic)

        def body(tx: Tx) -> StoredTopic:
            number = self._customer_key(tx, None)
            if customer is not None:
                number = self._names.ensure_customer_keys(tx, [customer])[customer]
            tx.after_commit(lambda: self._store.wake(["bound"]))  # its messages may start configs
            check_schema_settings(tx, spec.schema_settings, number)
            return topic_record(topic_declare(tx, spec, number, self._actor))

        return self._store.write(body)

    def add(self, topic: Topic, *, customer: Owner = None) -> StoredTopic:
        """Create a topic. Raises AlreadyExists if its name is taken."""
        return self._put(topic.name, lambda _: topic, customer, is_new=True)

    def change(
        self, name: TopicPath, change: Callable[[Topic], Topic], *, customer: Owner = None
    ) -> StoredTopic:
        """Replace the settings of a topic with the result of `change(current)`."""
        return self._put(name, change, customer, is_new=False)

    def _put(
        self, name: str, change: Callable[[Topic], Topic], customer: str | None, *, is_new: bool
    ) -> StoredTopic:
        def body(tx: Tx) -> StoredTopic:
            number = self._customer_key(tx, None)
            if customer is not None and is_new:
                number = self._names.ensure_customer_keys(tx, [customer])[customer]
            elif customer is not None:
                number = self._customer_key(tx, customer)
            found = topic_find(tx, name, number)
            if is_new and found is not None:
                raise AlreadyExists("topic", name)
            if found is None and not is_new:
                raise NotFound("topic", name)
            before = Topic(name=name)
            if found is not None:
                now = topic_record(found)
                before = Topic(
                    name=name,
                    retention=now.retention,
                    labels=now.labels,
                    schema_settings=now.schema_settings,
                )
            spec = topic_of(change(before))
            check_schema_settings(tx, spec.schema_settings, number)
            tx.after_commit(lambda: self._store.wake(["bound"]))  # its messages may start configs
            return topic_record(topic_declare(tx, spec, number, self._actor))

        return self._store.write(body)

    def list(
        self, *, customer: Owner = None, limit: PageLimit = 50, cursor: Cursor = None
    ) -> Page[StoredTopic]:
        """List topics by name."""
        return paged(
            self._names,
            "topics",
            lambda after: self._store.read(
                lambda tx: topic_list(
                    tx,
                    self._customer_key(tx, customer),
                    after=after[0] if after else "",
                    limit=limit,
                )
            ),
            cursor=cursor,
            limit=limit,
            position=lambda topic: [topic.name],
            record=topic_record,
            filters={"customer": customer},
        )

    def get(self, name: TopicPath, *, customer: Owner = None) -> TopicDetail:
        """Return a topic with the names of its subscriptions."""

        def body(tx: Tx) -> TopicDetail:
            owner = self._customer_key(tx, customer)
            topic = topic_find(tx, name, owner)
            if topic is None and (owner != SYSTEM or not is_builtin(tx, name)):
                topic = topic_get(tx, name, owner)  # raises NotFound with the closest name
            if topic is None:
                # A built-in topic is stored when it is first used, not when it is read.
                return topic_detail_record(_unused(name, tx.now()), [])
            wanted = SubscriptionFilter(
                customer=topic.customer_key, topic=topic.topic_key, limit=_SUBSCRIPTIONS_MAX
            )
            return topic_detail_record(topic, subscription_list(tx, wanted))

        return self._store.read(body)

    def delete(self, name: TopicPath, *, customer: Owner = None) -> None:
        """Delete a topic but keep its subscriptions and their backlogs; no new messages arrive."""
        self._store.write(
            lambda tx: topic_delete(tx, name, self._customer_key(tx, customer), self._actor)
        )

    def publish(
        self,
        topic: TopicName,
        messages: Annotated[Sequence[NewMessage], _MESSAGES],
        *,
        customer: Owner = None,
        run_id: Annotated[str | None, _RUN_ID] = None,
        fencing_token: Annotated[int | None, _TOKEN] = None,
    ) -> PublishResult:
        """Publish messages atomically. They are durable when the response arrives.

        With `run_id`, the request fails with 409 if the run is no longer held under its token.
        """
        if (run_id is None) != (fencing_token is None):
            raise InvalidInput("fencing_token", "a token together with run_id", fencing_token)
        number = None if run_id is None else decode_or_not_found("run", "run", run_id)
        sent = [_traced(message) for message in messages]

        def body(tx: Tx) -> PublishResult:
            if number is not None and fencing_token is not None:
                run_token_lock(tx, number, fencing_token, self._names.customer_key(tx, customer))
            done = message_publish(tx, topic, sent, self._customer_key(tx, customer))
            tx.after_commit(lambda: self._store.wake(sorted(done.wake)))
            ids = [str(number) for number in done.message_ids]
            return PublishResult(message_ids=ids, subscriptions=done.subscriptions)

        return self._store.write(body)

    def message(self, message_id: Annotated[str, _MESSAGE_ID]) -> MessageDetail:
        """Return a message with its state in each subscription."""

        def body(tx: Tx) -> MessageDetail:
            found = self._message(tx, message_id)
            return message_record(found, message_states(tx, found.message_id, found.topic_key))

        return self._store.read(body)

    def why(self, message_id: Annotated[str, _MESSAGE_ID]) -> CauseTree:
        """Explain why a message has not been handled, by subscription, as a tree of causes."""

        def body(tx: Tx) -> CauseTree:
            found = self._message(tx, message_id)
            now = tx.now()
            fact = message_fact(tx, found, self._names.customer_key(tx, None))
            return cause_tree_record(why_message(fact, LocalClock(now)), now, "UTC")

        return self._store.read(body)

    def _message(self, tx: Tx, message_id: str) -> MessageRow:
        is_number = message_id.isascii() and message_id.isdigit()
        found = None
        if is_number and len(message_id) <= _MESSAGE_ID_DIGITS:
            found = message_get(tx, int(message_id), self._names.customer_key(tx, None))
        if found is None:
            raise NotFound("message", message_id)
        return found

    def _customer_key(self, tx: Tx, customer: str | None) -> CustomerKey:
        number = self._names.customer_key(tx, customer)
        return SYSTEM if number is None else number


def _unused(name: str, now: Micros) -> TopicRow:
    """Return a built-in topic as it will be stored when it is first used."""
    spec = TopicSpec(name=name)
    return TopicRow(TopicKey(0), SYSTEM, name, spec.retention_us, now, "", "{}", None)


def _traced(message: NewMessage) -> NewMessage:
    """Return a message with the trace context of the current request, unless it has one."""
    context = CURRENT_TRACE.get()
    if context is None or TRACEPARENT in message.attributes:
        return message
    attributes = {**message.attributes, TRACEPARENT: context.header}
    return msgspec.structs.replace(message, attributes=attributes)
