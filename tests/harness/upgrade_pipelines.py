"""The pipelines of the upgrade proof, in words that the previous release knows too."""

from __future__ import annotations

from penstock import Pipeline, RunContext

single = Pipeline("single")
chain = Pipeline("chain", partition="day")


@single.processor(retry={"max_attempts": 1})
def work(_: RunContext) -> None:
    """Return immediately; an error of any kind fails the run permanently."""


first = chain.phase("first")
second = chain.phase("second", after=first)


@first.processor("load", retry={"max_attempts": 1})
def load(_: RunContext) -> None:
    """Start the flow."""


@second.processor("report", retry={"max_attempts": 1})
def report(_: RunContext) -> None:
    """End the flow."""
