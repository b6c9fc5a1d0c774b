"""Outgoing HTTP requests, and signing and checking tokens.

Adapters over the core's rules: requests to checked addresses (`pinned`), signed tokens (`tokens`),
and cached keys of other issuers (`keyset`). Nothing here knows the store.
"""
