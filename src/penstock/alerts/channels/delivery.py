"""Sending a notice: over HTTP under the egress rules, by SMTP, or through apprise.

A mail server and the addresses of apprise are named by the operator in the settings, like the
database: they are trusted, and apprise's requests are not bound by the egress rules (see
docs/decisions/0026-alert-channels.md). Error texts quote nothing that a server sent except the code
of an SMTP reply, and no address that is a secret.
"""

from __future__ import annotations

import importlib
import smtplib
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from email.message import EmailMessage
from typing import Any, Final, Protocol

from penstock.access.secrets import Secrets
from penstock.alerts.channels.content import NoticeContent, content_of
from penstock.alerts.channels.formats import FORMATS, Credentials
from penstock.alerts.channels.mail import email_of
from penstock.alerts.declared import PER_ALERT, ChannelSpec
from penstock.alerts.rows import LeasedNotice
from penstock.core.errors import InvalidInput, PenstockError, SettingsError
from penstock.core.redact import redact_text
from penstock.egress.http_client import HttpClient, HttpResponse, Request, RequestFailed
from penstock.exports import DISTRIBUTION

TIMEOUT_SECONDS: Final = 15.0
ONE_NOTICE: Final = frozenset({400, 413, 414, 422})
"""HTTP statuses that reject this notice, not the channel."""
MAIL_TRIES: Final = 3
"""Attempts of a mail that its server accepts for some recipients only."""
LEFT_MAX: Final = 1_000
SYSTEM: Final = ""
"""Channels belong to the installation: their secrets are not those of a customer."""


class NoticeRefused(PenstockError):
    """A channel did not accept a notice; with `is_of_notice`, it might accept another one."""

    code = "alerts.refused"

    def __init__(
        self, message: str, *, is_of_notice: bool = False, after_s: float | None = None
    ) -> None:
        self.is_of_notice = is_of_notice
        self.after_s = after_s
        super().__init__(message)


