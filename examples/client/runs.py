"""Runs: submit, execute, read the result, list by customer."""

from penstock import Pipeline, RunContext, Submission, connect, run_pending

double = Pipeline("double")


@double.processor
def compute(run: RunContext) -> dict[str, int]:
    """Double a number."""
    return {"value": 2 * run.parameters["n"]}


if __name__ == "__main__":
    with connect("sqlite:runs.db") as client:
        client.register([double])
        ref = client.runs.submit(
            Submission(pipeline="double", customer="acme", parameters={"n": 21})
        )
        run_pending(client, [double])
        run = client.runs.get(ref.run_id)
        print(run.state, run.result, run.duration)
        print([one.run_id == ref.run_id for one in client.runs.list(customer="acme").items])
