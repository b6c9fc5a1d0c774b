"""The port of a run: its methods that need the worker, such as checks and reads in the store.

A port is created when a processor first performs an action, so that other runs have no overhead. It
lives in the worker; a child process reaches it over the pipe (`ChildPort`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, Protocol

from penstock.access.store.names import NameResolver
from penstock.core.errors import InvalidInput, LeaseLost, StaleToken
from penstock.db.store import StoreView, Transactions, Tx
from penstock.runs.action_records import (
    ARTIFACTS_MAX,
    NewArtifact,
    RunActions,
    RunMessage,
    RunTrigger,
    SubFlow,
    UpstreamResult,
)
from penstock.runs.client.actions import (
    CheckedAction,
    OwnedActions,
    artifact_row,
    check_actions,
    check_bounds,
    owner_of,
    perform_many,
)
from penstock.runs.hooks import find_sub_flow, publish_messages, upstream_of
from penstock.runs.rows import HeldRun
from penstock.runs.store.actions import (
    StateRow,
    artifact_put_many,
    state_get,
    state_put_ended,
    state_put_held,
)
from penstock.runs.store.held import run_token_lock

LEASE_LOST = "the worker lost its session; the run will be started elsewhere"


class RunPort(Protocol):
    """The methods of a run that need its worker."""

    def act(self, actions: RunActions) -> None:
        """Check actions, and keep them until the run completes."""
        ...

    def publish_now(self, message: RunMessage) -> str:
        """Publish a message immediately; return its id."""
        ...

    def keep_artifact(self, artifact: NewArtifact) -> None:
        """Keep an artifact until the run ends."""
        ...

    def wait_for(self, wanted: RunTrigger) -> SubFlow | None:
        """Return how a flow ended; None if the run must be suspended until then."""
        ...

    def upstream(self) -> list[UpstreamResult]:
        """Return the reports of the processors in earlier phases."""
        ...

    def load_state(self) -> str | None:
        """Return the checkpoint as JSON; None if there is none."""
        ...

    def save_state(self, text: str) -> None:
        """Store the checkpoint immediately."""
        ...


class ChildPort:
    """The port of a run in a child process: every call goes to the port in the worker."""

    def __init__(self, ask: Callable[..., Any]) -> None:
        """`ask` calls a method by name and returns its result or raises its error."""
        self._ask = ask
        # One thread at a time, because replies are not numbered.
        self._asking = threading.Lock()

    def act(self, actions: RunActions) -> None:
        """Check actions, and keep them until the run completes."""
        self._call("act", actions)

    def publish_now(self, message: RunMessage) -> str:
        """Publish a message immediately; return its id."""
        return str(self._call("publish_now", message))

    def keep_artifact(self, artifact: NewArtifact) -> None:
        """Keep an artifact until the run ends."""
        self._call("keep_artifact", artifact)

    def wait_for(self, wanted: RunTrigger) -> SubFlow | None:
        """Return how a flow ended; None if the run must be suspended until then."""
        found: SubFlow | None = self._call("wait_for", wanted)
        return found

    def upstream(self) -> list[UpstreamResult]:
        """Return the reports of the processors in earlier phases."""
        found: list[UpstreamResult] = self._call("upstream")
        return found

    def load_state(self) -> str | None:
        """Return the checkpoint as JSON; None if there is none."""
        found: str | None = self._call("load_state")
        return found

    def save_state(self, text: str) -> None:
        """Store the checkpoint immediately."""
        self._call("save_state", text)

    def _call(self, method: str, *arguments: object) -> Any:
        with self._asking:
            return self._ask(method, *arguments)


class RunReport(NamedTuple):
    """Data stored with the end of a run in addition to its result."""

    held: HeldRun
    actions: tuple[CheckedAction, ...] = ()
    artifacts: tuple[NewArtifact, ...] = ()
    wait: tuple[str, RunTrigger] | None = None
    """Wait that suspends the run; None if it ends."""
    state: str | None = None
    """Changed checkpoint as JSON; None if nothing changed."""


class StorePort:
    """The port of one run in the worker that holds it."""

    def __init__(self, store: StoreView, names: NameResolver, held: HeldRun, phase: str) -> None:
        self._store = store
        self._names = names
        self._held = held
        self._phase = phase
        self._owner = owner_of(held)
        self.actions: list[CheckedAction] = []
        self.artifacts: dict[str, NewArtifact] = {}
        self.wait: tuple[str, RunTrigger] | None = None
        """Key and flow of the wait that suspends the run."""
        self._waits: dict[str, int] = {}

    def act(self, actions: RunActions) -> None:
        """Check actions, and keep them until the run completes."""
        checked = self._store.read(lambda tx: check_actions(tx, self._names, self._owner, actions))
        check_bounds([*self.actions, *checked])
        self.actions += checked

    def publish_now(self, message: RunMessage) -> str:
        """Publish a message immediately; raise LeaseLost once the run has another holder."""
        held = self._held

        def body(tx: Tx) -> int:
            run_token_lock(tx, held.run_id, held.token)
            (checked,) = check_actions(tx, self._names, self._owner, RunActions(publish=[message]))
            assert isinstance(checked.work, RunMessage)
            return publish_messages(tx, [(held.customer_key, checked.work)])[0]

        try:
            return str(self._store.write(body))
        except StaleToken:
            raise LeaseLost(LEASE_LOST) from None

    def keep_artifact(self, artifact: NewArtifact) -> None:
        """Keep an artifact until the run ends; a second one of the same name replaces it."""
        if len(self.artifacts) >= ARTIFACTS_MAX and artifact.name not in self.artifacts:
            fix = "Combine them, or store a list of them as one artifact."
            raise InvalidInput("artifact", f"at most {ARTIFACTS_MAX} per run", "one more", fix)
        self.artifacts[artifact.name] = artifact

    def wait_for(self, wanted: RunTrigger) -> SubFlow | None:
        """Return how a flow ended; None if the run must be suspended until then.

        A wait is identified by its key: the caller's, or else the flow and the number of earlier
        waits for it.
        """
        key = wanted.key or "/".join(
            [wanted.pipeline, wanted.partition or "", wanted.mode or "", *wanted.phases]
        )
        if wanted.key is None:
            self._waits[key] = n = self._waits.get(key, 0) + 1
            key = f"{key}#{n}"
        held = self._held
        found = self._store.read(lambda tx: find_sub_flow(tx, self._names, held, key, wanted))
        self.wait = (key, wanted) if found is None else None
        return found

    def upstream(self) -> list[UpstreamResult]:
        """Return the reports of the processors in earlier phases."""
        flow_id = self._held.flow_id
        if flow_id is None:
            return []
        return self._store.read(lambda tx: upstream_of(tx, flow_id, self._phase))

    def load_state(self) -> str | None:
        """Return the checkpoint as JSON; None if there is none."""
        held = self._held
        found = self._store.read(
            lambda tx: state_get(tx, held.root_run_id or held.run_id, held.parent_run_id)
        )
        return None if found is None else found.state

    def save_state(self, text: str) -> None:
        """Store the checkpoint immediately; raise LeaseLost once the run has another holder."""
        held = self._held
        row = (held.run_id, held.token, text)
        if not self._store.write(lambda tx: state_put_held(tx, [row])):
            raise LeaseLost(LEASE_LOST)


def reports_write(
    tx: Tx,
    store: Transactions,
    names: NameResolver,
    reports: Sequence[RunReport],
    completed: Collection[int],
) -> None:
    """Store the reports of runs with their ends; only completed runs perform actions."""
    performed = [
        OwnedActions(owner_of(one.held), one.actions)
        for one in reports
        if one.actions and one.held.run_id in completed
    ]
    if performed:
        perform_many(tx, store, names, performed)
    artifact_put_many(
        tx,
        [artifact_row(one.held, made) for one in reports for made in one.artifacts],
    )
    state_put_ended(
        tx,
        [
            StateRow(
                one.held.root_run_id or one.held.run_id,
                one.held.customer_key,
                one.held.run_id,
                one.held.token,
                one.state,
            )
            for one in reports
            if one.state is not None and one.held.run_id not in completed
        ],
    )
