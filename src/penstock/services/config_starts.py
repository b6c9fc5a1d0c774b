"""Starts of configs by messages: the part of the binder that serves event-driven configs.

A message may start many configs: they are started in steps, each step is recorded in its own
transaction, and the message is acked after the last one.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from penstock.access.store.names import NameResolver, PipelineInfo
from penstock.audit.rows import NewAlert
from penstock.audit.store.alerts import alert_open, request_begin, request_finish
from penstock.bus.store.bindings import config_event_list, config_skip_event
from penstock.bus.store.deliveries import DeliveryNack, LeasedDelivery, delivery_ack
from penstock.bus.store.topics import SYSTEM, SubscriptionRow, is_builtin
from penstock.core.errors import Conflict, InvalidInput
from penstock.core.filters import attributes as filters
from penstock.core.ids import encode
from penstock.core.naming import runs_channel
from penstock.db.isolation import write_isolated
from penstock.db.store import StoreView, Tx
from penstock.flows.client.start_config import start
from penstock.pipelines.partition import check_partition, partition_rule_of
from penstock.schedules.event_mapping import EventStart, event_start
from penstock.schedules.rows import ConfigRow
from penstock.schedules.store.configs import config_get, config_lock
from penstock.services.message_results import (
    ACTOR,
    CUSTOMER_ATTRIBUTE,
    correlation_of,
    is_poison,
    nack_of,
    origin_of,
)
from penstock.services.public_messages import completions_announced, is_internal

STEP = 200
FEW = 5
"""Maximum number of configs that a message starts in a transaction shared with other messages."""

log = logging.getLogger(__name__)


class _Step(NamedTuple):
    """One step of starting configs: where the next begins, and configs to start one by one."""

    next_after: int | None
    one_by_one: list[int]


DONE = _Step(None, [])


class ConfigStarts:
    """Starts the configs that messages address, with the transactions of the store."""

    def __init__(self, store: StoreView, names: NameResolver) -> None:
        self._store = store
        self._names = names

    def start_all(
        self, sub: SubscriptionRow, leased: Sequence[LeasedDelivery], nacks: list[DeliveryNack]
    ) -> int:
        """Start the configs that messages address; return how many messages were acked.

        A message that starts no config is acked together with others. One that starts a few configs
        is acked in the transaction that starts them; one that starts many needs several
        transactions.
        """
        if sub.customer_key == SYSTEM and any(is_internal(one.data) for one in leased):
            given = leased
            leased = self._store.read(lambda tx: completions_announced(tx, sub.topic_name, given))
        later: dict[int, LeasedDelivery] = {}

        def act(tx: Tx, one: LeasedDelivery) -> int:
            later.pop(one.message_id, None)
            count = len(_listeners(tx, sub, one, 0))
            step = self._step(tx, sub, one, 0, is_listing=False) if 0 < count <= FEW else DONE
            if count > FEW or step != DONE:
                later[one.message_id] = one
                return 0
            return len(delivery_ack(tx, sub, [(one.message_id, one.epoch)]))

        def postpone(one: LeasedDelivery, _: Exception) -> None:
            later[one.message_id] = one

        done = write_isolated(self._store, leased, act, postpone)
        for one in later.values():
            try:
                done += self._start_configs(sub, one)
            except Exception as error:
                nacks.append(nack_of(one, error))
        return done

    def _start_configs(self, sub: SubscriptionRow, one: LeasedDelivery) -> int:
        """Start all configs that the message addresses, step by step, then ack it.

        A config that cannot be started does not block the others: the step is repeated config by
        config, and after the last step the message is nacked with the first error. A message on a
        system topic is for many customers: if it is valid for others, a config for which it is
        invalid opens an alert of its customer, and the message does not become a dead letter. A
        config with an invalid filter, stored before filters were checked, does so on any topic.
        """
        errors: list[tuple[int, Exception]] = []
        fits_some = False
        after: int | None = 0
        while after is not None:
            step = self._start_step(sub, one, after)
            fits_some = fits_some or not step.one_by_one
            for config_id in step.one_by_one:
                try:
                    self._store.write(
                        lambda tx, number=config_id: self._start_once(tx, sub, one, number)  # type: ignore[misc]
                    )
                except Exception as error:
                    log.warning("message %s did not start config %s", one.message_id, config_id)
                    errors.append((config_id, error))
                else:
                    fits_some = True
            after = step.next_after
        wrong = self._store.read(lambda tx: _with_wrong_filters(tx, errors)) if errors else set()
        others = [error for config_id, error in errors if config_id not in wrong]
        are_unfitting = sub.customer_key == SYSTEM and fits_some and all(map(is_poison, others))
        if others and not are_unfitting:
            # A retry can only help if one of the errors is not permanent.
            raise min(others, key=is_poison)
        return self._store.write(lambda tx: _ack(tx, sub, one, errors))

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
                if not filter_text or filters.parse(filter_text, "event_filter")(one.attributes):
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
        if not pattern or filters.parse(pattern, "event_filter")(one.attributes):
            self._start(tx, config_id, one, sub)
        request_finish(tx, f"event:{sub.subscription_key}", key, {})

    def _start(self, tx: Tx, config_id: int, one: LeasedDelivery, sub: SubscriptionRow) -> None:
        config_lock(tx, config_id)
        config = config_get(tx, config_id)
        if config is None or not config.is_active:
            return
        info = self._names.pipeline(config.pipeline, tx=tx)
        channels = ["flows", *sorted({runs_channel(row.pool) for row in info.entries})]
        event, origin = _event(config, info, one), origin_of(sub, one)
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
        return []  # about the whole installation, such as a system alert; it belongs to no customer
    return config_event_list(
        tx, sub.topic_name, customer_key=customer, customer_id=named, after=after, limit=STEP
    )


def _ack(
    tx: Tx, sub: SubscriptionRow, one: LeasedDelivery, unfitting: Sequence[tuple[int, Exception]]
) -> int:
    """Ack a message, with an alert about each config for which it is invalid."""
    acked = len(delivery_ack(tx, sub, [(one.message_id, one.epoch)]))
    for config_id, error in unfitting if acked else ():
        config = config_get(tx, config_id)
        if config is not None:
            alert_open(tx, _unfitting(config, sub, one, error))
    return acked


def _with_wrong_filters(tx: Tx, errors: Sequence[tuple[int, Exception]]) -> set[int]:
    """Return the configs, of those that could not be started, whose filter cannot be parsed."""
    found = set()
    for config_id, error in errors:
        config = config_get(tx, config_id) if isinstance(error, InvalidInput) else None
        try:
            if config is not None and config.event_filter:
                filters.parse(config.event_filter, "event_filter")
        except InvalidInput:
            found.add(config_id)
    return found


def _unfitting(
    config: ConfigRow, sub: SubscriptionRow, one: LeasedDelivery, error: Exception
) -> NewAlert:
    """Return the alert about a config that a message cannot start."""
    name, reason = encode("cfg", config.config_id), nack_of(one, error)
    return NewAlert(
        rule="event_unfitting",
        dedupe_key=f"event_unfitting:{config.config_id}",
        severity="HIGH",
        customer_key=config.customer_key,
        subject_kind="config",
        subject=config.config_id,
        message=f"Message {one.message_id} of topic {sub.topic_name} does not start config {name}: "
        f"{reason.error}. Change its event_mapping, event_filter or parameters."[:1_000],
        detail={
            "topic": sub.topic_name,
            "message": str(one.message_id),
            "error": reason.error_type,
        },
    )


def _event(config: ConfigRow, info: PipelineInfo, one: LeasedDelivery) -> EventStart:
    schema = info.definition.get("parameters")
    message = (one.data, one.attributes)
    event = event_start(config.event_mapping, message, config.parameters, schema)
    event = event._replace(correlation_id=correlation_of(one))
    if event.partition is not None:
        check_partition(partition_rule_of(info.definition), event.partition)
    return event