class Deliver(Protocol):
    """Sends a notice through a channel; raises NoticeRefused if it was not accepted."""

    def __call__(self, spec: ChannelSpec, notice: LeasedNotice) -> None:
        """Send the notice."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliveries:
    """Sends notices; `tls` is the context for mail servers."""

    egress: HttpClient
    secrets: Secrets
    tls: Callable[[], ssl.SSLContext] = ssl.create_default_context
    left: dict[tuple[str, int], tuple[str, ...]] = field(default_factory=dict)
    """Recipients that a mail server refused while it accepted others, by channel and notice."""

    def __call__(self, spec: ChannelSpec, notice: LeasedNotice) -> None:
        """Send a notice; raise NoticeRefused if it was not accepted.

        A notice about several alerts, from when the channel had another kind or was moved by an
        older process, is one event for each where the receiver keeps incidents; a repeated event
        has no effect there.
        """
        try:
            if spec.kind == "email":
                self._mail(spec, notice)
            elif spec.kind == "apprise":
                self._apprise(spec, content_of(notice))
            elif spec.kind in PER_ALERT and notice.items:
                for item in notice.items:
                    self._post(spec, content_of(notice._replace(items=(item,))), notice)
            else:
                self._post(spec, content_of(notice), notice)
        except NoticeRefused:
            raise
        except PenstockError as error:
            raise NoticeRefused(error.message) from None

    def _post(self, spec: ChannelSpec, content: NoticeContent, notice: LeasedNotice) -> None:
        given = Credentials(
            url=self._value(spec.url_secret) or spec.url or "",
            token=self._value(spec.token_secret),
            signing_secret=self._value(spec.signing_secret),
        )
        made = FORMATS[spec.kind](content, given, notice.now)
        request = Request(
            url=made.url,
            headers={"Content-Type": "application/json", "User-Agent": "penstock", **made.headers},
            body=made.body,
            timeout_s=TIMEOUT_SECONDS,
        )
        try:
            reply = self.egress.send(request)
        except RequestFailed as error:
            raise NoticeRefused(f"{spec.kind}: {error.kind}") from None
        except InvalidInput as error:
            # The address may be a secret: the error describes the problem and omits the address.
            raise NoticeRefused(f"{spec.kind}: its address must be {error.expected}") from None
        if not 200 <= reply.status < 300:
            raise NoticeRefused(
                f"{spec.kind}: HTTP {reply.status}",
                is_of_notice=reply.status in ONE_NOTICE,
                after_s=_retry_after(reply),
            )

    def _mail(self, spec: ChannelSpec, notice: LeasedNotice) -> None:
        """Send a mail; a repetition goes only to the recipients that were refused before.

        After MAIL_TRIES the notice counts as sent and keeps the error, so that a wrong address
        does not delay the others.
        """
        assert spec.host is not None
        assert spec.sender is not None
        key = notice.channel, notice.notice_id
        to = self.left.get(key, tuple(spec.to))
        refused = self._refused(spec, email_of(content_of(notice), spec.sender, spec.to), to)
        self.left.pop(key, None)
        if not refused:
            return
        codes = sorted({code for code, _ in refused.values()})
        if len(refused) == len(set(spec.to)):
            raise NoticeRefused(f"email: recipients refused {codes}")
        if notice.attempts >= MAIL_TRIES and notice.kind != "test":
            return
        if len(self.left) >= LEFT_MAX:
            self.left.clear()  # their notices go to every recipient again
        self.left[key] = tuple(refused)
        names = redact_text(", ".join(sorted(refused)))
        raise NoticeRefused(f"email: refused {codes} for {names} only", is_of_notice=True)

    def _refused(
        self, spec: ChannelSpec, message: EmailMessage, to: Sequence[str]
    ) -> dict[str, tuple[int, bytes]]:
        """Send a mail; return the recipients that the server refused, with its replies."""
        ports = {"tls": 465, "starttls": 587, "none": 25}
        port = spec.port or ports[spec.tls]
        password = self._value(spec.password_secret)
        try:
            with self._connection(spec, port) as server:
                if spec.tls == "starttls":
                    server.starttls(context=self.tls())
                if spec.user:
                    server.login(spec.user, password)
                return server.send_message(message, to_addrs=list(to))
        except smtplib.SMTPRecipientsRefused as error:
            return error.recipients
        except smtplib.SMTPResponseException as error:
            raise NoticeRefused(f"email: {type(error).__name__} {error.smtp_code}") from None
        except (OSError, smtplib.SMTPException) as error:
            raise NoticeRefused(f"email: {type(error).__name__}") from None

    def _connection(self, spec: ChannelSpec, port: int) -> smtplib.SMTP:
        assert spec.host is not None
        if spec.tls == "tls":
            context = self.tls()
            return smtplib.SMTP_SSL(spec.host, port, timeout=TIMEOUT_SECONDS, context=context)
        return smtplib.SMTP(spec.host, port, timeout=TIMEOUT_SECONDS)

    def _apprise(self, spec: ChannelSpec, content: NoticeContent) -> None:
        library = require_apprise(spec.kind)
        sender = library.Apprise()
        if not sender.add(self._value(spec.url_secret)):
            raise NoticeRefused("apprise: the secret is not an address that it supports")
        kind = "success" if content.change == "resolved" else "warning"
        body = "\n".join(content.lines()) or content.title
        if not sender.notify(title=content.title, body=body, notify_type=kind):
            raise NoticeRefused("apprise: not accepted")

    def _value(self, name: str | None) -> str:
        return "" if name is None else self.secrets.get(name, SYSTEM)


def target_of(spec: ChannelSpec) -> str:
    """Return where a channel sends to, without secrets."""
    if spec.kind == "email":
        return redact_text(", ".join(spec.to))
    if spec.url is not None:
        return redact_text(spec.url)
    secret = spec.url_secret or spec.token_secret
    return f"{spec.kind} (secret {secret})"


def require_apprise(field: str) -> Any:
    """Import the library of the extra; raise SettingsError that names it if it is missing."""
    try:
        return importlib.import_module("apprise")  # an extra
    except ImportError:
        fix = f"Install it: pip install '{DISTRIBUTION}[alerts]'"
        raise SettingsError(field, "the package apprise", "not installed", fix) from None


def _retry_after(reply: HttpResponse) -> float | None:
    given = reply.headers.get("retry-after", "")
    return float(given) if given.isdecimal() and len(given) <= 6 else None
