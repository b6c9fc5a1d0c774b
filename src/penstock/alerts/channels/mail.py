"""Notices as e-mails.

Pure. The message id is the id of the notice, so that a mail server drops a duplicate.
"""

from __future__ import annotations

from collections.abc import Sequence
from email.message import EmailMessage
from email.utils import format_datetime

from penstock.alerts.channels.content import NoticeContent
from penstock.core.clock import to_datetime


def email_of(content: NoticeContent, sender: str, to: Sequence[str]) -> EmailMessage:
    """Return a notice as a plain text e-mail."""
    mark = "RESOLVED" if content.is_over else content.severity
    subject = f"[{mark}] {content.title}" if content.alerts else content.title
    message = EmailMessage()
    message["Subject"] = " ".join(subject.split())[:200]
    message["From"] = sender
    message["To"] = ", ".join(to)
    message["Date"] = format_datetime(to_datetime(content.at))
    message["Message-ID"] = f"<{content.notice_id}@penstock.invalid>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content("\n".join([content.title, "", *content.lines(), ""]))
    return message
