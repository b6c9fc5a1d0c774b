"""Consumer kit for your own services: receive messages, apply each one exactly once, ack or nack.

    from penstock.consumer import Consumer, Upsert

It needs only the core install; PostgreSQL sinks need psycopg (`penstock-engine[postgres]`).
"""

from penstock.bus.message import Outcome
from penstock.consumer.app import Consumer
from penstock.consumer.batch import Batch
from penstock.consumer.disposition import Disposition
from penstock.consumer.failure import GateClosed, Reject, TryAgain
from penstock.consumer.gates import product_gate
from penstock.consumer.logline import Alert
from penstock.consumer.message import Message, Payload
from penstock.consumer.options import ConsumerOptions
from penstock.consumer.pulling import PullWorker
from penstock.consumer.senders import signed_by
from penstock.sinks.opening import open_sink
from penstock.sinks.protocol import Document, Sink, SinkTx, StaleFence, Upsert, doc_path

__all__ = [
    "Alert",
    "Batch",
    "Consumer",
    "ConsumerOptions",
    "Disposition",
    "Document",
    "GateClosed",
    "Message",
    "Outcome",
    "Payload",
    "PullWorker",
    "Reject",
    "Sink",
    "SinkTx",
    "StaleFence",
    "TryAgain",
    "Upsert",
    "doc_path",
    "open_sink",
    "product_gate",
    "signed_by",
]
