"""Dead letters: a run that fails permanently, its dead letter, a replay with other parameters."""

from penstock import (
    DeadLetterEdit,
    PermanentError,
    Pipeline,
    RunContext,
    Submission,
    connect,
    run_pending,
)

strict = Pipeline("strict")


@strict.processor
def check(run: RunContext) -> dict[str, str]:
    """Refuse unknown regions."""
    if run.parameters["region"] != "eu":
        raise PermanentError("the region is unknown", error_type="UNKNOWN_REGION")
    return {"region": "eu"}


if __name__ == "__main__":
    with connect("sqlite:dead_letters.db") as client:
        client.register([strict])
        client.runs.submit(Submission(pipeline="strict", parameters={"region": "mars"}))
        run_pending(client, [strict])
        (dead,) = client.dead_letters.list(error_type="UNKNOWN_REGION").items
        print(dead.run_id is not None, dead.error_type, dead.died_at.tzinfo)
        again = client.dead_letters.replay(
            dead.dead_letter_id, DeadLetterEdit(parameters={"region": "eu"})
        )
        run_pending(client, [strict])
        print(client.runs.get(again.replayed_as).state, client.runs.get(again.replayed_as).result)
