"""The materializer: system events of many shapes become one document per service.

Events have no type of their own; they are told apart by shape. One with a `service` is a system
event: the state of ops_services/{serviceId} as of its time. One that nobody knows is poison, which
the dead-letter topic keeps for whoever writes the missing handler.

    uvicorn examples.services.materializer:asgi                pushes, at POST /pubsub/push
    python -m examples.services.materializer                   pulls, from PENSTOCK_DATABASE_URL
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
    """Whether a message speaks of a service."""
    return "service" in message.json and "occurredAt" in message.json


def as_of(message: Message) -> tuple[str, str]:
    """The document a system event is about, and when it was so."""
    return doc_path("ops_services", message.json["service"]), message.json["occurredAt"]


@app.on(when=is_system_event, newer=as_of)
def system_event(message: Message) -> Upsert:
    """The state of a service; one that is older than what is known does not get here."""
    event = message.json
    state = {"state": event["state"], "region": event.get("region"), "detail": event.get("detail")}
    return Upsert(path=as_of(message)[0], fields={**state, "as_of": event["occurredAt"]})


asgi = app.asgi()

if __name__ == "__main__":
    from penstock import connect  # only the pulling service has a database of Penstock's
    from penstock.bus.transports.embedded import EmbeddedBus

    with connect() as client:
        app.run(EmbeddedBus(client.store))
