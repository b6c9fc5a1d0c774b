"""A Cloud Run service behind a Pub/Sub push subscription: each order is billed once.

uvicorn main:asgi --host 0.0.0.0 --port $PORT
"""

import os

from penstock.consumer import Consumer, Message, Upsert, doc_path

settings = dict(os.environ)
if "K_SERVICE" not in settings:  # Cloud Run sets it; its files are lost with the instance
    settings.setdefault("SINK_URL", "sqlite:billing.db")

app = Consumer(
    "billing",
    sink=settings["SINK_URL"],  # on Cloud Run postgresql://… or firestore:PROJECT
    topic="orders",
    dead_letters=True,  # the subscription has a dead-letter topic: reject poison, do not ack it
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
