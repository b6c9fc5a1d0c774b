"""Declare a pipeline, submit a run, execute it and print it: python examples/quickstart.py"""

from penstock import Pipeline, Result, RunContext, Submission, connect, run_pending

hello = Pipeline("hello")


@hello.processor(retry={"max_attempts": 5})
def greet(run: RunContext) -> Result:
    """Greet one person; the result is stored with the run."""
    return Result(summary={"text": f"hello {run.parameters['name']}"}, records=1)


if __name__ == "__main__":
    with connect("sqlite:quickstart.db") as client:
        client.register([hello])
        run = client.runs.submit(Submission(pipeline="hello", parameters={"name": "Ada"}))
        run_pending(client, [hello])
        print(client.runs.get(run.run_id).result)
