"""A parser of the table, and what several of them need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal

from penstock.core.clock import SECOND
from penstock.core.errors import InvalidInput

NOW: Final = 1_763_337_600 * SECOND
KEY: Final = b"k" * 32
REFUSES: Final = (InvalidInput,)

Kind = Literal["text", "argument", "bytes", "value"]
"""An argument is text of the command line, in which bytes that are not UTF-8 are surrogates."""


@dataclass(frozen=True, slots=True)
class Parser:
    """A parser, the kind of its input, valid examples and the errors that it declares."""

    call: Callable[[Any], object]
    kind: Kind
    examples: tuple[Any, ...]
    errors: tuple[type[Exception], ...] = REFUSES


def mapping(parse: Callable[[Mapping[str, Any]], object]) -> Callable[[Any], object]:
    """Give only tables to a parser that is declared for tables."""
    return lambda value: parse(value) if isinstance(value, Mapping) else None


def texts(parse: Callable[[dict[str, str]], object]) -> Callable[[Any], object]:
    """Give a table of texts, such as the headers of a request."""
    return mapping(lambda value: parse({str(name): str(one) for name, one in value.items()}))


def as_file(content: str | bytes, suffix: str) -> Path:
    """Write content to the one file of this process, and return its path."""
    path = Path(_folder().name, f"given{suffix}")
    raw = content if isinstance(content, bytes) else content.encode("utf-8", "surrogateescape")
    path.write_bytes(raw)
    return path


@cache
def _folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="penstock-parsers-")
