"""The HTTP API: routes by subject over the client, for workers, customer programs and the UI.

`app` builds it; every request passes through `overload`, `auth`, `route` and `problems`.
"""
