"""Pipelines for the command line's tests: one works, one cannot, one has two processors."""

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
    """Say hello."""
    return Result(summary={"text": f"hello {run.parameters['name']}"}, records=1)


@broken.processor(pool="other")
def burst(run: RunContext) -> None:
    """Fail for good."""
    raise PermanentError(f"nothing can be done for {run.customer_id}")


@slow.processor
def stay(run: RunContext) -> None:
    """Take no notice of anything for a long time."""
    run.log.warning("staying")
    threading.Event().wait(120)


@pair.processor
def left(run: RunContext) -> None:
    """Do half of the work."""
    run.check()


@pair.processor
def right(run: RunContext) -> None:
    """Do the other half."""
    run.check()
