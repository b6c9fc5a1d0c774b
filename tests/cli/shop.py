"""Pipelines for the tests: one succeeds, one fails, one is slow, one has two processors."""

import threading

from penstock import PermanentError, Pipeline, Result, RunContext

hello = Pipeline(
    "hello",
    parameters={
        "type": "object",
        "properties": {"name": {"type": "string", "default": "world"}},
        "additionalProperties": False,
    },
)
broken = Pipeline("broken")
slow = Pipeline("slow")
pair = Pipeline("pair")


@hello.processor
def greet(run: RunContext) -> Result:
    """Return a greeting."""
    return Result(summary={"text": f"hello {run.parameters['name']}"}, records=1)


@broken.processor(pool="other")
def burst(run: RunContext) -> None:
    """Fail with a permanent error."""
    raise PermanentError(f"nothing can be done for {run.customer_id}")


@slow.processor
def stay(run: RunContext) -> None:
    """Run for two minutes and ignore cancellation."""
    run.log.warning("staying")
    threading.Event().wait(120)


@pair.processor
def left(run: RunContext) -> None:
    """Do nothing but check for cancellation."""
    run.check()


@pair.processor
def right(run: RunContext) -> None:
    """Do nothing but check for cancellation."""
    run.check()
