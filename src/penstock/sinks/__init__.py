"""Sinks store the effects of handled messages in one transaction with mark, version and counters.

A sink stores documents, marks, counters and audit records; it does not depend on messages,
transports or HTTP. `consumer` writes through the protocol in `api`.
"""
