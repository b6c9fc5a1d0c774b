"""Errors at the edge: one clear line and what to do, or JSON; a traceback only when asked for."""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any

import click

from penstock.core.errors import (
    ApiUnavailable,
    IllegalTransition,
    NotFound,
    PenstockError,
    StoreBusy,
)

INTERRUPTED = 130
USAGE = 2
LOOK = {
    "topic": "Make it with `penstock topics create`; `penstock topics list` shows those there are.",
    "subscription": "See `penstock subscriptions list`.",
    "message": "Messages are forgotten when their topic's retention ends.",
    "limit": "See `penstock limits list`.",
    "lease": "It has ended, or never was; `penstock limits show LIMIT` lists those that are held.",
    "run": "See `penstock runs list`.",
    "flow": "See `penstock flows list`.",
    "config": "See `penstock configs list`.",
    "dead letter": "See `penstock dlq list --status all`.",
    "trace": "It takes a correlation id, a flow or a run; `penstock flows list` has flows.",
}
"""Where to look when there is no such thing."""


def report(error: Exception, *, is_json: bool, is_debug: bool) -> int:
    """Tell the user what went wrong on standard error; returns the exit code."""
    if isinstance(error, BrokenPipeError):
        # The reader (head, less) has seen enough. Python would complain again at exit otherwise.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    if is_debug:
        traceback.print_exception(error, file=sys.stderr)
    if isinstance(error, click.exceptions.NoArgsIsHelpError) and not is_json:
        click.echo(error.format_message(), err=True)  # nothing was asked: help is the answer
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
        fix = _way_out(error)
        if not fix:
            return error.exit_code, record, error.message
        return error.exit_code, {**record, "fix": fix}, f"{error.message} {fix}"
    if isinstance(error, click.UsageError):
        return _usage(error)
    if isinstance(error, click.ClickException):
        message = error.format_message()
        return error.exit_code, {"code": "command", "message": message}, message
    message = f"{type(error).__name__}: {error}"
    fix = "This is a fault of Penstock or of its surroundings; --debug shows where it happened."
    return 1, {"code": "internal", "message": message, "fix": fix}, f"{message}\n{fix}"


def _way_out(error: PenstockError) -> str:
    """What to do next, where the error itself does not say it."""
    if isinstance(error, NotFound):
        return LOOK.get(error.kind, "")
    if isinstance(error, StoreBusy):
        return "If that does not help: does a backup, a shell or another program hold a lock on it?"
    if isinstance(error, ApiUnavailable) and error.message.startswith("cannot reach"):
        return "Does `penstock up` or `penstock api` run there? Check --url and PENSTOCK_URL."
    if not isinstance(error, IllegalTransition) or error.kind != "run":
        return ""
    if error.to_state.startswith("PENDING"):
        return f"It has not ended: cancel it first (penstock runs cancel {error.subject})."
    if error.to_state == "CANCELLED":
        return "It is already cancelled." if error.from_state == "CANCELLED" else "It has ended."
    return ""


def _usage(error: click.UsageError) -> tuple[int, dict[str, Any], str]:
    is_bare = isinstance(error, click.exceptions.NoArgsIsHelpError)
    message = "A command is missing." if is_bare else error.format_message()
    path = error.ctx.command_path if error.ctx else "penstock"
    record: dict[str, Any] = {"code": "usage", "message": message}
    if isinstance(error, click.BadParameter) and error.param is not None:
        record["field"] = error.param.name
    elif isinstance(error, click.NoSuchOption):
        record["field"] = error.option_name
    fix = f"See `{path} --help`."
    return USAGE, {**record, "fix": fix}, f"{message} {fix}"
