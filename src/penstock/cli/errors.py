"""Report errors on the command line: one line with a fix, or JSON; a traceback with --debug."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
import traceback
from collections.abc import Mapping
from typing import Any

import click

from penstock.assembly.settings import KEY_VARIABLE
from penstock.core.errors import (
    ApiUnavailable,
    IllegalTransition,
    NotFound,
    PenstockError,
    StoreBusy,
    Unauthorised,
)

INTERRUPTED = 130
USAGE = 2
_FIXES = {
    "topic": "Create it with `penstock topics create`, or see `penstock topics list`.",
    "subscription": "See `penstock subscriptions list`.",
    "snapshot": "See `penstock snapshots list`.",
    "schema": "See `penstock schemas list`.",
    "message": "Messages are deleted when their topic's retention ends.",
    "limit": "See `penstock limits list`.",
    "lease": "It has ended or never existed; `penstock limits show LIMIT` lists current leases.",
    "run": "See `penstock runs list`.",
    "flow": "See `penstock flows list`.",
    "config": "See `penstock configs list`.",
    "dead letter": "See `penstock dlq list --status all`.",
    "trace": "Pass the id of a cause, flow, run, message or dead letter; see `penstock find`.",
}
"""Suggested fix for NotFound, by kind of resource."""
_WRITABLE = "Change to a folder that this user can write to, or set TMPDIR to one."
_SYSTEM_FIXES = {
    errno.EACCES: _WRITABLE,
    errno.EPERM: _WRITABLE,
    errno.EROFS: _WRITABLE,
    errno.ENOSPC: "Free up space on that disk, or set TMPDIR to a folder on another one.",
    errno.EDQUOT: "Free up space on that disk, or set TMPDIR to a folder on another one.",
    errno.EMFILE: "Raise the limit on open files: ulimit -n 4096.",
}
"""Suggested fix for an error of the operating system, by its number."""

_NAME_AND_OPTION = re.compile(r"\b([a-z]+) \(--\1\)")
"""A parameter in a message for all interfaces, with its option: `force (--force)`."""
_NOT_A_NUMBER: Mapping[str, str] = {
    "is not a valid integer range": "is not an integer",
    "is not a valid float range": "is not a number",
}
"""What click says about a value that is no number, where the option has bounds → plain words."""


def report(error: Exception, *, is_json: bool, is_debug: bool) -> int:
    """Print the error on standard error and return the exit code."""
    if isinstance(error, BrokenPipeError):
        # The reader (head, less) closed the pipe. Without this Python reports it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    if is_debug:
        traceback.print_exception(error, file=sys.stderr)
    if isinstance(error, click.exceptions.NoArgsIsHelpError) and not is_json:
        click.echo(error.format_message(), err=True)  # no command given: the message is the help
        return USAGE
    code, record, text = _described(error)
    if is_json:
        click.echo(json.dumps(record), err=True)
    else:
        click.echo(f"{click.style('Error:', fg='red', bold=True)} {text}", err=True)
    return code


def _described(error: Exception) -> tuple[int, dict[str, Any], str]:
    if isinstance(error, PenstockError):
        record = {**error.detail, "code": error.code, "message": error.message}
        fix = _fix(error)
        text = _text(error)
        if not fix:
            return error.exit_code, record, text
        return error.exit_code, {**record, "fix": fix}, f"{text} {fix}"
    if isinstance(error, click.UsageError):
        return _usage(error)
    if isinstance(error, click.ClickException):
        message = error.format_message()
        return error.exit_code, {"code": "command", "message": message}, message
    if isinstance(error, OSError) and error.errno in _SYSTEM_FIXES:
        fix = _SYSTEM_FIXES[error.errno]
        message = f"{error.filename or 'the system'}: {os.strerror(error.errno)}."
        return 1, {"code": "system", "message": message, "fix": fix}, f"{message} {fix}"
    message = f"{type(error).__name__}: {error}"
    fix = (
        "This is a bug in Penstock or a problem with its environment; --debug prints the traceback."
    )
    return 1, {"code": "internal", "message": message, "fix": fix}, f"{message}\n{fix}"


def _text(error: PenstockError) -> str:
    """Return the message for a person at a terminal, who sets variables and options."""
    if isinstance(error, Unauthorised):
        return "The API requires a valid API key."  # the server's message names an HTTP header
    text = str(getattr(error, "text", error.message))
    return _NAME_AND_OPTION.sub(r"--\1", text)


def _fix(error: PenstockError) -> str:
    """Return what to do next; empty if there is nothing to add to the error's own message."""
    if isinstance(error, NotFound):
        return "" if error.detail.get("fix") else _FIXES.get(error.kind, "")
    if isinstance(error, Unauthorised):
        made = "`penstock keys create NAME` creates one in the API's database."
        return f"Set {KEY_VARIABLE} to one; {made}"
    if isinstance(error, StoreBusy):
        return "If it persists, check whether a backup, a shell or another program holds a lock."
    if isinstance(error, ApiUnavailable) and error.message.startswith("cannot reach"):
        return "Check that `penstock up` or `penstock api` is running, and --url or PENSTOCK_URL."
    if not isinstance(error, IllegalTransition) or error.kind != "run":
        return ""
    if error.to_state.startswith("PENDING"):
        return f"It has not ended: cancel it first (penstock runs cancel {error.subject})."
    if error.to_state == "CANCELLED":
        return "It is already cancelled." if error.from_state == "CANCELLED" else "It has ended."
    return ""


def _usage(error: click.UsageError) -> tuple[int, dict[str, Any], str]:
    is_bare = isinstance(error, click.exceptions.NoArgsIsHelpError)
    message = "Missing command." if is_bare else _sentence(error.format_message())
    path = error.ctx.command_path if error.ctx else "penstock"
    record: dict[str, Any] = {"code": "usage", "message": message}
    if isinstance(error, click.BadParameter) and error.param is not None:
        record["field"] = error.param.name
    elif isinstance(error, click.NoSuchOption):
        record["field"] = error.option_name
    fix = f"See `{path} --help`."
    return USAGE, {**record, "fix": fix}, f"{message} {fix}"


def _sentence(message: str) -> str:
    """Return a message of click as one line in plain words, with a full stop for the fix."""
    message = re.sub(r"\s*\n\s*", " ", message)
    for theirs, plain in _NOT_A_NUMBER.items():
        message = message.replace(theirs, plain)
    return message if message.endswith((".", "?", "!")) else f"{message}."
