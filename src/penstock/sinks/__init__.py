"""Where handled messages are written: one transaction with mark, version and counters.

A sink knows documents, marks, counters and audit records; it knows nothing of messages, transports
or HTTP. `consumer` writes through the protocol in `api`.
"""
