"""The materializer: system events of several kinds become one document per service.

Events have no type attribute; they are routed by content. An event with a `service` is a system
event: the state of ops_services/{serviceId} at its time. An unknown event is poison, which the
dead-letter topic keeps until a handler for it exists.

    uvicorn examples.services.materializer:asgi                push, at POST /pubsub/push
    python -m examples.services.materializer                   pull, from PENSTOCK_DATABASE_URL
"""

import os

from penstock.consumer import Consumer, ConsumerOptions, Message, Upsert, doc_path

app = Consumer(
    os.environ.get("SUBSCRIPTION", "materializer"),
    sink=os.environ.get("SINK_URL", "sqlite:ops.db"),
    dead_letters=os.environ.get("DEAD_LETTERS", "yes") == "yes",
    topic="system-events",
    options=ConsumerOptions(
        service=os.environ.get("K_SERVICE", "materializer"),
        env=os.environ.get("ENV", "dev"),
        version=os.environ.get("K_REVISION", ""),
    ),
)


def is_system_event(message: Message) -> bool:
    """Return whether a message is about a service."""
    return "service" in message.json and "occurredAt" in message.json


def as_of(message: Message) -> tuple[str, str]:
    """Return the document of a system event and the time of its state."""
    return doc_path("ops_services", message.json["service"]), message.json["occurredAt"]


@app.on(when=is_system_event, newer=as_of)
def system_event(message: Message) -> Upsert:
    """Store the state of a service; events older than the stored state are ignored before."""
    event = message.json
    state = {"state": event["state"], "region": event.get("region"), "detail": event.get("detail")}
    return Upsert(path=as_of(message)[0], fields={**state, "as_of": event["occurredAt"]})


asgi = app.asgi()

if __name__ == "__main__":
    from penstock import connect  # only the pull service uses Penstock's database
    from penstock.bus import EmbeddedBus

    with connect() as client:
        app.run(EmbeddedBus(client.store))
