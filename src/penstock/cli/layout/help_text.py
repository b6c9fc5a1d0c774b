"""Wrap the text of helps without breaking options, ids and examples.

click wraps at hyphens too, which turns `--dry-run` into two words that cannot be copied.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import click

# Characters for private use, which are not in any help, stand for those that must not break.
_HYPHEN: Final = "\ue000"
_SPACE: Final = "\ue001"
_EXAMPLE: Final = re.compile(r"`(?:[^`\n]|\n[ ]*(?=\S))+`")
EXAMPLE_MAX: Final = 70
"""Length from which an example may be broken: the indented lines of a help have 76 characters."""


class HelpFormatter(click.HelpFormatter):
    """A formatter that keeps words with hyphens, and short examples in backticks, on one line."""

    def write(self, string: str) -> None:
        """Write formatted text."""
        super().write(string.replace(_HYPHEN, "-").replace(_SPACE, " "))

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """Write the usage."""
        super().write_usage(prog, _unbreakable(args), prefix)

    def write_text(self, text: str) -> None:
        """Write paragraphs."""
        super().write_text(_unbreakable(text))

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        """Write names with their descriptions."""
        kept = [(name, _unbreakable(text)) for name, text in rows]
        super().write_dl(kept, col_max, col_spacing)


class HelpContext(click.Context):
    """The context of a command, which formats its help."""

    formatter_class = HelpFormatter


def _unbreakable(text: str) -> str:
    return _EXAMPLE.sub(_on_one_line, text).replace("-", _HYPHEN)


def _on_one_line(found: re.Match[str]) -> str:
    joined = _SPACE.join(found[0].split())
    return joined if len(joined) <= EXAMPLE_MAX else found[0]
