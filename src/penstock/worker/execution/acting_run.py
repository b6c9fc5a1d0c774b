"""Actions of a run: publish, create runs, open flows, keep artifacts and a checkpoint.

Actions are checked when the processor requests them and performed in the transaction that completes
the run; a run that fails, times out or is cancelled performs none. Everything goes through the
run's port, which is created on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal, TypedDict, Unpack, overload

import msgspec

from penstock.core.clock import Clock
from penstock.core.errors import Conflict, RunSuspended
from penstock.core.records.validation import convert_input
from penstock.runs.action_records import (
    NewArtifact,
    RunActions,
    RunMessage,
    RunSubmission,
    RunTrigger,
    SubFlow,
    UpstreamResult,
)
from penstock.runs.rows import HeldRun
from penstock.worker.execution.logged_run import LoggedRun
from penstock.worker.execution.run_port import RunPort, RunReport, StorePort
from penstock.worker.execution.run_state import SavedState
from penstock.worker.run_info import LoadedProcessor


class SubmitOptions(TypedDict, total=False):
    """Additional settings of a run that another run creates."""

    priority: int
    at: datetime
    ordering_key: str
    mode: str


class TriggerOptions(TypedDict, total=False):
    """Additional settings of a flow that a run opens."""

    mode: str
    phases: Sequence[str]
    config: str
    force: bool
    priority: int


class ActingRun(LoggedRun):
    """A run whose processor may perform actions in addition to returning a result."""

    __slots__ = ("_port", "_state", "_upstream", "make_port")

    def __init__(self, held: HeldRun, known: LoadedProcessor, clock: Clock) -> None:
        super().__init__(held, known, clock)
        self.make_port: Callable[[HeldRun, str], RunPort] | None = None
        """Set by the worker, and in a child process by the child."""
        self._port: RunPort | None = None
        self._state: SavedState | None = None
        self._upstream: Mapping[str, UpstreamResult] | None = None

    @property
    def port(self) -> RunPort:
        """Port through which the run's actions reach its worker."""
        if self._port is None:
            if self.make_port is None:
                raise Conflict("this run has no worker: its context can only be read.")
            self._port = self.make_port(self.held, self.phase)
        return self._port

    @property
    def has_acted(self) -> bool:
        """Whether the end may include anything besides the result."""
        return self._port is not None

    def publish(
        self,
        topic: str,
        data: bytes | str | Mapping[str, Any] = b"",
        *,
        attributes: Mapping[str, str] | None = None,
        ordering_key: str | None = None,
        dedupe_id: str | None = None,
        key: str | None = None,
        at_once: bool = False,
    ) -> str | None:
        """Publish a message when the run completes.

        The topic is the customer's own or the system's. A mapping is sent as JSON. The message has
        the attributes `run_id`, `correlation_id` and `causation_id`. key: publish once for each
        key. at_once: publish now, regardless of how the run ends, and return the message's id; a
        retry publishes again unless `dedupe_id` (such as `run.idempotency_key`) is the same. Raises
        LeaseLost once the run has another holder.
        """
        self.check()
        content = msgspec.json.encode(data) if isinstance(data, Mapping) else data
        message = RunMessage(
            topic=topic,
            data=content.encode() if isinstance(content, str) else content,
            attributes=dict(attributes or {}),
            ordering_key=ordering_key,
            dedupe_id=dedupe_id,
            key=key,
        )
        if at_once:
            return self.port.publish_now(message)
        self.port.act(RunActions(publish=[message]))
        return None

    def submit(
        self,
        pipeline: str,
        processor: str | None = None,
        *,
        partition: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        key: str | None = None,
        **options: Unpack[SubmitOptions],
    ) -> None:
        """Create a run when this one completes, for the same customer.

        It continues the correlation id and has this run's priority. options: priority, at (earliest
        start), ordering_key, mode. key: create one run for each key.
        """
        self.check()
        wanted = RunSubmission(
            pipeline=pipeline,
            processor=processor,
            partition=partition,
            parameters=None if parameters is None else dict(parameters),
            key=key,
            **options,
        )
        self.port.act(RunActions(submit=[wanted]))

    @overload
    def trigger(
        self,
        pipeline: str,
        partition: str | None = None,
        *,
        wait: Literal[True],
        parameters: Mapping[str, Any] | None = None,
        key: str | None = None,
        **options: Unpack[TriggerOptions],
    ) -> SubFlow: ...

    @overload
    def trigger(
        self,
        pipeline: str,
        partition: str | None = None,
        *,
        wait: Literal[False] = False,
        parameters: Mapping[str, Any] | None = None,
        key: str | None = None,
        **options: Unpack[TriggerOptions],
    ) -> None: ...

    def trigger(
        self,
        pipeline: str,
        partition: str | None = None,
        *,
        wait: bool = False,
        parameters: Mapping[str, Any] | None = None,
        key: str | None = None,
        **options: Unpack[TriggerOptions],
    ) -> SubFlow | None:
        """Open a flow when this run completes, for the same customer.

        An existing flow of the partition is left unchanged unless `force` opens the next
        generation. options: mode, phases, config, force, priority. key: open one flow for each key.

        wait: open it now, and return how it ended. The run leaves its worker by raising
        RunSuspended, which the processor must not catch, and is executed again from the start when
        the flow has ended; the same call then returns. No attempt is counted. Actions requested
        before are dropped, because the run requests them again.
        """
        self.check()
        wanted = _trigger(pipeline, partition, parameters, key, options)
        if not wait:
            self.port.act(RunActions(trigger=[wanted]))
            return None
        if self.declared.terms.collect is not None:
            raise Conflict("run.trigger(wait=True) is not available with collect=.")
        found = self.port.wait_for(wanted)
        if found is None:
            raise RunSuspended(f"the run waits for {pipeline} {partition or ''}".rstrip())
        return found

    @property
    def wait(self) -> tuple[str, RunTrigger] | None:
        """Key and flow of the wait that suspends the run; None if it does not wait."""
        return self._port.wait if isinstance(self._port, StorePort) else None

    def artifact(
        self,
        name: str,
        uri: str,
        *,
        size: int | None = None,
        checksum: str | None = None,
        media_type: str | None = None,
    ) -> None:
        """Keep a reference to an object that the run created, such as a file; kept even if the run
        fails.

        checksum: with its algorithm, such as `sha256:9f86d0…`.
        """
        given = {
            "name": name,
            "uri": uri,
            "size": size,
            "checksum": checksum,
            "media_type": media_type,
        }
        self.port.keep_artifact(convert_input(given, NewArtifact))

    @property
    def state(self) -> SavedState:
        """A mapping of at most 64 KB that the next attempt of the run can read.

        Changes are stored with the worker's heartbeats and when the attempt ends without
        completing; `run.state.save()` stores them immediately.
        """
        if self._state is None:
            port = self.port
            self._state = SavedState(port.load_state(), port.save_state)
        return self._state

    @property
    def upstream(self) -> Mapping[str, UpstreamResult]:
        """Reports of the processors in earlier phases, read on first use.

        Keyed by `phase.processor`, and by the processor's name alone if it is unique. Empty outside
        a flow.
        """
        if self._upstream is None:
            found = self.port.upstream()
            names = [one.processor for one in found]
            short = {one.processor: one for one in found if names.count(one.processor) == 1}
            full = {f"{one.phase}.{one.processor}": one for one in found}
            self._upstream = MappingProxyType({**short, **full})
        return self._upstream

    def check(self) -> None:
        """Raise if the run must stop."""
        raise NotImplementedError

    def take_state(self) -> str | None:
        """Return the checkpoint if it changed since it was last stored."""
        return None if self._state is None else self._state.take_changed()

    def set_state(self, text: str) -> None:
        """Set the checkpoint that the run's child process changed."""
        if self._state is None:
            self._state = SavedState(None, self.port.save_state)
        self._state.receive(text)

    def take_report(self) -> RunReport | None:
        """Return the report to store with the end of the run; None if it performed no actions."""
        port = self._port
        if not isinstance(port, StorePort):
            return None
        # Include the whole state even if a heartbeat has taken it: the heartbeat may not be stored
        # before the run ends.
        state = None if self._state is None else self._state.latest
        artifacts = tuple(port.artifacts.values())
        return RunReport(self.held, tuple(port.actions), artifacts, port.wait, state)


def _trigger(
    pipeline: str,
    partition: str | None,
    parameters: Mapping[str, Any] | None,
    key: str | None,
    options: TriggerOptions,
) -> RunTrigger:
    return RunTrigger(
        pipeline=pipeline,
        partition=partition,
        mode=options.get("mode"),
        phases=list(options.get("phases", ())),
        config=options.get("config"),
        force=options.get("force", False),
        parameters=None if parameters is None else dict(parameters),
        priority=options.get("priority"),
        key=key,
    )
