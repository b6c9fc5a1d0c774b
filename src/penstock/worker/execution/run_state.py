"""`run.state`: a small mapping that outlives the attempt.

Every change is encoded immediately, so that its size is checked where it is made and another thread
can take the text at any time. The worker writes it with its heartbeats and with the end of an
attempt that did not complete; `save` writes it immediately.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

import msgspec

from penstock.core.errors import InvalidInput
from penstock.core.fields import check_json
from penstock.core.redact import KNOWN_SECRETS
from penstock.runs.action_records import STATE_BYTES_MAX


class SavedState(MutableMapping[str, Any]):
    """The checkpoint of a run: values by name, at most 64 KB as JSON.

    A change inside a value, such as appending to a list, is not detected: assign the value again.
    """

    def __init__(self, text: str | None, save: Callable[[str], None]) -> None:
        self._values: dict[str, Any] = {} if text is None else msgspec.json.decode(text)
        self._save = save
        self._changed: str | None = None
        self.latest: str | None = None
        """The state as JSON, if this execution has changed it."""

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._change({**self._values, name: value})

    def __delitem__(self, name: str) -> None:
        if name not in self._values:
            raise KeyError(name)
        self._change({key: value for key, value in self._values.items() if key != name})

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"SavedState({self._values!r})"

    def save(self, **values: Any) -> None:
        """Set values and store the state now; raise LeaseLost if the run has a new holder."""
        self._change({**self._values, **values})
        text, self._changed = self._changed, None
        assert text is not None
        try:
            self._save(text)
        except BaseException:
            self._changed = text
            raise

    def take_changed(self) -> str | None:
        """Return the state as JSON if it changed since it was last taken or saved."""
        text, self._changed = self._changed, None
        return text

    def receive(self, text: str) -> None:
        """Adopt a state that another process has validated."""
        self._values = msgspec.json.decode(text)
        self._changed = self.latest = text

    def _change(self, values: dict[str, Any]) -> None:
        check_json(values, "state")
        try:
            text = msgspec.json.encode(values)
        except Exception as error:
            raise InvalidInput("state", "plain JSON values", str(error)) from None
        if len(text) > STATE_BYTES_MAX:
            fix = "Store the data elsewhere and keep a reference to it."
            expected = f"at most {STATE_BYTES_MAX:,} bytes as JSON"
            raise InvalidInput("state", expected, f"{len(text):,} bytes", fix)
        shown = text.decode()
        if KNOWN_SECRETS and KNOWN_SECRETS.masked(shown) != shown:
            fix = "Read it with run.secret in every attempt."
            raise InvalidInput("state", "no secret values", "a secret value", fix)
        self._values = values
        self._changed = self.latest = shown
