"""Names of processors, which events identify by key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from penstock.core.errors import StoreError


class ProcessorPath(NamedTuple):
    """Names of a processor."""

    pipeline: str
    phase: str
    processor: str


NameOf: TypeAlias = Callable[[int], ProcessorPath]


def unknown_name(key: int) -> ProcessorPath:
    """Return a name for a processor that cannot be looked up."""
    return ProcessorPath("unknown", "unknown", f"processor {key}")


class ProcessorNames:
    """Looks up names by key; an unknown key reads the registered processors again."""

    def __init__(self, read: Callable[[], Mapping[int, tuple[str, str, str]]]) -> None:
        """`read` returns the pipeline, phase and name of all processors by key."""
        self._read = read
        self._names: dict[int, ProcessorPath] = {}

    def __call__(self, key: int) -> ProcessorPath:
        """Return the names of a processor; a placeholder while the database is unavailable."""
        if key not in self._names:
            try:
                self._names = {n: ProcessorPath(*path) for n, path in self._read().items()}
            except StoreError:
                return unknown_name(key)
        return self._names.get(key) or unknown_name(key)
