"""HTTP requests of notices, by kind of channel.

Pure. `secret` is the value of the credential that the channel names: the address of a chat service,
or the key of an incident service.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.alerts.channels.content import NoticeContent, public_record
from penstock.bus.push.webhook import parse_secret, sign
from penstock.core.clock import Micros, iso

PAGERDUTY: Final = "https://events.pagerduty.com/v2/enqueue"
OPSGENIE: Final = "https://api.opsgenie.com"
_COLOURS: Final = {
    "INFO": 0x6B7280,
    "MEDIUM": 0xD97706,
    "HIGH": 0xEA580C,
    "CRITICAL": 0xDC2626,
}
_RESOLVED: Final = 0x16A34A
_PAGERDUTY_SEVERITY: Final = {
    "INFO": "info",
    "MEDIUM": "warning",
    "HIGH": "error",
    "CRITICAL": "critical",
}
_PAGERDUTY_ACTION: Final = {
    "acknowledged": "acknowledge",
    "resolved": "resolve",
    "recovered": "resolve",
}
"""A recovery ends nothing: it shows that the service accepts events, and opens no incident."""
_OPSGENIE_PRIORITY: Final = {"INFO": "P5", "MEDIUM": "P3", "HIGH": "P2", "CRITICAL": "P1"}
_OPSGENIE_ACTION: Final = {
    "acknowledged": "acknowledge",
    "resolved": "close",
    "recovered": "close",
}
_MARKDOWN: Final = re.compile(r"([\\`*_~|<>\[\]()#])")
"""What Discord would read as format, mention or link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingRequest:
    """A request that reports a notice."""

    url: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Destination and credentials of a channel."""

    url: str = ""
    token: str = field(default="", repr=False)
    signing_secret: str = field(default="", repr=False)


def webhook_request(content: NoticeContent, given: Credentials, now: Micros) -> OutgoingRequest:
    """Return a signed request of Standard Webhooks; its id is that of the notice."""
    body = _json(public_record(content))
    keys = [parse_secret(given.signing_secret, "signing_secret")]
    headers = sign(keys, content.notice_id, body, now)
    return OutgoingRequest(url=given.url, body=body, headers=headers)


def slack_request(content: NoticeContent, given: Credentials, _: Micros) -> OutgoingRequest:
    """Return a message for an incoming webhook of Slack."""
    text = "\n".join(_slack_escaped(line) for line in content.lines())
    colour = f"#{_colour(content):06x}"
    body = {
        "text": f"*{_slack_escaped(_headline(content))}*"[:3_000],
        "attachments": [{"color": colour, "text": text[:8_000], "mrkdwn_in": []}] if text else [],
    }
    return OutgoingRequest(url=given.url, body=_json(body))


def discord_request(content: NoticeContent, given: Credentials, _: Micros) -> OutgoingRequest:
    """Return a message for a webhook of Discord, without mentions."""
    embed = {
        "title": _discord_escaped(_headline(content), 256),
        "description": _discord_escaped("\n".join(content.lines()), 4_000),
        "color": _colour(content),
    }
    body = {"embeds": [embed], "allowed_mentions": {"parse": []}}
    return OutgoingRequest(url=given.url, body=_json(body))


def teams_request(content: NoticeContent, given: Credentials, _: Micros) -> OutgoingRequest:
    """Return an adaptive card for a workflow of Microsoft Teams."""
    # Text runs: unlike text blocks, they contain no Markdown.
    style = "good" if content.is_over else "attention"
    title = {"text": _headline(content)[:500], "weight": "Bolder", "color": style}
    runs = [title, *({"text": line[:1_000]} for line in content.lines())]
    blocks = [{"type": "RichTextBlock", "inlines": [{"type": "TextRun", **run}]} for run in runs]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": blocks,
    }
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
    body = {"type": "message", "attachments": [attachment]}
    return OutgoingRequest(url=given.url, body=_json(body))


def pagerduty_request(content: NoticeContent, given: Credentials, _: Micros) -> OutgoingRequest:
    """Return an event of PagerDuty's Events API v2; an alert is one incident."""
    one = content.alerts[0] if content.alerts else None
    body: dict[str, Any] = {
        "routing_key": given.token,
        "event_action": _PAGERDUTY_ACTION.get(_change(content), "trigger"),
        "dedup_key": content.notice_id if one is None else one.alert_id,
    }
    if body["event_action"] == "trigger":
        body["payload"] = {
            "summary": _headline(content)[:1_024],
            "source": "penstock",
            "severity": _PAGERDUTY_SEVERITY[content.severity],
            "timestamp": iso(content.at),
            "component": None if one is None else one.pipeline,
            "group": None if one is None else one.customer,
            "class": None if one is None else one.rule,
            "custom_details": public_record(content)["data"],
        }
    return OutgoingRequest(url=given.url or PAGERDUTY, body=_json(body))


def opsgenie_request(content: NoticeContent, given: Credentials, _: Micros) -> OutgoingRequest:
    """Return a request of Opsgenie's Alert API; the alias is the id of the alert."""
    one = content.alerts[0] if content.alerts else None
    alias = content.notice_id if one is None else one.alert_id
    base = (given.url or OPSGENIE).rstrip("/") + "/v2/alerts"
    headers = {"Authorization": f"GenieKey {given.token}"}
    action = _OPSGENIE_ACTION.get(_change(content))
    if action is not None:
        note = {"source": "penstock", "note": "\n".join(content.lines())[:25_000]}
        url = f"{base}/{alias}/{action}?identifierType=alias"
        return OutgoingRequest(url=url, body=_json(note), headers=headers)
    body = {
        "message": _headline(content)[:130],
        "alias": alias,
        "description": "\n".join([content.title, *content.lines()])[:15_000],
        "priority": _OPSGENIE_PRIORITY[content.severity],
        "source": "penstock",
        "entity": None if one is None else one.pipeline,
        "tags": [] if one is None else [one.rule, one.severity],
    }
    return OutgoingRequest(url=base, body=_json(body), headers=headers)


Format = Callable[[NoticeContent, Credentials, Micros], OutgoingRequest]
FORMATS: Final[Mapping[str, Format]] = {
    "webhook": webhook_request,
    "slack": slack_request,
    "discord": discord_request,
    "teams": teams_request,
    "pagerduty": pagerduty_request,
    "opsgenie": opsgenie_request,
}
"""The format of each kind of channel that is an HTTP request."""


def _headline(content: NoticeContent) -> str:
    mark = "RESOLVED" if content.is_over else content.severity
    return f"[{mark}] {content.title}" if content.alerts else content.title


def _colour(content: NoticeContent) -> int:
    return _RESOLVED if content.is_over else _COLOURS[content.severity]


def _change(content: NoticeContent) -> str:
    """Return the change that an incident follows: a resolved alert opens none."""
    return "resolved" if content.is_over else content.change


def _discord_escaped(text: str, most: int) -> str:
    """Escape Markdown, and cut the result outside an escape."""
    found = ""
    for part in _MARKDOWN.split(text):
        shown = f"\\{part}" if _MARKDOWN.fullmatch(part) else part
        if len(found) + len(shown) > most:
            return found + ("" if shown.startswith("\\") else shown[: most - len(found)])
        found += shown
    return found


def _slack_escaped(text: str) -> str:
    """Escape what Slack would read as a mention or a link."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
