"""Creation, change and reading of streams and consumers.

A registry (a key-value bucket) says which topic a subscription belongs to; everything else is read
from the stream and the consumer themselves, so that changes made with other tools are visible.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.bus import rules
from penstock.bus.message import SubscriptionSpec, TopicSpec
from penstock.bus.transports.nats import naming, policy
from penstock.bus.transports.nats.connection import NatsConnection
from penstock.core.clock import SECOND, Clock, Micros, parse_iso
from penstock.core.errors import InvalidInput, NotFound

CACHE_SECONDS: Final = 10.0
DEDUPE_SECONDS: Final = 120
DEAD_LETTER_DEDUPE_SECONDS: Final = 3_600
"""Seconds; longer than any interval between two deliveries of a message."""
ADVISORIES: Final = "penstock_advisories"
ADVISORY_SUBJECTS: Final = (
    "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.*.*",
    "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.*.*",
)
NOT_FOUND: Final = 404
FIX: Final = "Delete the consumers of the subscription and declare it again."


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """A topic on the server."""

    spec: TopicSpec
    epoch: str
    shards: int


@dataclass(frozen=True, slots=True)
class SubscriptionFacts:
    """A subscription on the server, and the stream of its topic."""

    spec: SubscriptionSpec
    topic: StreamFacts


class Administration:
    """Topics and subscriptions of one connection."""

    def __init__(self, connection: NatsConnection, clock: Clock) -> None:
        self._connection = connection
        self._options = connection.options
        self._clock = clock
        self._cache: dict[str, tuple[float, Any]] = {}

    # -- reading ---------------------------------------------------------------------------------

    async def topic(self, name: str) -> StreamFacts:
        """Return a topic, cached if it was read recently; raise NotFound if there is none."""
        found = await self._cached(f"topic {name}", lambda: self.find_topic(name))
        if found is None:
            raise NotFound("topic", name)
        return found  # type: ignore[no-any-return]

    async def subscription(self, name: str) -> SubscriptionFacts:
        """Return a subscription, cached if read recently; raise NotFound if there is none."""
        found = await self._cached(f"subscription {name}", lambda: self.find_subscription(name))
        if found is None:
            raise NotFound("subscription", name)
        return found  # type: ignore[no-any-return]

    async def find_topic(self, name: str) -> StreamFacts | None:
        """Read a topic from the server."""
        config = await self._stream(naming.stream_of(self._options.prefix, name))
        if config is None:
            return None
        metadata = config["config"].get("metadata") or {}
        age_us = self._micros(config["config"].get("max_age", 0))
        epoch = f"{_micros_of(config['created']):x}"
        shards = int(metadata.get(policy.SHARDS, self._options.partitions))
        return StreamFacts(policy.topic_of_stream(name, age_us), epoch, shards)

    async def find_subscription(self, name: str) -> SubscriptionFacts | None:
        """Read a subscription from the server."""
        topic_name = await self._registered(name)
        if topic_name is None:
            return None
        topic = await self.find_topic(topic_name)
        if topic is None:
            return None
        found = await self._consumer(topic_name, naming.consumer_of(name, naming.ANY))
        if found is None:
            return None
        spec = policy.spec_of_consumer(
            name,
            found.get("metadata") or {},
            wait_us=self._micros(found["ack_wait"]),
            max_deliver=found.get("max_deliver", policy.UNLIMITED),
        )
        return None if spec is None else SubscriptionFacts(spec, topic)

    # -- declaring -------------------------------------------------------------------------------

    async def declare(
        self, topics: Sequence[TopicSpec], subscriptions: Sequence[SubscriptionSpec]
    ) -> None:
        """Create or change topics and subscriptions; invalid declarations are rejected before any
        change.
        """
        names = {topic.name for topic in topics}
        for topic in topics:
            rules.check_topic(topic)
            naming.token(topic.name)
        for spec in subscriptions:
            rules.check_subscription(spec)
            naming.token(spec.name)
            for needed in (spec.topic, spec.dead_letter_topic):
                if needed is not None and needed not in names:
                    await self.topic(needed)
            _check_immutable(await self.find_subscription(spec.name), spec)
        dead = {spec.dead_letter_topic for spec in subscriptions}
        for topic in topics:
            await self._put_stream(topic, keeps_dead_letters=topic.name in dead)
        for name in sorted({name for name in dead if name is not None} - names):
            facts = await self.topic(name)
            await self._put_stream(facts.spec, keeps_dead_letters=True)
        if dead - {None}:
            await self._put_advisories()
        for spec in subscriptions:
            await self._put_subscription(spec)
        self._cache.clear()

    async def _put_stream(self, spec: TopicSpec, *, keeps_dead_letters: bool) -> None:
        name = naming.stream_of(self._options.prefix, spec.name)
        found = await self._stream(name)
        window = DEAD_LETTER_DEDUPE_SECONDS if keeps_dead_letters else DEDUPE_SECONDS
        wanted = {
            "max_age": self._nanos(spec.retention_us),
            "num_replicas": self._options.replicas,
            "duplicate_window": self._nanos(window * SECOND),
        }
        if found is None:
            shards = self._options.partitions
            body = {
                "name": name,
                "subjects": [naming.subject_of(self._options.prefix, spec.name, ">")],
                "retention": "limits",
                "storage": "file",
                "discard": "new",
                "allow_direct": True,
                "metadata": {policy.SHARDS: str(shards)},
                **wanted,
            }
            await self._ask(f"STREAM.CREATE.{name}", body)
            return
        config = found["config"]
        wanted["duplicate_window"] = max(
            wanted["duplicate_window"], config.get("duplicate_window", 0)
        )
        wanted["duplicate_window"] = min(wanted["duplicate_window"], wanted["max_age"])
        if any(config.get(field) != value for field, value in wanted.items()):
            await self._ask(f"STREAM.UPDATE.{name}", {**config, **wanted})

    async def _put_advisories(self) -> None:
        """Create the stream that stores the servers' advisories about messages that they stop
        delivering.
        """
        if await self._stream(ADVISORIES) is None:
            body = {
                "name": ADVISORIES,
                "subjects": list(ADVISORY_SUBJECTS),
                "retention": "limits",
                "storage": "file",
                "max_age": 7 * 86_400 * 10**9,
                "num_replicas": self._options.replicas,
            }
            await self._ask(f"STREAM.CREATE.{ADVISORIES}", body)
        await self._put_consumer(ADVISORIES, {
            "durable_name": mover_of(self._options.prefix),
            "ack_policy": "explicit", "deliver_policy": "all",
            "ack_wait": 60 * 10**9, "max_ack_pending": policy.UNLIMITED,
        })  # fmt: skip

    async def _put_subscription(self, spec: SubscriptionSpec) -> None:
        facts = await self.find_topic(spec.topic)
        assert facts is not None
        await self._register(spec)
        prefix = self._options.prefix
        shards = [naming.ANY, *map(str, range(facts.shards))] if spec.is_ordered else [naming.ANY]
        for shard in shards:
            words = (shard, ">") if spec.is_ordered else (">",)
            await self._put_consumer(naming.stream_of(prefix, spec.topic), {
                "durable_name": naming.consumer_of(spec.name, shard),
                "deliver_policy": "new",
                "ack_policy": "explicit",
                "ack_wait": self._nanos(policy.ack_wait_us(spec)),
                "max_deliver": policy.UNLIMITED,
                "max_ack_pending": policy.UNLIMITED if shard == naming.ANY else 1,
                "filter_subject": naming.subject_of(prefix, spec.topic, *words),
                "metadata": policy.consumer_metadata(spec),
            })  # fmt: skip

    async def _put_consumer(self, stream: str, config: dict[str, Any]) -> None:
        name = config["durable_name"]
        found = await self._ask(f"CONSUMER.INFO.{stream}.{name}", {}, none_at=NOT_FOUND)
        if found is not None:
            now = found["config"]
            config = {**now, **config, "deliver_policy": now["deliver_policy"]}
            meta = {**(now.get("metadata") or {}), **config.get("metadata", {})}
            config["metadata"] = {k: v for k, v in meta.items() if _is_kept(k, config)}
        body = {"stream_name": stream, "config": config}
        await self._ask(f"CONSUMER.DURABLE.CREATE.{stream}.{name}", body)

    # -- the registry ----------------------------------------------------------------------------

    async def _registered(self, subscription: str) -> str | None:
        bucket = f"KV_{self._options.prefix}_subscriptions"
        subject = f"$KV.{self._options.prefix}_subscriptions.{subscription.encode().hex()}"
        found = await self._ask(
            f"STREAM.MSG.GET.{bucket}", {"last_by_subj": subject}, none_at=NOT_FOUND
        )
        if found is None:
            return None
        return b64decode(found["message"].get("data", "")).decode()

    async def _register(self, spec: SubscriptionSpec) -> None:
        import nats.js.errors  # optional dependency, imported on use

        js = await self._connection.jetstream()
        bucket = f"{self._options.prefix}_subscriptions"
        async with self._connection.errors("declaring"):
            try:
                kv = await js.key_value(bucket)
            except nats.js.errors.NotFoundError:
                kv = await js.create_key_value(bucket=bucket, replicas=self._options.replicas)
            await kv.put(spec.name.encode().hex(), spec.topic.encode())

    # -- requests --------------------------------------------------------------------------------

    async def _stream(self, name: str) -> dict[str, Any] | None:
        return await self._ask(f"STREAM.INFO.{name}", {}, none_at=NOT_FOUND)

    async def _consumer(self, topic: str, consumer: str) -> dict[str, Any] | None:
        stream = naming.stream_of(self._options.prefix, topic)
        found = await self._ask(f"CONSUMER.INFO.{stream}.{consumer}", {}, none_at=NOT_FOUND)
        return None if found is None else found["config"]

    async def _ask(
        self, subject: str, body: dict[str, Any], *, none_at: int | None = None
    ) -> dict[str, Any] | None:
        response = await self._connection.api(subject, body)
        error = response.get("error")
        if error is None:
            return response
        if error.get("code") == none_at:
            return None
        raise InvalidInput("transport", "a request that NATS accepts", error.get("description"))

    async def _cached(self, key: str, read: Any) -> Any:
        now = self._clock.monotonic()
        at, value = self._cache.get(key, (0.0, None))
        if value is None or now - at > CACHE_SECONDS:
            value = await read()
            self._cache[key] = (now, value)
        return value

    def _nanos(self, micros: Micros) -> int:
        return int(micros * 1_000 / self._options.speed)

    def _micros(self, nanos: int) -> Micros:
        return round(nanos * self._options.speed / 1_000)


def mover_of(prefix: str) -> str:
    """Return the consumer that reads the advisories of one prefix."""
    return f"mover_{prefix}"


def _check_immutable(found: SubscriptionFacts | None, spec: SubscriptionSpec) -> None:
    if found is None:
        return
    if found.spec.topic != spec.topic:
        raise InvalidInput("topic", found.spec.topic, spec.topic, FIX)
    if found.spec.is_ordered != spec.is_ordered:
        raise InvalidInput("is_ordered", str(found.spec.is_ordered), spec.is_ordered, FIX)


def _is_kept(key: str, config: dict[str, Any]) -> bool:
    return not key.startswith("penstock-") or key in config.get("metadata", {})


def _micros_of(created: str) -> int:

    return parse_iso(created[:26].rstrip("Z") + "Z")
