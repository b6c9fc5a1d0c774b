"""Google Pub/Sub's gRPC services on the embedded bus, for unmodified Pub/Sub clients.

Needs the extra `penstock-engine[pubsub]`; only `assembly` imports this package, when a port is set.
"""
