"""Ingest heartbeats: the latest heartbeat of every pipeline, even if messages repeat or reorder.

A heartbeat is {"event_type": "ingest.heartbeat", "schemaVersion": 1, "pipeline": …, "status": …,
"at": …}. The newest one of a pipeline is the document ingest_pipelines/{pipeline}, with the number
of applied heartbeats. A repeated message changes nothing, an older one is ignored.

    uvicorn examples.services.ingest_heartbeat:asgi            push, at POST /pubsub/push
    python -m examples.services.ingest_heartbeat               pull, from PENSTOCK_DATABASE_URL
"""

import os

from penstock.consumer import Consumer, ConsumerOptions, Message, Reject, Upsert, doc_path

STATUSES = ("ok", "degraded", "failed")

app = Consumer(
    os.environ.get("SUBSCRIPTION", "ingest-heartbeat"),
    sink=os.environ.get("SINK_URL", "sqlite:heartbeats.db"),
    dead_letters=os.environ.get("DEAD_LETTERS", "yes") == "yes",
    topic="system-events",
    options=ConsumerOptions(
        service=os.environ.get("K_SERVICE", "ingest-heartbeat"),
        env=os.environ.get("ENV", "dev"),
        version=os.environ.get("K_REVISION", ""),
    ),
)


@app.on("ingest.heartbeat", schema=1)
def heartbeat(message: Message) -> Upsert:
    """Store the latest heartbeat of a pipeline."""
    report = message.json
    if report["status"] not in STATUSES:
        raise Reject(f"status: expected one of {', '.join(STATUSES)}")
    return Upsert(
        path=doc_path("ingest_pipelines", report["pipeline"]),
        fields={"status": report["status"], "last_heartbeat_at": report["at"]},
        version=report["at"],
        add={"beats": 1},
    )


asgi = app.asgi()

if __name__ == "__main__":
    from penstock import connect  # only the pull service uses Penstock's database
    from penstock.bus import EmbeddedBus

    with connect() as client:
        app.run(EmbeddedBus(client.store))
