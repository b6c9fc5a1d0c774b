"""A Cloud Run service behind a Pub/Sub push subscription: each order is billed once.

uvicorn main:asgi --host 0.0.0.0 --port $PORT
"""

import os

from penstock.consumer import Consumer, ConsumerOptions, Message, Upsert, doc_path

app = Consumer(
    "billing",
    sink=os.environ.get("SINK_URL", "sqlite:billing.db"),  # in production postgresql://…
    topic="orders",
    dead_letters=True,  # the subscription has a dead-letter topic: reject poison, do not ack it
    options=ConsumerOptions(
        service=os.environ.get("K_SERVICE", "billing"),  # set by Cloud Run
        version=os.environ.get("K_REVISION", ""),
    ),
)


@app.on("order.placed")
def bill(message: Message) -> Upsert:
    """Store the bill of an order and count its lines, in the transaction that remembers its id."""
    order = message.json
    if order["cents"] < 0:
        raise ValueError("a bill of less than nothing")  # poison: for the dead-letter topic
    path = doc_path("bills", str(order["id"]))
    return Upsert(path=path, fields={"cents": order["cents"], "state": "billed"}, add={"times": 1})


asgi = app.asgi()
