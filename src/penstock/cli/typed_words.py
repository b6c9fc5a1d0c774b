"""Errors that name options instead of API fields: `--every`, not `schedule_interval_minutes`.

JSON errors keep the field names of the API, which programs use; only the text is translated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import click

from penstock.core.errors import InvalidInput, SettingsError

SYNONYMS: Final[Mapping[str, str]] = {
    "config": "config_id",
    "customer_id": "customer",
    "phases": "phase",
    "pipeline_template": "pipeline",
    "retry_config": "retry",
    "subscription_name": "subscription",
}
"""API fields whose option on the command line has a different name."""
VERBATIM: Final = frozenset({"columns"})
"""Options whose values are fields of the API, which errors about them list."""
NAMED: Final = frozenset({"limit", "pipeline", "subscription", "topic"})
"""Resources that commands take as NAME."""


def typed_words(params: Sequence[click.Parameter]) -> dict[str, str]:
    """Return the command-line name of each field: the option, or the argument in capitals."""
    words = {str(one.name): _word(one) for one in params}
    words |= {api: words[own] for api, own in SYNONYMS.items() if own in words}
    if "name" in words:
        words |= {kind: words["name"] for kind in NAMED if kind not in words}
    return words


def in_typed_words(error: InvalidInput, params: Sequence[click.Parameter]) -> str:
    """Return the message of an error with the command-line names of its fields."""
    words = typed_words(params)
    head, dot, rest = error.field.partition(".")
    text = error.message
    if isinstance(error, SettingsError) and head not in words:
        return text  # a setting from a file or the environment: its fix refers to that source
    if head in words and text.startswith(error.field):
        text = f"{words[head]}{' ' if dot else ''}{rest}{text.removeprefix(error.field)}"
    if head in VERBATIM:
        return text
    # Single words such as `limit` are also plain English; names of the API have an underscore.
    for name, word in words.items():
        if "_" in name:
            pattern = rf"(?<![\w-]){re.escape(name)}(?![\w-])(?: =(?= ))?"
            text = re.sub(pattern, word.replace("\\", r"\\"), text)
    return text


def _word(param: click.Parameter) -> str:
    if isinstance(param, click.Argument):
        return param.make_metavar(click.Context(click.Command("x"))).strip("[].")
    return next((one for one in param.opts if one.startswith("--")), param.opts[0])
