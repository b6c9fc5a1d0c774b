"""Outgoing HTTP requests, and signing and checking tokens.

Requests to checked addresses (`http_client`), signed tokens (`tokens`), and cached keys of other
issuers (`keyset`). `policy`, `addresses` and `oidc` are pure rules. Nothing here accesses the
store.
"""
