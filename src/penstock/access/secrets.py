"""Secrets of a worker: the values for parameters of the form `{"$secret": "name"}`.

In order: the customer's own file `<folder>/customers/<customer id>/<name>`, the worker's
environment, the file `<folder>/<name>`. The last two are shared: any customer's run may request
them. Every returned value is registered, so that errors, results and logs of this process are
masked. Values are never stored, and are passed only to child processes of the worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from penstock.core.errors import InvalidInput, PermanentError
from penstock.core.redact import KNOWN_SECRETS, REFERENCE_NAME, check_reference, is_reference
from penstock.core.retry import ErrorType

BYTES_MAX: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Secrets:
    """The secrets available to one worker; `environment` maps names to values."""

    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    folder: str | None = None

    def get(self, name: str, customer_id: str) -> str:
        """Return a secret's value; raise PermanentError (INVALID_CONFIGURATION) if missing."""
        if not REFERENCE_NAME.fullmatch(name):
            raise _unknown(f"{name!r:.80} is not a valid secret name")
        value = self._find(name, customer_id)
        KNOWN_SECRETS.add(value)
        return value

    def resolve(self, value: Any, customer_id: str, path: str = "parameters") -> Any:
        """Return a copy of a plain value with every secret reference replaced by its value."""
        if is_reference(value):
            try:
                return self.get(check_reference(value, path), customer_id)
            except InvalidInput as error:
                raise _unknown(error.message) from None
        if isinstance(value, Mapping):
            return {
                name: self.resolve(part, customer_id, f"{path}.{name}")
                for name, part in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.resolve(part, customer_id, path) for part in value]
        return value

    def _find(self, name: str, customer_id: str) -> str:
        if self.folder is not None:
            # Customer ids are validated on input: they cannot contain a slash.
            own = _read(Path(self.folder) / "customers" / customer_id / name, name)
            if own is not None:
                return own
        if name in self.environment:
            return self.environment[name]
        shared = None if self.folder is None else _read(Path(self.folder) / name, name)
        if shared is None:
            raise _unknown(
                f'secret "{name}" not found: set PENSTOCK_SECRET_{name.upper()} for the worker or '
                "pusher that needs it, or put a file of that name in secrets_dir"
            )
        return shared


def _read(path: Path, name: str) -> str | None:
    """Read a secret's file without its last line break; return None if there is no file."""
    try:
        if not path.is_file():
            return None
        if path.stat().st_size > BYTES_MAX:
            raise _unknown(f'the file for secret "{name}" has more than {BYTES_MAX:,} bytes')
        return path.read_text("utf-8").removesuffix("\n")
    except (OSError, ValueError) as error:
        raise _unknown(f'secret "{name}" cannot be read: {type(error).__name__}') from None


def _unknown(message: str) -> PermanentError:
    return PermanentError(message, error_type=ErrorType.INVALID_CONFIGURATION.value)
