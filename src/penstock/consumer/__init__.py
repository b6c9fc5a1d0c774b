"""The kit for a user's own service: messages in, effects once, ack and nack right.

    from penstock.consumer import Consumer, Upsert

Needs nothing beyond the core install; sinks in PostgreSQL need psycopg (`penstock[postgres]`).
"""

from penstock.consumer.app import Consumer
from penstock.consumer.batch import Batch
from penstock.consumer.disposition import Disposition, Outcome
from penstock.consumer.failure import Reject, TryAgain
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
    "signed_by",
]
