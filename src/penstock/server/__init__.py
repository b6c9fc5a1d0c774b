"""The HTTP API: routes by subject over the client, for workers, customers' programs and the UI.

`app` builds it; `guard`, `auth`, `strict` and `problems` are what every request passes through.
"""
