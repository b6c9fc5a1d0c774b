"""The `:name` parameters in a user's query, outside of strings and comments.

Declarations check them and probes bind them; both must read the text in the same way.
"""

from __future__ import annotations

import re
from typing import Final

QUERY_TOKEN: Final = re.compile(
    r"""
      (?P<kept> [eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' | "(?:[^"]|"")*"
              | --[^\n]* | /\*.*?\*/
              | (?P<dollar>\$(?:[A-Za-z_]\w*)?\$) .*? (?P=dollar)
              | ::
      )
    | (?<![\w\])]) : (?P<name>[A-Za-z_]\w*)
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
"""Matches a parameter (`name`) or a part of the text that is kept unchanged (`kept`)."""


def query_parameters(sql: str) -> set[str]:
    """Return the names of the parameters that a query uses."""
    return {token["name"] for token in QUERY_TOKEN.finditer(sql) if token["name"] is not None}
