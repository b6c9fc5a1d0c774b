"""The consumer of the nba demo: an app that shows the picks of a day once they are published.

It subscribes to the topic on which the last phase announces its completions and, like a service of
another team, it cannot show picks without a bookmaker's line. The message about the first picks of
the day fails three times and becomes a dead letter. The lines arrive later: a replay then succeeds.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.bus.message import Nack
from penstock.bus.records import Subscription
from penstock.demo.nba.warehouse import SEASON, sql

if TYPE_CHECKING:
    from penstock.bus.records import ReceivedMessage
    from penstock.client import Client

TOPIC: Final = "nba.publish.complete"
FEED: Final = "picks-to-app"
DEAD: Final = "picks-to-app.dead"
ERROR: Final = "PICKS_WITHOUT_LINES"
ATTEMPTS: Final = 3
BACKOFF: Final = timedelta(minutes=1)


class _Published(msgspec.Struct):
    """The fields that the app reads from a message."""

    partition: str


def subscribe(client: Client) -> None:
    """Create the subscription of the app and the topic for its dead letters."""
    client.subscriptions.declare(
        Subscription(
            name=FEED,
            topic=TOPIC,
            dead_letter_topic=DEAD,
            max_attempts=ATTEMPTS,
            min_backoff=BACKOFF,
            max_backoff=BACKOFF,
        )
    )


def receive(client: Client) -> list[str]:
    """Handle ready messages and return a line about each."""
    lines = []
    for message in client.subscriptions.pull(FEED):
        day = msgspec.json.decode(message.message.data, type=_Published).partition
        if lines_published(day):
            client.subscriptions.ack(FEED, [message.ack_id])
            lines.append(f"the app shows the picks of {day}")
        else:
            lines.append(_reject(client, message, day))
    return lines


def _reject(client: Client, message: ReceivedMessage, day: str) -> str:
    error = f"none of the 20 picks of {day} has a line, and the app cannot show picks without one"
    client.subscriptions.nack(FEED, [Nack(ack_id=message.ack_id, error_type=ERROR, error=error)])
    tried = f"try {message.attempt} of {ATTEMPTS}"
    then = "it is now a dead letter" if message.attempt == ATTEMPTS else "it will be sent again"
    return f"the app refuses the message about the picks of {day} ({tried}); {then}"


def lines_published(day: str) -> int:
    """Return how many picks of a day have a bookmaker's line, from the warehouse."""
    with SEASON.opened() as connection:
        row = connection.execute(sql("lines"), {"day": day}).fetchone()
    return int(row[0]) if row else 0
