"""`--reload`: restart the process when a user's module changes, for development.

The modules that belong to the user are those loaded from the working directory, and the files named
by `--pipelines`. The process stops as on a signal, so that active runs end, and replaces itself.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from penstock.core.clock import HANDLER_SECONDS


class SourceWatch:
    """The files of the user's modules, and when each was last changed."""

    def __init__(self, named: Iterable[str], folder: Path | None = None) -> None:
        self._files = {path.resolve() for name in named if (path := Path(name)).is_file()}
        self._files |= set(_loaded_from((folder or Path.cwd()).resolve()))
        self._changed_at = {path: _changed_at(path) for path in self._files}

    def changed(self, report: Callable[[str], None]) -> bool:
        """Return whether a file has changed; one that does not compile is reported and does not
        count.
        """
        changed = [path for path in self._files if _changed_at(path) != self._changed_at[path]]
        for path in changed:
            self._changed_at[path] = _changed_at(path)
        faults = [fault for path in changed if (fault := _fault(path))]
        for fault in faults:
            report(f"Not reloaded: {fault}")
        return bool(changed) and not faults

    def wait(self, stopping: threading.Event, report: Callable[[str], None]) -> bool:
        """Wait for a signal or a change; return True for a change."""
        while not stopping.wait(HANDLER_SECONDS):
            if self.changed(report):
                return True
        return False


def _loaded_from(folder: Path) -> Iterable[Path]:
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        path = Path(file).resolve() if file else None
        if path is not None and folder in path.parents and "site-packages" not in path.parts:
            yield path


def _changed_at(path: Path) -> int:
    """Return the time of the last change; 0 while an editor replaces the file."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _fault(path: Path) -> str:
    """Return why a file cannot be loaded; empty if it compiles."""
    try:
        compile(path.read_bytes(), str(path), "exec")
    except SyntaxError as error:
        return f"{path.name}:{error.lineno}: {error.msg}"
    except (OSError, ValueError) as error:
        return f"{path.name}: {error}"
    return ""
