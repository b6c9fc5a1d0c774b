"""Standard output and error of commands, with deceptive characters escaped."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from typing import Any, Final, TextIO, cast

_UNSAFE: Final = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class TerminalStream:
    """A text stream that escapes characters that no command prints intentionally.

    DEL, C1 controls and marks that reorder text are escaped, wherever they come from. Characters
    become JSON escapes, so that JSON stays valid. Colours are kept, because commands use them.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text; return its length."""
        self._stream.write(_UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def terminal_streams() -> Iterator[None]:
    """Filter standard output and error while the block runs."""
    before = sys.stdout, sys.stderr
    sys.stdout = cast(TextIO, TerminalStream(before[0]))
    sys.stderr = cast(TextIO, TerminalStream(before[1]))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
