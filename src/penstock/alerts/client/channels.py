"""Use cases of alert rules, channels and notices."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from penstock.access.store.names import NameResolver
from penstock.access.store.paging import Cursor, PageLimit, paged
from penstock.alerts.catalog import DAYS, rule_records
from penstock.alerts.from_rows import channel_record, notice_record
from penstock.alerts.measures import MeasuredFleet
from penstock.alerts.records import AlertChannel, AlertRule, Notice, NoticeState
from penstock.alerts.store.measures import measure, rules_read
from penstock.alerts.store.notices import (
    channel_list,
    notice_get,
    notice_list,
    notice_test,
    notices_resend,
)
from penstock.alerts.store.states import open_counts, rule_counts
from penstock.core.errors import NotFound
from penstock.core.ids import decode_or_not_found, encode
from penstock.core.records.record import Meta, Page
from penstock.db.store import Transactions, Tx

NEWEST = 2**62

NoticeId: TypeAlias = Annotated[
    str, Meta(description="Id of the notice (`notice_…`).", max_length=64)
]
ChannelName: TypeAlias = Annotated[
    str, Meta(description="Name of the channel in the settings.", max_length=64)
]
Rules: TypeAlias = Annotated[list[AlertRule], Meta(description="Rules by name.")]
Channels: TypeAlias = Annotated[list[AlertChannel], Meta(description="Channels by name.")]
Resent: TypeAlias = Annotated[int, Meta(description="Number of notices that are sent again.")]
ChannelFilter: TypeAlias = Annotated[
    Annotated[str, Meta(max_length=64)] | None,
    Meta(description="Return only notices of this channel."),
]
NoticeStateFilter: TypeAlias = Annotated[
    NoticeState | None, Meta(description="Return only notices in this state.")
]


class AlertChannels:
    """Use cases of rules, channels and notices."""

    def __init__(self, store: Transactions, names: NameResolver, actor: str) -> None:
        self._store = store
        self._names = names
        self._actor = actor

    def rules(self) -> Rules:
        """List alert rules and how often they fired."""
        self._names.require_unscoped("rules of alerts")
        declared, fired = self._store.read(lambda tx: (rules_read(tx), rule_counts(tx, DAYS)))
        return rule_records(declared, fired)

    def measured(self) -> MeasuredFleet:
        """Return the current measurements of rules, and open alerts by rule and severity."""
        self._names.require_unscoped("measurements of alert rules")
        return self._store.read(lambda tx: MeasuredFleet(measure(tx), open_counts(tx)))

    def channels(self) -> Channels:
        """List notification channels and whether they work."""
        self._names.require_unscoped("channels of alerts")
        return [channel_record(row) for row in self._store.read(channel_list)]

    def test_channel(self, channel: ChannelName) -> Notice:
        """Send a test message through a channel.

        It is queued like any notice and sent within seconds by a running process; `notice` returns
        the outcome. It is tried once.
        """
        self._names.require_unscoped("channels of alerts")

        def body(tx: Tx) -> Notice:
            made = notice_test(tx, channel)
            if made is None:
                raise NotFound("channel", channel)
            return self._notice(tx, made)

        return self._store.write(body)

    def resend(self, channel: ChannelName) -> Resent:
        """Send the abandoned notices of a channel again; return their number."""
        self._names.require_unscoped("channels of alerts")

        def body(tx: Tx) -> int:
            if not any(row.name == channel for row in channel_list(tx)):
                raise NotFound("channel", channel)
            return notices_resend(tx, channel)

        return self._store.write(body)

    def notices(
        self,
        *,
        channel: ChannelFilter = None,
        state: NoticeStateFilter = None,
        limit: PageLimit = 50,
        cursor: Cursor = None,
    ) -> Page[Notice]:
        """List notices, newest first."""
        self._names.require_unscoped("notices of alerts")
        return paged(
            self._names,
            "notices",
            lambda after: self._store.read(
                lambda tx: notice_list(
                    tx,
                    channel=channel,
                    state=state,
                    before=after[0] if after else NEWEST,
                    limit=limit,
                )
            ),
            cursor=cursor,
            limit=limit,
            position=lambda row: [row.notice_id],
            record=notice_record,
            filters={"channel": channel, "state": state},
        )

    def notice(self, notice_id: NoticeId) -> Notice:
        """Return one notice."""
        self._names.require_unscoped("notices of alerts")
        number = decode_or_not_found("notice", "notice", notice_id)
        return self._store.read(lambda tx: self._notice(tx, number))

    def _notice(self, tx: Tx, number: int) -> Notice:
        row = notice_get(tx, number)
        if row is None:
            raise NotFound("notice", encode("notice", number))
        return notice_record(row)
