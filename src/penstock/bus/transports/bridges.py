"""Bridges: the topics that a bridge sends to an external transport, and those that it receives.

Pure. The setting `bridges` is a table by name:

    [bridges.main]
    url = "nats://one:4222,two:4222,three:4222?replicas=3"
    send = ["nba.*.trigger", "nba.*.complete", "penstock.alerts"]
    receive = ["nba.reports"]

A topic has the same name on both sides. Patterns are allowed for topics that are sent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from penstock.bus.message import DEAD_LETTER_SUFFIX, SubscriptionSpec, TopicSpec
from penstock.bus.rules import check_name
from penstock.core.clock import SECOND
from penstock.core.errors import InvalidInput, SettingsError

_FIELDS: Final = ("url", "send", "receive")
_PATTERN: Final = "*?["
NAME_MAX: Final = 40
ATTEMPTS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeSettings:
    """One bridge between the system's topics and an external transport."""

    name: str
    url: str
    send: tuple[str, ...] = ()
    receive: tuple[str, ...] = ()

    def sent(self, known: Collection[str]) -> list[str]:
        """Return the topics to send: those that are named, and known ones that match a pattern."""
        named = {one for one in self.send if not is_pattern(one)}
        patterns = [one for one in self.send if is_pattern(one)]
        matched = {one for one in known if any(fnmatchcase(one, p) for p in patterns)}
        return sorted(named | matched)

    def subscription(self, topic: str) -> str:
        """Return the subscription of the bridge to a topic, on either side."""
        return f"bridge.{self.name}.{topic}"

    def outgoing(self, topic: str) -> SubscriptionSpec:
        """Return the local subscription of a topic that is sent."""
        return SubscriptionSpec(
            name=self.subscription(topic),
            topic=topic,
            is_ordered=True,
            min_backoff_us=SECOND,
            max_backoff_us=60 * SECOND,
            max_attempts=ATTEMPTS,
            dead_letter_topic=self.subscription(topic) + DEAD_LETTER_SUFFIX,
        )

    def incoming(self) -> tuple[list[TopicSpec], list[SubscriptionSpec]]:
        """Return the topics and subscriptions that receiving needs on the external transport."""
        topics: list[TopicSpec] = []
        subscriptions: list[SubscriptionSpec] = []
        for topic in self.receive:
            name = self.subscription(topic)
            topics += [TopicSpec(name=topic), TopicSpec(name=name + DEAD_LETTER_SUFFIX)]
            subscriptions.append(
                SubscriptionSpec(
                    name=name,
                    topic=topic,
                    is_ordered=True,
                    min_backoff_us=SECOND,
                    max_backoff_us=60 * SECOND,
                    max_attempts=ATTEMPTS,
                    dead_letter_topic=name + DEAD_LETTER_SUFFIX,
                )
            )
        return topics, subscriptions


def parse_bridges(table: object) -> list[BridgeSettings]:
    """Return the bridges of the setting; raise SettingsError for an invalid entry."""
    if not isinstance(table, Mapping):
        raise SettingsError("bridges", "a table keyed by the bridge's name", table)
    return [_one(str(name), row) for name, row in sorted(table.items())]


def _one(name: str, row: Any) -> BridgeSettings:
    path = f"bridges.{name[:NAME_MAX]}"
    try:
        check_name(name, path)
    except InvalidInput as error:
        raise SettingsError(path, error.expected, name) from None
    if len(name) > NAME_MAX:
        raise SettingsError(path, f"a name of at most {NAME_MAX} characters", name)
    if not isinstance(row, Mapping):
        raise SettingsError(path, f"a table with {', '.join(_FIELDS)}", row)
    for field in row:
        if field not in _FIELDS:
            raise SettingsError(path, f"only {', '.join(_FIELDS)}", field)
    url = row.get("url")
    if not isinstance(url, str) or "://" not in url:
        raise SettingsError(f"{path}.url", "the URL of a transport, such as nats://host:4222", url)
    send, receive = (_topics(path, field, row.get(field, ())) for field in ("send", "receive"))
    if not send and not receive:
        raise SettingsError(path, "topics to send or to receive", "neither")
    both = [one for one in receive if one in BridgeSettings(name=name, url=url, send=send).sent(
        receive)]  # fmt: skip
    if both:
        raise SettingsError(path, "a topic that is sent or received, not both (it would loop)",
                            both[0])  # fmt: skip
    return BridgeSettings(name=name, url=url, send=send, receive=receive)


def _topics(path: str, field: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise SettingsError(f"{path}.{field}", "a list of topics", value)
    for index, topic in enumerate(value):
        plain = topic
        if field == "send" and isinstance(topic, str):
            plain = topic.translate({ord(mark): "x" for mark in "*?[]!"})
        try:
            check_name(plain, f"{path}.{field}[{index}]")
        except InvalidInput as error:
            raise SettingsError(error.field, error.expected, topic) from None
    return tuple(value)


def is_pattern(topic: str) -> bool:
    """Whether an entry of `send` is a pattern over topics."""
    return any(mark in topic for mark in _PATTERN)
