"""Monitoring: the overview, open alerts, registered pipelines, as JSON for other programs."""

from penstock import Pipeline, RunContext, Submission, connect, encode_record

hello = Pipeline("hello")


@hello.processor
def greet(run: RunContext) -> None:
    """Greet."""


if __name__ == "__main__":
    with connect("sqlite:monitoring.db") as client:
        client.register([hello])
        client.runs.submit(Submission(pipeline="hello"))
        overview = client.views.overview()
        print(overview.pending_runs, "pending,", overview.failed_today, "failed today")
        print([one.message for one in client.alerts.list(state="open").items])
        print(encode_record(client.views.pipelines()[0])[:30])
